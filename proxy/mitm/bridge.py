"""One mitmproxy addon that puts what its flows do on the tape: the events of the first engine, as they happen.

Bodies are streamed through it, piece by piece; mitmproxy would otherwise hold each until it is whole, and an event
stream would stand still. One body is left to mitmproxy: of an HTTP/2 request without a length, where the upstream is
not known to speak HTTP/2, since HTTP/1.1 needs to know its length first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from mitmproxy import http, tcp, tls, udp

from gymtap.proxy.core.events import (
    Answered,
    Ended,
    Event,
    Opened,
    RequestData,
    RequestDone,
    ResponseData,
    Tape,
    Unparsed,
)
from gymtap.proxy.engine.boundary import CAUSALITY_HEADER
from gymtap.proxy.mitm.failures import transport_error
from gymtap.proxy.mitm.messages import http_version, is_websocket, message_line, raw_fields, server_of
from gymtap.schemas import Server, TransportError, TransportErrorKind

_STOPPED = TransportError(kind=TransportErrorKind.TAP_STOPPED, message="the tap stopped while this was open")
_ABNORMAL_CLOSURE = 1006  # RFC 6455, 7.4.1: no close frame came

type Heard = Callable[[http.HTTPFlow, int], None]
"""Told of each flow that was opened, with its number."""


@dataclass
class _Live:
    """A flow that is open."""

    number: int
    websocket: bool
    request_seen: bool = False  # a piece of it went over the tape
    response_seen: bool = False


class Bridge:
    """Feeds a tape. `said` is told, once for each name, of clients that refuse our certificate.

    `keep_messages`: leave a WebSocket's messages with mitmproxy too, for its own screens. `streams` False lets
    mitmproxy hold bodies until they are whole, for whoever edits them there.
    """

    def __init__(
        self,
        tape: Tape,
        next_number: Callable[[], int],
        *,
        said: Callable[[str], None] | None = None,
        heard: Heard | None = None,
        keep_messages: bool = False,
    ) -> None:
        self._tape = tape
        self._next_number = next_number
        self._servers: dict[tuple[str, str], Server] = {}
        self._said = said
        self._heard = heard
        self._keep_messages = keep_messages
        self.streams = True
        self._live: dict[str, _Live] = {}
        self._refusals: set[str] = set()
        self._closed = False

    def close(self) -> None:
        """End what is open; what comes later is not recorded."""
        for live in self._live.values():
            self._put(Ended(live.number, time.monotonic_ns(), _STOPPED))
        self._live.clear()
        self._closed = True

    # HTTP, in the order in which mitmproxy calls

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """A request's head arrived."""
        live = self._live[flow.id] = self._open(flow, flow.request.path)
        if self._heard is not None:
            self._heard(flow, live.number)
        if self.streams and _can_stream(flow):
            flow.request.stream = self._through(live, request=True)

    def request(self, flow: http.HTTPFlow) -> None:
        """A request is whole; that of a WebSocket goes on with what its client sends."""
        live = self._live.get(flow.id)
        if live is None:
            return
        if flow.request.raw_content and not live.request_seen:
            self._put(RequestData(live.number, flow.request.raw_content))
        if not live.websocket:
            self._put(RequestDone(live.number, time.monotonic_ns()))

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """A response's head arrived."""
        live, answer = self._live.get(flow.id), flow.response
        if live is None or answer is None:
            return
        if live.websocket and answer.status_code != 101:
            live.websocket = False
            self._put(RequestDone(live.number, time.monotonic_ns()))
        self._put(self._answered(live, answer))
        if self.streams and answer.status_code != 101:
            answer.stream = self._through(live, request=False)

    def response(self, flow: http.HTTPFlow) -> None:
        """A response is whole, unless it begins a WebSocket."""
        live, answer = self._live.get(flow.id), flow.response
        if live is None or answer is None:
            return
        if answer.raw_content and not live.response_seen:
            self._put(ResponseData(live.number, answer.raw_content))
        if not (live.websocket and answer.status_code == 101):
            self._end(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        """Something broke it."""
        if flow.error is not None and flow.id in self._live:
            self._end(flow, transport_error(flow.error.msg, answered=flow.response is not None))

    def http_connect_error(self, flow: http.HTTPFlow) -> None:
        """A client asked for a server that could not be reached: there is no other exchange that would say so."""
        live = self._live[flow.id] = self._open(flow, f"{flow.request.host}:{flow.request.port}")
        self._put(RequestDone(live.number, time.monotonic_ns()))
        reason = flow.server_conn.error or (flow.response.text if flow.response else None) or "refused by the proxy"
        self._end(flow, transport_error(reason, answered=False))

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """A message passed, either way."""
        live = self._live.get(flow.id)
        if live is None or flow.websocket is None:
            return
        message = flow.websocket.messages[-1]
        kind = RequestData if message.from_client else ResponseData
        self._put(kind(live.number, message_line(message)))
        if not self._keep_messages:
            flow.websocket.messages.clear()

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """A WebSocket was closed."""
        live = self._live.get(flow.id)
        if live is None or flow.websocket is None:
            return
        self._put(RequestDone(live.number, time.monotonic_ns()))
        gone = flow.websocket.close_code == _ABNORMAL_CLOSURE
        by_client = TransportErrorKind.CLIENT_GONE if flow.websocket.closed_by_client else TransportErrorKind.CLOSED
        lost = TransportError(kind=by_client, message="the WebSocket ended without a close frame")
        self._end(flow, lost if gone else None)

    # What is no exchange

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """A client refused our certificate, as one does that does not trust the CA; or broke off."""
        name = data.context.client.sni or _address(data.context.server.address)
        reason = " ".join((data.conn.error or "it broke off").split())
        server = Server(name=name, listen=_listen(data.context.client.sockname), upstream=f"https://{name}")
        self._put(Unparsed(server, time.time_ns(), f"a client refused the proxy's certificate: {reason}"))
        if self._said is not None and name not in self._refusals:
            self._refusals.add(name)
            self._said(f"a client of {name} refused the certificate, so nothing of it is captured: {reason}")

    def tcp_start(self, flow: tcp.TCPFlow) -> None:
        """Bytes that are not HTTP."""
        self._unparsed(flow, "TCP that is not HTTP")

    def udp_start(self, flow: udp.UDPFlow) -> None:
        """The same over UDP."""
        self._unparsed(flow, "UDP that is not HTTP")

    # Inside

    def _put(self, event: Event) -> None:
        if not self._closed:
            self._tape.put(event)

    def _open(self, flow: http.HTTPFlow, target: str) -> _Live:
        request, peer = flow.request, flow.client_conn.peername
        parent = request.headers.pop(CAUSALITY_HEADER, None)
        live = _Live(self._next_number(), is_websocket(request))
        self._put(
            Opened(
                live.number,
                self._server(flow),
                time.time_ns(),
                time.monotonic_ns(),
                _address(peer) if peer else "",
                request.method,
                target,
                http_version(request),
                raw_fields(request.headers),
                parent,
            )
        )
        return live

    def _server(self, flow: http.HTTPFlow) -> Server:
        """Made once for each: the recorder knows it by being the same."""
        found = server_of(flow.request, _listen(flow.client_conn.sockname))
        return self._servers.setdefault((found.name, found.upstream), found)

    def _through(self, live: _Live, *, request: bool) -> Callable[[bytes], bytes]:
        kind = RequestData if request else ResponseData

        def piece(data: bytes) -> bytes:
            if data:
                live.request_seen, live.response_seen = live.request_seen or request, live.response_seen or not request
                self._put(kind(live.number, data))
            return data

        return piece

    def _answered(self, live: _Live, answer: http.Response) -> Event:
        fields = raw_fields(answer.headers)
        return Answered(live.number, time.monotonic_ns(), answer.status_code, answer.reason or "", fields)

    def _end(self, flow: http.HTTPFlow, error: TransportError | None = None) -> None:
        self._put(Ended(self._live.pop(flow.id).number, time.monotonic_ns(), error))

    def _unparsed(self, flow: tcp.TCPFlow | udp.UDPFlow, what: str) -> None:
        name = _address(flow.server_conn.address)
        server = Server(name=name, listen=_listen(flow.client_conn.sockname), upstream="")
        self._put(Unparsed(server, time.time_ns(), what))


def _can_stream(flow: http.HTTPFlow) -> bool:
    """Whether a request can go on before it is whole: its length is known, or its upstream need not know it."""
    headers = flow.request.headers
    framed = "content-length" in headers or "transfer-encoding" in headers
    return framed or not flow.request.is_http2 or flow.server_conn.alpn == b"h2"


def _listen(address: tuple[str, int] | None) -> str:
    return f"http://{_address(address)}" if address else ""


def _address(address: tuple[str, int] | None) -> str:
    return f"{address[0]}:{address[1]}" if address else "an unknown server"
