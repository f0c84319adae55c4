"""One exchange as something to run: a curl command, Python with httpx, Python with the OpenAI SDK.

What was redacted is taken from the environment (`OPENAI_API_KEY`, or `GYMTAP_<HEADER>`), so that nothing has to be
pasted. What belongs to the connection, and what the client makes itself, is left out.
"""

import base64
import re
import shlex
from collections.abc import Sequence

import orjson

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.core.redaction import PLACEHOLDER
from gymtap.proxy.export.har import url
from gymtap.schemas import Exchange

_OF_THE_CONNECTION = frozenset(
    {"host", "content-length", "connection", "keep-alive", "transfer-encoding", "te", "upgrade", "proxy-connection"}
    | {"proxy-authorization", "expect", "trailer"}
)
_SDK_CALLS = {
    "/chat/completions": "chat.completions.create",
    "/responses": "responses.create",
    "/completions": "completions.create",
    "/embeddings": "embeddings.create",
}
_SDK_HEADERS = frozenset({"authorization", "content-type", "accept", "accept-encoding", "user-agent", "cookie"})
_ARGUMENT_BYTES = 100_000  # Linux takes 128 KiB in one
_PARTS = re.compile(f"({re.escape(PLACEHOLDER)})")


def curl(kept: Kept) -> str:
    """A shell command that sends the same request; a body that no command line can hold comes through base64."""
    exchange, body = kept.exchange, kept.request_body or b""
    headers = _headers(exchange)
    method = exchange.request.method
    lines = ["curl --head" if method == "HEAD" else f"curl --request {shlex.quote(method)}"]
    lines += [f"--header {_shell(name, f'{name}: {value}')}" for name, value in headers]
    lines += [f"--header {name}:" for name in _unsent(headers, body)]
    before = ""
    if body and _is_plain(body):
        lines.append(f"--data-binary {shlex.quote(body.decode())}")
    elif body:
        before = f"printf %s {shlex.quote(base64.b64encode(body).decode())} | base64 --decode | "
        lines.append("--data-binary @-")
    return before + " \\\n  ".join([*lines, shlex.quote(url(kept))]) + "\n"


def _unsent(headers: Sequence[tuple[str, str]], body: bytes) -> list[str]:
    """Headers that curl makes of its own accord, and the recorded client did not."""
    named = {name.lower() for name, _ in headers}
    own = ["Accept", "User-Agent", *(["Content-Type"] if body else [])]
    return [name for name in own if name.lower() not in named]


def _is_plain(body: bytes) -> bool:
    """Whether it can be an argument; one that begins with @ would be a file's name."""
    try:
        return "\0" not in body.decode() and not body.startswith(b"@") and len(body) < _ARGUMENT_BYTES
    except UnicodeDecodeError:
        return False


def _headers(exchange: Exchange, without: Sequence[str] = ()) -> list[tuple[str, str]]:
    coded = exchange.request.body is not None and exchange.request.body.encoding is not None
    left_out = {*_OF_THE_CONNECTION, *without, *(["content-encoding"] if coded else [])}
    return [(name, value) for name, value in exchange.request.headers if name.lower() not in left_out]


def _variable(name: str) -> str:
    """The environment variable that has what was redacted in a header."""
    if name.lower() in {"authorization", "api-key", "x-api-key"}:
        return "OPENAI_API_KEY"
    return "GYMTAP_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _shell(name: str, text: str) -> str:
    parts = _PARTS.split(text)
    return "".join(f'"${_variable(name)}"' if part == PLACEHOLDER else shlex.quote(part) for part in parts if part)


def _python(name: str, text: str) -> str:
    """A Python expression for a header's value."""
    parts = [part for part in _PARTS.split(text) if part]
    said = [f'os.environ["{_variable(name)}"]' if part == PLACEHOLDER else repr(part) for part in parts]
    return " + ".join(said) or '""'


def python(kept: Kept) -> str:
    """A script with httpx that sends the same bytes and prints the answer; without time limit, following nothing."""
    exchange = kept.exchange
    headers = [f"    ({name!r}, {_python(name, value)})," for name, value in _headers(exchange)]
    needs = ["import os", ""] if any("os.environ" in line for line in headers) else []
    return "\n".join(
        [
            *needs,
            "import httpx",
            "",
            "headers = [",
            *headers,
            "]",
            f"content = {kept.request_body or b''!r}",
            "answer = httpx.request(",
            f"    {exchange.request.method!r}, {url(kept)!r}, headers=headers, content=content, timeout=None",
            ")",
            "print(answer.status_code)",
            "print(answer.text)",
            "",
        ]
    )


def openai(kept: Kept) -> str:
    """A script with the OpenAI SDK that makes the same call once. Raises UsageError for what the SDK cannot say."""
    exchange = kept.exchange
    path = exchange.request.target.partition("?")[0]
    ending = next((ending for ending in _SDK_CALLS if path.endswith(ending)), None)
    parameters = _parameters(kept.request_body)
    if ending is None or parameters is None:
        what = f"{exchange.request.method} {path}"
        raise UsageError(f"{exchange.id} is no call that the OpenAI SDK makes: {what}", "use --format python or curl")
    base = url(kept).partition("?")[0].removesuffix(ending)
    extra = [f"        {name!r}: {_python(name, value)}," for name, value in _headers(exchange, tuple(_SDK_HEADERS))]
    return "\n".join(
        [
            "import os",
            "",
            "from openai import OpenAI",
            "",
            "client = OpenAI(",
            f"    base_url={base!r},",
            '    api_key=os.environ.get("OPENAI_API_KEY", "EMPTY"),',
            "    max_retries=0,",
            *(["    default_headers={", *extra, "    },"] if extra else []),
            ")",
            f"answer = client.{_SDK_CALLS[ending]}(extra_body={parameters!r}, {_required(ending, parameters)})",
            *(["for piece in answer:", "    print(piece)"] if parameters.get("stream") else ["print(answer)"]),
            "",
        ]
    )


def _parameters(body: bytes | None) -> dict[str, object] | None:
    try:
        found = orjson.loads(body or b"")
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _required(ending: str, parameters: dict[str, object]) -> str:
    """The arguments that the SDK insists on, and the one that changes what it gives back; the body has them too."""
    names = {
        "/chat/completions": ("model", "messages"),
        "/responses": (),
        "/completions": ("model", "prompt"),
        "/embeddings": ("model", "input"),
    }[ending]
    said = [f"{name}={parameters.get(name)!r}" for name in names]
    said += ["stream=True"] if parameters.get("stream") is True else []
    return ", ".join(said)
