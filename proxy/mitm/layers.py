"""mitmproxy's HTTP layers, without what they stumble over: interim responses, trailers of HTTP/1, resets of streams.

They take a 103 for the response, and wait for ever; a trailer ends the connection's handling; and a stream that the
server resets is called `reset by client`, or in HTTP/3 `closed by client` (12.3). mitmproxy has no seam for its layers,
so ours stand in for them while the engine runs.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import h11
from mitmproxy import http
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers import http as layers
from mitmproxy.proxy.layers.http import _events, _http1, _http2, _http3
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp

_RESET = re.compile("(?:reset|closed) by client")
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d\b.*?\r?\n\r?\n", re.DOTALL)


@contextmanager
def whole_layers() -> Iterator[None]:
    """Let mitmproxy use these layers, until the block ends."""
    theirs: Any = layers  # what it imports for itself is not exported
    ours = {"Http1Client": _Client, "Http1Server": _Server, "Http2Client": _Client2, "Http3Client": _Client3}
    before = {name: getattr(theirs, name) for name in ours}
    vars(theirs).update(ours)
    try:
        yield
    finally:
        vars(theirs).update(before)


class _Trailers(_http1.Http1Connection):
    """Reads trailers, and writes those that are to be sent."""

    _read: type[_events.RequestTrailers | _events.ResponseTrailers]
    _written: http.Headers | None = None

    def read_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        reader: Any = self.body_reader
        if not isinstance(reader, _Reader):
            self.body_reader = reader = _Reader(reader)  # type: ignore[assignment]  # it reads as they do
        for command in super().read_body(event):
            ended = isinstance(command, ReceiveHttp) and isinstance(command.event, self.ReceiveEndOfMessage)
            if ended and reader.trailers:
                assert self.stream_id is not None
                yield ReceiveHttp(self._read(self.stream_id, http.Headers(reader.trailers)))
            yield command

    def send(self, event: HttpEvent) -> layer.CommandGenerator[None]:
        if isinstance(event, _events.RequestTrailers | _events.ResponseTrailers):
            self._written = event.trailers
            return
        if isinstance(event, _events.RequestHeaders | _events.ResponseHeaders):
            self._written = None  # a message without chunks has no place for them
        for command in super().send(event):  # of the layer that this is mixed into
            if self._written and isinstance(command, commands.SendData) and command.data == b"0\r\n\r\n":
                command.data, self._written = b"0\r\n%s\r\n" % bytes(self._written), None
            yield command


class _Client(_Trailers, _http1.Http1Client):
    _read = _events.ResponseTrailers

    def read_headers(self, event: events.ConnectionEvent) -> layer.CommandGenerator[None]:
        """Pass interim responses on to the client, unrecorded."""
        while self.request is not None and _INTERIM.match(bytes(self.buf)):
            lines = self.buf.maybe_extract_lines() or []
            if not (self.request.is_http2 or self.request.is_http3):  # the client's, too, is HTTP/1 then
                yield commands.SendData(self.context.client, b"".join(b"%s\r\n" % line for line in [*lines, b""]))
        yield from super().read_headers(event)


class _Server(_Trailers, _http1.Http1Server):
    _read = _events.RequestTrailers


class _Client2(_http2.Http2Client):
    def handle_h2_event(self, event: Any) -> layer.CommandGenerator[bool]:
        """Say of whom a reset came."""
        return (yield from _said_of_the_server(super().handle_h2_event(event)))


class _Client3(_http3.Http3Client):
    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        """The same."""
        return (yield from _said_of_the_server(super()._handle_event(event)))


def _said_of_the_server[T](said: layer.CommandGenerator[T]) -> layer.CommandGenerator[T]:
    while True:
        try:
            command = next(said)
        except StopIteration as end:
            return cast("T", end.value)
        if isinstance(command, ReceiveHttp) and isinstance(command.event, _events.ResponseProtocolError):
            command.event.message = _RESET.sub("reset by server", command.event.message)
        yield command


class _Reader:
    """Keeps the trailers that a body ends with."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.trailers: list[tuple[bytes, bytes]] = []

    def __call__(self, buffer: Any) -> Any:
        return self._kept(self._reader(buffer))

    def read_eof(self) -> Any:
        return self._kept(self._reader.read_eof())

    def _kept(self, found: Any) -> Any:
        if isinstance(found, h11.EndOfMessage) and found.headers:
            self.trailers = [(bytes(name), bytes(value)) for name, value in found.headers.raw_items()]
            return h11.EndOfMessage()
        return found
