"""HAR 1.2 (W3C draft of 2012-08-14), entry by entry, so that its length costs no memory.

Bodies are there whole, whatever their size, as text or base64. What HAR has no field for stands in `_gymtap`, as its
rules for custom fields ask; what is missing is said in `comment`. `_resourceType` and `_webSocketMessages` are
Chromium's, whose devtools show them.
"""

import base64
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from gymtap.proxy.core.recorded import Kept
from gymtap.schemas import Body, Exchange, Headers, State

_UNKNOWN = -1
_SWITCHING = 101
_TEXT_FRAME, _BINARY_FRAME = 1, 2


def har(chosen: Iterable[Kept], version: str) -> Iterator[bytes]:
    """The document, in pieces; `version` is this gymtap's."""
    yield b'{"log":{"version":"1.2","creator":' + orjson.dumps({"name": "gymtap", "version": version})
    yield b',"pages":[],"entries":['
    for number, kept in enumerate(chosen):
        yield (b",\n" if number else b"\n") + orjson.dumps(entry(kept))
    yield b"\n]}}\n"


def entry(kept: Kept) -> dict[str, Any]:
    """One exchange as an entry of a HAR."""
    exchange = kept.exchange
    began = datetime.fromtimestamp(exchange.started_ns / 1e9, tz=UTC)
    said: dict[str, Any] = {
        "startedDateTime": began.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "time": exchange.duration_ms if exchange.duration_ms is not None else 0,
        "request": _request(kept),
        "response": _response(kept),
        "cache": {},
        "timings": _timings(exchange),
        "_resourceType": "fetch",
        "_gymtap": _ours(kept),
    }
    messages = _messages(kept)
    if messages is not None:
        said |= {"_resourceType": "websocket", "_webSocketMessages": messages}
        said["request"].pop("postData", None)
        said["response"]["content"].pop("text", None)
    missing = _missing(exchange, kept)
    return said | ({"comment": missing} if missing else {})


def _messages(kept: Kept) -> list[dict[str, Any]] | None:
    """A WebSocket's messages by time, as Chromium writes them; None where it is no WebSocket."""
    asked, answer = kept.exchange.request, kept.exchange.response
    upgrades = any(name.lower() == "upgrade" and value.lower() == "websocket" for name, value in asked.headers)
    if not upgrades or answer is None or answer.status != _SWITCHING:
        return None
    try:
        sent, received = _lines("send", kept.request_body), _lines("receive", kept.response_body)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None  # of a body that is not whole: it stays one
    return sorted(sent + received, key=lambda message: message["time"])


def _lines(kind: str, body: bytes | None) -> list[dict[str, Any]]:
    """The messages of one side, of which the tap keeps a JSON line each."""
    said = [orjson.loads(line) for line in (body or b"").splitlines()]
    return [
        {"type": kind, "time": one["at_ns"] // 1000 / 1e6}
        | (
            {"opcode": _TEXT_FRAME, "data": one["text"]}
            if "text" in one
            else {"opcode": _BINARY_FRAME, "data": one["base64"]}
        )
        for one in said
    ]


def _request(kept: Kept) -> dict[str, Any]:
    asked = kept.exchange.request
    said: dict[str, Any] = {
        "method": asked.method,
        "url": url(kept),
        "httpVersion": f"HTTP/{asked.http_version}",
        "cookies": _cookies(asked.headers, "cookie"),
        "headers": _pairs(asked.headers),
        "queryString": [
            {"name": name, "value": value}
            for name, value in parse_qsl(asked.target.partition("?")[2], keep_blank_values=True)
        ],
        "headersSize": _UNKNOWN,
        "bodySize": asked.body.size_bytes if asked.body else 0,
    }
    if kept.request_body is not None:
        said["postData"] = {"mimeType": _mime(asked.headers)} | _text(kept.request_body, "_encoding")
    return said


def url(kept: Kept) -> str:
    """Where the request went: the server's upstream and the target; a server's name where no upstream is known."""
    base, target = kept.server.upstream if kept.server else "", kept.exchange.request.target
    if target.startswith(("http://", "https://")):
        return target
    return (base or f"http://{kept.exchange.server}").rstrip("/") + ("" if target.startswith("/") else "/") + target


def _response(kept: Kept) -> dict[str, Any]:
    """Status 0, with `_error`, is how browsers write that there was no answer."""
    exchange, answer = kept.exchange, kept.exchange.response
    headers = answer.headers if answer else ()
    said: dict[str, Any] = {
        "status": answer.status if answer else 0,
        "statusText": answer.reason if answer else "",
        "httpVersion": f"HTTP/{exchange.request.http_version}",
        "cookies": _cookies(headers, "set-cookie"),
        "headers": _pairs(headers),
        "content": _content(kept),
        "redirectURL": next((value for name, value in headers if name.lower() == "location"), ""),
        "headersSize": _UNKNOWN,
        "bodySize": answer.body.size_bytes if answer and answer.body else 0,
    }
    return said | ({"_error": f"{exchange.error.kind}: {exchange.error.message}"} if exchange.error else {})


def _content(kept: Kept) -> dict[str, Any]:
    """With its size also where the body was lost, so that nobody takes it for an empty one."""
    answer, body = kept.exchange.response, kept.response_body
    on_the_wire = answer.body.size_bytes if answer and answer.body else 0
    size = on_the_wire if body is None else len(body)
    said: dict[str, Any] = {"size": size, "mimeType": _mime(answer.headers if answer else ())}
    if answer and answer.body and answer.body.encoding:
        said["compression"] = size - on_the_wire
    return said | ({} if body is None else _text(body, "encoding"))


def _text(body: bytes, encoding: str) -> dict[str, str]:
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(body).decode(), encoding: "base64"}


def _pairs(headers: Headers) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]


def _mime(headers: Headers) -> str:
    return next((value for name, value in headers if name.lower() == "content-type"), "x-unknown")


def _cookies(headers: Headers, field: str) -> list[dict[str, str]]:
    """Names and values; a cookie that is none is left to the headers."""
    found: list[dict[str, str]] = []
    for name, value in headers:
        if name.lower() == field:
            try:
                jar = SimpleCookie(value)
            except CookieError:
                continue
            found += [{"name": key, "value": morsel.value} for key, morsel in jar.items()]
    return found


def _timings(exchange: Exchange) -> dict[str, float]:
    """How long sending, waiting and receiving took; an open exchange has waited for nothing yet."""
    total = exchange.duration_ms or 0.0
    sent = min(exchange.request_done_ms or 0.0, total)
    first = exchange.response.first_byte_ms if exchange.response else total
    waited = max(min(first, total) - sent, 0.0)
    said = {"blocked": -1.0, "dns": -1.0, "connect": -1.0, "ssl": -1.0}
    return said | {"send": sent, "wait": waited, "receive": max(total - sent - waited, 0.0)}


def _ours(kept: Kept) -> dict[str, Any]:
    exchange = kept.exchange
    row = exchange.attribution.row
    return {
        "id": exchange.id,
        "server": exchange.server,
        "kind": exchange.kind,
        "call": exchange.call,
        "boundary": exchange.boundary,
        "state": exchange.state,
        "started_ns": exchange.started_ns,
        "parent": exchange.parent,
        "attempt": exchange.attempt,
        "row": row.label if row else None,
        "attribution": exchange.attribution.model_dump(mode="json"),
        "error": exchange.error.model_dump(mode="json") if exchange.error else None,
    } | _unsaid(kept)


def _unsaid(kept: Kept) -> dict[str, str]:
    """The target and the upstream, where they are not those of the URL (a proxy's request, `*`, a fragment)."""
    target, upstream = kept.exchange.request.target, kept.server.upstream if kept.server else ""
    try:
        parts = urlsplit(url(kept))
    except ValueError:
        return {"target": target, "upstream": upstream}
    query = f"?{parts.query}" if parts.query else ""
    plain = (f"{parts.scheme}://{parts.netloc}", (parts.path or "/") + query) == (upstream, target)
    return {} if plain else {"target": target, "upstream": upstream}


def _missing(exchange: Exchange, kept: Kept) -> str:
    """What of the exchange is not in its entry, as people read it."""
    answer = exchange.response
    said = ["open when it was exported"] if exchange.state is State.OPEN else []
    said += _lost("request", exchange.request.body, kept.request_body)
    said += _lost("response", answer.body if answer else None, kept.response_body)
    return "; ".join(said)


def _lost(side: str, body: Body | None, content: bytes | None) -> list[str]:
    if body is None:
        return []
    if content is None and body.size_bytes:
        return [f"the {side} body ({body.size_bytes} bytes) was not kept"]
    return [f"{body.missing_bytes} bytes of the {side} body were not captured"] if body.missing_bytes else []
