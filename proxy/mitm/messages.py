"""What mitmproxy's flows and our events have in common: servers, heads, WebSocket messages.

A WebSocket has no bodies, so its messages become them: one JSON line each, what the client sent in the request's,
what the server sent in the response's.
"""

import base64

import orjson
from mitmproxy import http
from mitmproxy.websocket import WebSocketMessage

from gymtap.proxy.core.events import RawHeaders
from gymtap.schemas import Server

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin(request: http.Request) -> tuple[str, str]:
    """The name (`api.example.com`, with the port where it is not the scheme's own) and the URL of who answers."""
    host = request.pretty_host or request.host
    named = f"[{host}]" if ":" in host else host
    address = named if request.port == _DEFAULT_PORTS.get(request.scheme) else f"{named}:{request.port}"
    return address, f"{request.scheme}://{address}"


def server_of(request: http.Request, listen: str = "") -> Server:
    """The server that a request is for; `listen` is where the client reached the proxy."""
    name, url = origin(request)
    return Server(name=name, listen=listen, upstream=url)


def http_version(message: http.Message) -> str:
    """`1.1` or `2.0`, as mitmproxy says it."""
    return message.http_version.rpartition("/")[2] or "1.1"


def raw_fields(headers: http.Headers) -> RawHeaders:
    """Header fields as they are."""
    return tuple((bytes(name), bytes(value)) for name, value in headers.fields)


def is_websocket(request: http.Request) -> bool:
    """Whether a request asks to become a WebSocket (RFC 6455, 4.1)."""
    return str(request.headers.get("upgrade", "")).lower() == "websocket"


def message_line(message: WebSocketMessage) -> bytes:
    """A message as one JSON line; `at_ns` is UTC since the epoch."""
    said = {"at_ns": round(message.timestamp * 1e9), "type": "text" if message.is_text else "binary"}
    try:
        content = {"text": message.content.decode()} if message.is_text else _binary(message.content)
    except UnicodeDecodeError:
        content = _binary(message.content)
    return orjson.dumps(said | content) + b"\n"


def _binary(content: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(content).decode()}
