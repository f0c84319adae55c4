"""HAR 1.2, as browsers, mitmproxy and we ourselves write it: each entry becomes an exchange, seen anew by the addons.

The servers are the origins of the URLs, unless an entry of our own names one. Bodies are there decoded, whatever their
headers say. A WebSocket's messages become its bodies, as when a tap records one.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import orjson
from pydantic import AwareDatetime, Field

from gymtap.proxy.core.events import RawHeaders
from gymtap.proxy.core.recorded import Foreign, LeftOut, Recording
from gymtap.proxy.imports.fields import (
    MS_NS,
    SECOND_NS,
    Fields,
    Milliseconds,
    Seconds,
    Status,
    Text,
    checked,
    elements,
    not_whole,
    raw_headers,
    refuse,
)
from gymtap.proxy.imports.json_stream import Scanner, StreamError
from gymtap.proxy.imports.transport import transport_error
from gymtap.schemas import Server, ServerKind, TransportError

_TEXT_FRAME = 1
_EPOCH, _LAST_YEAR = 1970, 2262
"""What nanoseconds in 64 bits can say."""


class _Pair(Fields):
    name: str
    value: str = ""


class _PostData(Fields):
    text: str | None = None
    encoding: str | None = Field(default=None, alias="_encoding")


class _Request(Fields):
    method: Text
    url: Text
    version: Text = Field(default="HTTP/1.1", alias="httpVersion")
    headers: tuple[_Pair, ...] = ()
    body: _PostData | None = Field(default=None, alias="postData")
    size: int = Field(default=0, alias="bodySize")

    @property
    def lacks(self) -> int:
        """How many bytes of its body the file does not have; HAR's -1 is an unknown size."""
        return self.size if self.body is None else 0


class _Content(Fields):
    size: int = 0
    text: str | None = None
    encoding: str | None = None

    @property
    def lacks(self) -> int:
        """The same."""
        return self.size if self.text is None else 0


class _Response(Fields):
    status: Status = 0
    reason: Text = Field(default="", alias="statusText")
    headers: tuple[_Pair, ...] = ()
    content: _Content | None = None
    error: str | None = Field(default=None, alias="_error")


class _Timings(Fields):
    blocked: Milliseconds | None = None
    dns: Milliseconds | None = None
    connect: Milliseconds | None = None
    send: Milliseconds | None = None
    wait: Milliseconds | None = None


class _Ours(Fields):
    id: str | None = None
    server: Text | None = None
    kind: ServerKind = ServerKind.UNKNOWN
    parent: str | None = None
    started_ns: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    error: TransportError | None = None
    target: Text | None = None
    upstream: Text | None = None


class _Message(Fields):
    """A WebSocket's, as Chromium writes it: `time` in seconds since the epoch, binary data in base64."""

    type: str
    time: Seconds
    opcode: int = 1
    data: Text = ""

    def line(self) -> bytes:
        """As a tap keeps it, in the body of the side that sent it."""
        kind = ("text", "text") if self.opcode == _TEXT_FRAME else ("binary", "base64")
        return orjson.dumps({"at_ns": round(self.time * 1e6) * 1000, "type": kind[0], kind[1]: self.data}) + b"\n"


class _Entry(Fields):
    started: AwareDatetime = Field(alias="startedDateTime")
    time: Milliseconds | None = None
    request: _Request
    response: _Response
    timings: _Timings | None = None
    ours: _Ours | None = Field(default=None, alias="_gymtap")
    messages: tuple[_Message, ...] = Field(default=(), alias="_webSocketMessages")


def read_har(file: Path) -> Iterator[Recording]:
    """The file as one recording."""
    yield Recording(file, _items(file))


def _items(file: Path) -> Iterator[Foreign | LeftOut]:
    with file.open("rb") as content:
        scanner = Scanner(content)
        try:
            found = scanner.find("log") and scanner.peek() == b"{" and scanner.find("entries")
        except StreamError as error:
            yield LeftOut(not_whole(file, error), count=None)
            return
        if not found or scanner.peek() not in {b"[", b""}:
            yield LeftOut(f"{file}: not a HAR: no list of `entries` in its `log`")
            return
        for items in elements(scanner, file, "log.entries", _exchange):
            yield from items if isinstance(items, tuple) else (items,)


def _exchange(value: Any, place: str) -> tuple[Foreign | LeftOut, ...]:
    """The exchange, and what the entry says of bodies that it does not have."""
    entry = checked(_Entry, value, place)
    lacking = {
        "request": entry.request.lacks,
        "response": entry.response.content.lacks if entry.response.content else 0,
    }
    lost = [
        LeftOut(f"{place}: its {side} body ({size:,} bytes) is not in the file", count=0)
        for side, size in lacking.items()
        if size > 0 and not entry.messages
    ]
    return _recorded(entry, place), *lost


def _recorded(entry: _Entry, place: str) -> Foreign:
    ours = entry.ours or _Ours()
    server, target = _place(ours, entry.request.url, place)
    started_ns = ours.started_ns if ours.started_ns is not None else _ns(entry.started, place)
    sent_ms, first_ms = _moments(entry.timings)
    answered = entry.response.status > 0
    return Foreign(
        server=server,
        method=entry.request.method,
        target=target,
        started_ns=started_ns,
        http_version=_version(entry.request.version),
        request_headers=_headers(entry.request.headers),
        request_body=_said(entry, "send") or _body(entry.request.body, place),
        request_done_ns=_after(started_ns, sent_ms),
        status=entry.response.status if answered else None,
        reason=entry.response.reason if answered else "",
        response_headers=_headers(entry.response.headers),
        response_body=_said(entry, "receive") or _body(entry.response.content, place),
        first_byte_ns=_after(started_ns, first_ms),
        ended_ns=_after(started_ns, entry.time if entry.time is not None and entry.time >= 0 else first_ms or 0.0),
        error=ours.error or transport_error(entry.response.error),
        key=ours.id,
        parent=ours.parent,
    )


def _version(said: str) -> str:
    """`HTTP/1.1`, or a browser's own words: `h2`."""
    number = said.rpartition("/")[2].lower().removeprefix("h")
    return {"": "1.1", "2": "2.0"}.get(number, number)


def _headers(pairs: Iterable[_Pair]) -> RawHeaders:
    """Without HTTP/2's pseudo fields (`:path`), which the URL and the status say."""
    return raw_headers((pair.name, pair.value) for pair in pairs if not pair.name.startswith(":"))


def _said(entry: _Entry, kind: str) -> bytes:
    return b"".join(message.line() for message in entry.messages if message.type == kind)


def _place(ours: _Ours, url: str, place: str) -> tuple[Server, str]:
    """Who was asked, and for what: as the URL says, unless it could not."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        if ours.target is None:
            raise refuse(place, f"request.url: {error}") from None
        parts = urlsplit("")
    origin = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    server = Server(
        name=ours.server or parts.netloc or "unknown",
        kind=ours.kind,
        listen="",
        upstream=origin if ours.upstream is None else ours.upstream,
    )
    return server, target if ours.target is None else ours.target


def _ns(moment: datetime, place: str) -> int:
    if not _EPOCH <= moment.year < _LAST_YEAR:
        raise refuse(place, f"startedDateTime: {moment.year} is no year of a recording")
    return int(moment.timestamp()) * SECOND_NS + moment.microsecond * 1000


def _after(started_ns: int, ms: float | None) -> int | None:
    return None if ms is None else started_ns + round(ms * MS_NS)


def _moments(timings: _Timings | None) -> tuple[float | None, float | None]:
    """When the request was sent, and when the response began; -1 in a HAR is not known."""
    if timings is None or timings.send is None or timings.wait is None:
        return None, None
    before = sum(max(part or 0.0, 0.0) for part in (timings.blocked, timings.dns, timings.connect))
    sent = before + max(timings.send, 0.0)
    return sent, sent + max(timings.wait, 0.0)


def _body(content: _PostData | _Content | None, place: str) -> bytes:
    if content is None or content.text is None:
        return b""
    if content.encoding != "base64":
        return content.text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(content.text, validate=True)
    except binascii.Error as error:
        raise refuse(place, f"a body is not base64: {error}") from None
