"""mitmproxy's flow files (`.mitm`), both ways.

What a flow can hold stands in the flow itself, so that mitmproxy shows and edits it; what it cannot hold (the row,
the call tree, nanoseconds, what was redacted) travels in the flow's metadata. A flow that has none is a stranger's, and
is seen anew.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import orjson
from mitmproxy import flow, http
from mitmproxy.connection import Client
from mitmproxy.connection import Server as Upstream
from mitmproxy.io import FlowReader, FlowWriter
from mitmproxy.net import encoding
from pydantic import ValidationError

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Foreign, Kept, LeftOut, Recording
from gymtap.proxy.mitm.failures import transport_error
from gymtap.proxy.mitm.messages import http_version, is_websocket, message_line, raw_fields, server_of
from gymtap.schemas import Exchange, Finding, Headers, Server

METADATA = "gymtap"
_PORTS = {"http": 80, "https": 443}


# --- out -------------------------------------------------------------------------------------------------------


class FlowFile:
    """Writes exchanges as flows, one after another."""

    def __init__(self, out: BinaryIO) -> None:
        self._writer = FlowWriter(out)  # type: ignore[no-untyped-call]  # it is not annotated

    def add(self, kept: Kept, comment: str = "", *, marked: bool = False) -> None:
        """Write one; `comment` is what mitmproxy shows beside it."""
        made = to_flow(kept, comment, marked=marked)
        self._writer.add(made)
        _let_go(made)


def to_flow(kept: Kept, comment: str = "", *, marked: bool = False) -> http.HTTPFlow:
    """The flow of an exchange. A recorded body goes back into the content coding that its headers name."""
    exchange = kept.exchange
    place = urlsplit(kept.server.upstream if kept.server else "")
    scheme = place.scheme or "http"
    host, port = place.hostname or exchange.server, place.port or _PORTS.get(scheme, 80)
    began = exchange.started_ns / 1e9
    client = Client(peername=("", 0), sockname=("", 0), timestamp_start=began)
    made = http.HTTPFlow(client, Upstream(address=(host, port)), live=False)
    made.request = _request(kept, scheme, host, port)
    made.response = _response(kept)
    if exchange.error is not None:
        made.error = flow.Error(exchange.error.message, began + (exchange.duration_ms or 0.0) / 1e3)
    made.timestamp_created = began
    made.comment = comment
    made.marked = ":red_circle:" if marked else ""
    made.metadata[METADATA] = _beyond(kept)
    return made


def _request(kept: Kept, scheme: str, host: str, port: int) -> http.Request:
    asked, began = kept.exchange.request, kept.exchange.started_ns / 1e9
    return http.Request(
        host=host,
        port=port,
        method=asked.method.encode("utf-8", "surrogateescape"),
        scheme=scheme.encode(),
        authority=b"",
        path=asked.target.encode("utf-8", "surrogateescape"),
        http_version=f"HTTP/{asked.http_version}".encode(),
        headers=http.Headers(_fields(asked.headers)),
        content=_coded(kept.request_body, asked.body.encoding if asked.body else None),
        trailers=None,
        timestamp_start=began,
        timestamp_end=began + (kept.exchange.request_done_ms or 0.0) / 1e3,
    )


def _response(kept: Kept) -> http.Response | None:
    answer, began = kept.exchange.response, kept.exchange.started_ns / 1e9
    if answer is None:
        return None
    ended_ms = answer.ended_ms if answer.ended_ms is not None else kept.exchange.duration_ms
    return http.Response(
        http_version=f"HTTP/{kept.exchange.request.http_version}".encode(),
        status_code=answer.status,
        reason=answer.reason.encode("latin-1", "replace"),
        headers=http.Headers(_fields(answer.headers)),
        content=_coded(kept.response_body, answer.body.encoding if answer.body else None),
        trailers=None,
        timestamp_start=began + answer.first_byte_ms / 1e3,
        timestamp_end=None if ended_ms is None else began + ended_ms / 1e3,
    )


def _fields(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    return ((name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in headers)


def _coded(body: bytes | None, codings: str | None) -> bytes:
    """The body as its headers say that it is; what cannot be put so stays as it is."""
    for coding in (codings or "").split(","):
        if coding.strip() and body:
            try:
                body = encoding.encode(body, coding.strip().lower())
            except ValueError:
                return body or b""
    return body or b""


def _beyond(kept: Kept) -> str:
    """What a flow cannot hold, as JSON: headers and bodies stand in the flow."""
    exchange = kept.exchange.model_dump(mode="json")
    exchange["request"]["headers"] = []
    if exchange["response"] is not None:
        exchange["response"]["headers"] = []
    said = {
        "exchange": exchange,
        "server": kept.server.model_dump(mode="json") if kept.server else None,
        "bodies": [kept.request_body is not None, kept.response_body is not None],
        "findings": [finding.model_dump(mode="json") for finding in kept.findings],
    }
    return orjson.dumps(said).decode()


# --- in --------------------------------------------------------------------------------------------------------


def read_flow_file(file: Path) -> Iterator[Recording]:
    """The file as one recording; the flows that can be read, if it is damaged."""
    yield Recording(file, _items(file))


def _items(file: Path) -> Iterator[Foreign | Kept | LeftOut]:
    others = trailers = 0
    for number, found in enumerate(_flows(file), 1):
        if isinstance(found, LeftOut):
            yield found
        elif isinstance(found, http.HTTPFlow):
            trailers += bool(found.request.trailers or (found.response and found.response.trailers))
            yield _item(found, f"{file}: flow {number}")
            _let_go(found)
        else:
            others += 1
    if others:
        yield LeftOut(f"{file}: {others} flows that are not HTTP (TCP, UDP, DNS)", count=0)
    if trailers:
        yield LeftOut(f"{file}: the trailers of {trailers} flows", count=0)


def _flows(file: Path) -> Iterator[flow.Flow | LeftOut]:
    """All flows; where the file stops being one, how far that is."""
    at, number = 0, 1
    with file.open("rb") as content:
        try:
            for found in FlowReader(content).stream():
                yield found
                at, number = content.tell(), number + 1
        except Exception as error:  # noqa: BLE001 - what damaged flows make mitmproxy raise is not documented
            reason = " ".join(str(error).split()) or type(error).__name__
            place = f"{file}: flow {number}, from byte {at:,} of {file.stat().st_size:,}"
            yield LeftOut(f"{place}: {reason}", "it may have been cut off there", count=None)


def _let_go(found: http.HTTPFlow) -> None:
    """Free its bodies: a flow refers to itself, and so would keep them until cycles are looked for."""
    found.request.raw_content = None
    if found.response is not None:
        found.response.raw_content = None


def _item(found: http.HTTPFlow, place: str) -> Foreign | Kept | LeftOut:
    beyond = found.metadata.get(METADATA)
    if not isinstance(beyond, str):
        return from_flow(found)
    try:
        return from_own(found, beyond, place)
    except UsageError as error:
        return LeftOut(str(error), error.hint)


def from_own(found: http.HTTPFlow, beyond: str, place: str) -> Kept:
    """An exchange of ours that went through a flow, with whatever was edited there. Raises UsageError."""
    try:
        said: dict[str, Any] = orjson.loads(beyond)
        exchange = Exchange.model_validate(said["exchange"])
        server = Server.model_validate(said["server"]) if said["server"] else None
        findings = tuple(Finding.model_validate(finding) for finding in said["findings"])
        had_request, had_response = said["bodies"]
    except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{place}: its gymtap metadata cannot be read: {type(error).__name__}") from None
    asked, answer = exchange.request, exchange.response
    request = asked.model_copy(
        update={
            "method": found.request.method,
            "target": found.request.path,
            "headers": _headers(found.request.headers),
        }
    )
    if answer is not None and found.response is not None:
        seen = {"status": found.response.status_code, "headers": _headers(found.response.headers)}
        answer = answer.model_copy(update=seen)
    return Kept(
        exchange=exchange.model_copy(update={"request": request, "response": answer}),
        server=server,
        request_body=_plain(found.request, asked.body.encoding if asked.body else None) if had_request else None,
        response_body=_plain(found.response, answer.body.encoding if answer and answer.body else None)
        if had_response
        else None,
        findings=findings,
    )


def _headers(headers: http.Headers) -> Headers:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.fields)


def _plain(message: http.Message | None, codings: str | None) -> bytes:
    body = (message.raw_content if message else None) or b""
    for coding in reversed((codings or "").split(",")):
        if coding.strip() and body:
            try:
                decoded = encoding.decode(body, coding.strip().lower())
            except ValueError:
                return body
            body = decoded.encode() if isinstance(decoded, str) else decoded
    return body


def from_flow(found: http.HTTPFlow) -> Foreign:
    """A stranger's flow, its bodies as they crossed the wire."""
    request, answer = found.request, found.response
    ended = (answer.timestamp_end if answer else None) or (found.error.timestamp if found.error else None)
    sent, received = _bodies(found)
    peer = found.client_conn.peername
    return Foreign(
        server=server_of(request),
        method=request.method,
        target=request.path,
        started_ns=_ns(request.timestamp_start) or 0,
        http_version=http_version(request),
        request_headers=raw_fields(request.headers),
        request_body=sent,
        request_done_ns=_ns(request.timestamp_end),
        status=answer.status_code if answer else None,
        reason=answer.reason if answer else "",
        response_headers=raw_fields(answer.headers) if answer else (),
        response_body=received,
        first_byte_ns=_ns(answer.timestamp_start) if answer else None,
        ended_ns=_ns(found.websocket.timestamp_end if found.websocket else ended),
        error=transport_error(found.error.msg, answered=answer is not None) if found.error else None,
        client=f"{peer[0]}:{peer[1]}" if peer else "",
        coded=found.websocket is None,
    )


def _bodies(found: http.HTTPFlow) -> tuple[bytes, bytes]:
    if found.websocket is not None and is_websocket(found.request):
        lines = [(message.from_client, message_line(message)) for message in found.websocket.messages]
        return b"".join(line for ours, line in lines if ours), b"".join(line for ours, line in lines if not ours)
    return found.request.raw_content or b"", (found.response.raw_content if found.response else None) or b""


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)
