"""One exchange as something to run: a curl command, Python with httpx, Python with the OpenAI SDK.

What was redacted is taken from the environment (`OPENAI_API_KEY`, or `GYMTAP_<HEADER>`), so that nothing has to be
pasted. What belongs to the connection, and what the client makes itself, is left out.

What was recorded may have been written by anybody, and is pasted into somebody's shell: nothing of it is ever code, has
control characters, which terminals act upon, or begins another header field or request.
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
_EXPECTED_BYTES = 2**20  # from here on curl asks before it sends
_TARGET_VARIABLE = "GYMTAP_TARGET"
_PLAIN_TARGET = re.compile(r"/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-F]{2})*")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_ENDS_A_FIELD = re.compile(r"[\r\n\0]")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_ACTED_UPON = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # by a terminal: all but tabs and line feeds
_PARTS = re.compile(f"({re.escape(PLACEHOLDER)})")


def curl(kept: Kept) -> str:
    """A shell command that sends the same request; a body that no command line can hold comes through base64.

    Raises UsageError for a request that no client sends.
    """
    exchange, body = kept.exchange, kept.request_body or b""
    _check(exchange)
    headers = _headers(exchange)
    method = exchange.request.method
    lines = ["curl --head" if method == "HEAD" else f"curl --request {shlex.quote(method)}"]
    lines += [f"--header {_shell(_variable(name), _header(name, value))}" for name, value in headers]
    lines += [f"--header {name}:" for name in _unsent(headers, body)]
    before = ""
    if body and _is_plain(body):
        lines.append(f"--data-binary {shlex.quote(body.decode())}")
    elif body:
        before = f"printf %s {shlex.quote(base64.b64encode(body).decode())} | base64 --decode | "
        lines.append("--data-binary @-")
    target = exchange.request.target
    if not _is_plain_target(target):
        lines.append(f"--request-target {_shell(_TARGET_VARIABLE, target)}")
    lines.append(f"--url {_quoted(url(kept) if _is_plain_target(target) else _origin(kept))}")
    return _warned(kept) + before + " \\\n  ".join(lines) + "\n"


def _check(exchange: Exchange) -> None:
    asked = exchange.request
    if not _TOKEN.fullmatch(asked.method) or not asked.target or _CONTROLS.search(asked.target):
        raise UsageError(f"{exchange.id} has a method or a target that no client sends", "use --format jsonl")


def _is_sent(name: str, value: str) -> bool:
    """Whether any client sends such a field: imported ones may have line ends, which would begin another."""
    return _TOKEN.fullmatch(name) is not None and _ENDS_A_FIELD.search(value) is None


def _header(name: str, value: str) -> str:
    """As curl takes it: an empty one ends in a semicolon."""
    return f"{name}: {value}" if value else f"{name};"


def _is_plain_target(target: str) -> bool:
    """Whether clients send such a target as it is: none of them takes it apart, escapes it or shortens it."""
    return _PLAIN_TARGET.fullmatch(target) is not None and "/." not in target and PLACEHOLDER not in target


def _origin(kept: Kept) -> str:
    """Who is asked, where the target is said apart."""
    return f"{(kept.server.upstream if kept.server else '') or f'http://{kept.exchange.server}'}/"


def _warned(kept: Kept) -> str:
    """Comments where it is not what was sent."""
    said = []
    if PLACEHOLDER.encode() in (kept.request_body or b""):
        said.append(f"In the body, {PLACEHOLDER} stands for what was redacted: put yours in its place.")
    if not all(_is_sent(name, value) for name, value in kept.exchange.request.headers):
        said.append("Header fields that no client sends (line ends, odd names) are left out.")
    return "".join(f"# {line}\n" for line in said)


def _unsent(headers: Sequence[tuple[str, str]], body: bytes) -> list[str]:
    """Headers that curl makes of its own accord, and the recorded client did not."""
    named = {name.lower() for name, _ in headers}
    own = ["Accept", "User-Agent", *(["Content-Type"] if body else [])]
    own += ["Expect"] if len(body) > _EXPECTED_BYTES else []
    return [name for name in own if name.lower() not in named]


def _is_plain(body: bytes) -> bool:
    """Whether it can be an argument; one that begins with @ would be a file's name."""
    if body.startswith(b"@") or len(body) >= _ARGUMENT_BYTES:
        return False
    try:
        return _ACTED_UPON.search(body.decode()) is None
    except UnicodeDecodeError:
        return False


def _headers(exchange: Exchange, without: Sequence[str] = ()) -> list[tuple[str, str]]:
    coded = exchange.request.body is not None and exchange.request.body.encoding is not None
    left_out = {*_OF_THE_CONNECTION, *without, *(["content-encoding"] if coded else [])}
    return [
        (name, value)
        for name, value in exchange.request.headers
        if name.lower() not in left_out and _is_sent(name, value)
    ]


def _variable(name: str) -> str:
    """The environment variable that has what was redacted in a header."""
    if name.lower() in {"authorization", "api-key", "x-api-key"}:
        return "OPENAI_API_KEY"
    return "GYMTAP_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _shell(variable: str, text: str) -> str:
    """A word of a shell's; what was redacted in it is taken from the environment, which must have it."""
    parts = _PARTS.split(text)
    return "".join(f'"${{{variable}:?}}"' if part == PLACEHOLDER else _quoted(part) for part in parts if part)


def _quoted(text: str) -> str:
    """Recorded text has a character for each byte that crossed the wire."""
    raw = text.encode("latin-1", "replace")
    try:
        plain = raw.decode()
    except UnicodeDecodeError:
        plain = "\0"
    if _ACTED_UPON.search(plain):
        return f"\"$(printf '{''.join(f'\\{byte:03o}' for byte in raw)}')\""
    return shlex.quote(plain)


def _python(variable: str, text: str) -> str:
    """A Python expression of the bytes that crossed the wire."""
    parts = [part for part in _PARTS.split(text) if part]
    said = [
        f'os.environb[b"{variable}"]' if part == PLACEHOLDER else repr(part.encode("latin-1", "replace"))
        for part in parts
    ]
    return " + ".join(said) or 'b""'


def _python_text(variable: str, text: str) -> str:
    """The same, as text."""
    parts = [part for part in _PARTS.split(text) if part]
    said = [f'os.environ["{variable}"]' if part == PLACEHOLDER else repr(part) for part in parts]
    return " + ".join(said) or '""'


def python(kept: Kept) -> str:
    """A script with httpx that sends the same bytes and prints the answer; without time limit, following nothing.

    Raises UsageError for a request that no client sends.
    """
    asked = kept.exchange.request
    _check(kept.exchange)
    headers = [
        f"    ({name.encode()!r}, {_python(_variable(name), value)})," for name, value in _headers(kept.exchange)
    ]
    plain = _is_plain_target(asked.target)
    apart = "" if plain else f', extensions={{"target": {_python(_TARGET_VARIABLE, asked.target)}}}'
    address = url(kept) if plain else _origin(kept)
    needs = ["import os", ""] if "os.environ" in "".join([*headers, apart]) else []
    return _warned(kept) + "\n".join(
        [
            *needs,
            "import httpx",
            "",
            "headers = [",
            *headers,
            "]",
            f"content = {kept.request_body or b''!r}",
            f"request = httpx.Request({asked.method!r}, {address!r}, headers=headers, content=content{apart})",
            "with httpx.Client(timeout=None) as client:",
            "    answer = client.send(request)",
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
    extra = [
        f"        {name!r}: {_python_text(_variable(name), value)},"
        for name, value in _headers(exchange, tuple(_SDK_HEADERS))
    ]
    return _warned(kept) + "\n".join(
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
