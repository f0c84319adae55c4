"""An exchange's request as something to paste: a curl command, a Python script, JSON.

Pure: an exchange and its recorded body in, text out. What was redacted before it was kept is still redacted here, and
headers that describe the connection rather than the request are left out.
"""

import json
import shlex

import orjson

from gymtap.schemas import Exchange, Headers

_OF_THE_CONNECTION = frozenset(
    {"host", "content-length", "connection", "keep-alive", "transfer-encoding", "accept-encoding", "te", "trailer"}
)


def _headers(headers: Headers) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _OF_THE_CONNECTION]


def _text(body: bytes) -> str:
    return body.decode("utf-8", "surrogateescape")


def as_curl(exchange: Exchange, base: str, body: bytes) -> str:
    """A curl command; `base` is the server's address. A body that is no text comes from the file `body.bin`."""
    parts = ["curl", "-sS", "-X", exchange.request.method, shlex.quote(base + exchange.request.target)]
    lines = [" ".join(parts)]
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in _headers(exchange.request.headers)]
    if body:
        lines.append(f"--data-binary {shlex.quote(_text(body)) if _is_text(body) else '@body.bin'}")
    return " \\\n  ".join(lines)


def as_python(exchange: Exchange, base: str, body: bytes) -> str:
    """A script that needs nothing but Python."""
    headers = dict(_headers(exchange.request.headers))
    return "\n".join(
        [
            "import urllib.error",
            "import urllib.request",
            "",
            f"request = urllib.request.Request({base + exchange.request.target!r}, method={exchange.request.method!r})",
            *(f"request.add_header({name!r}, {value!r})" for name, value in headers.items()),
            f"request.data = {body!r}" if body else "",
            "try:",
            "    response = urllib.request.urlopen(request)",
            "except urllib.error.HTTPError as error:",
            "    response = error",
            'print(response.status, response.read().decode(errors="replace"))',
            "",
        ]
    )


def as_json(exchange: Exchange, request: bytes, response: bytes | None) -> str:
    """The whole exchange as one document, its bodies parsed where they are JSON."""
    document = exchange.model_dump(mode="json")
    document["request"]["content"] = _value(request)
    if document["response"] is not None:
        document["response"]["content"] = _value(response or b"")
    return json.dumps(document, indent=2, ensure_ascii=True)


def _value(body: bytes) -> object:
    try:
        return orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in body
