"""One mitmproxy addon that puts what its flows do on the tape: the events of the first engine, as they happen.

Bodies are streamed through it, piece by piece; mitmproxy would otherwise hold each until it is whole, and an event
stream would stand still. One body is left to mitmproxy: of an HTTP/2 request without a length, where the upstream is
not known to speak HTTP/2, since HTTP/1.1 needs to know its length first.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mitmproxy import http, tcp, tls, udp
from mitmproxy.proxy import mode_specs
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

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
from gymtap.proxy.engine.paths import Ends, Paths, circle
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
    client: str  # the id of its connection
    answered: bool = False
    request_seen: bool = False  # a piece of it went over the tape
    response_seen: bool = False


class Bridge:
    """Feeds a tape. `said` is told, once for each name, of clients that refuse our certificate.

    `keep_messages`: leave a WebSocket's messages with mitmproxy too, for its own screens. `streams` False lets
    mitmproxy hold bodies until they are whole, for whoever edits them there. `ca` is named to clients that refuse it.
    `faithful`: where a client believes to speak to the server itself, what broke there breaks here too, and is not
    mitmproxy's 502.
    """

    def __init__(
        self,
        tape: Tape,
        next_number: Callable[[], int],
        *,
        said: Callable[[str], None] | None = None,
        heard: Heard | None = None,
        keep_messages: bool = False,
        ca: Path | None = None,
        paths: Paths | None = None,
        faithful: bool = False,
    ) -> None:
        self._tape = tape
        self._next_number = next_number
        self._servers: dict[tuple[str, str], Server] = {}
        self._said = said
        self._heard = heard
        self._keep_messages = keep_messages
        self._faithful = faithful
        self._paths = paths or Paths()
        self._connecting: dict[str, tuple[int, asyncio.Future[None]]] = {}  # to which port
        self.ca = ca
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
        if self.streams and flow.response is None and _can_stream(flow):
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
        self._answered(live, answer)
        if self.streams and answer.status_code != 101:
            answer.stream = self._through(live, request=False)

    def response(self, flow: http.HTTPFlow) -> None:
        """A response is whole, unless it begins a WebSocket."""
        live, answer = self._live.get(flow.id), flow.response
        if live is None or answer is None:
            return
        if not live.answered:  # the answer is an addon's, not the server's
            self._answered(live, answer)
        if answer.raw_content and not live.response_seen:
            self._put(ResponseData(live.number, answer.raw_content))
        if not (live.websocket and answer.status_code == 101):
            self._end(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        """Something broke it."""
        if flow.error is None or flow.id not in self._live:
            return
        answered = self._live[flow.id].answered
        broken = transport_error(flow.error.msg, answered=flow.response is not None)
        self._end(flow, broken)
        ours = broken.kind in {TransportErrorKind.TLS, TransportErrorKind.CLIENT_GONE}
        if self._faithful and not answered and not ours and flow.killable and _is_unaware(flow):
            flow.kill()  # type: ignore[no-untyped-call]  # mitmproxy is annotated in parts

    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Refuse what came here from ourselves, by way of this very listener; who it came from may not be known yet."""
        came_to = data.client.sockname
        port = came_to[1] if came_to else None
        while coming := [known for to_port, known in self._connecting.values() if to_port == port]:
            await asyncio.wait(coming)
        if _listen(came_to) in self._paths.through(_came_by(data)):
            data.server.error = circle(_listen(came_to))
        elif data.server.address is not None:
            self._connecting[data.server.id] = data.server.address[1], asyncio.get_running_loop().create_future()

    def server_connected(self, data: ServerConnectionHookData) -> None:
        """A connection of our own stands."""
        passed = self._paths.through(_came_by(data))
        self._paths.opened((data.server.sockname, data.server.peername), passed | {_listen(data.client.sockname)})
        self._known(data)

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        """It stands no more."""
        self._paths.closed((data.server.sockname, data.server.peername))

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        """A server could not be reached before there was a request, as in modes in which the client names none."""
        self._known(data)
        client, address = data.client, data.server.address
        asked = isinstance(client.proxy_mode, mode_specs.RegularMode | mode_specs.UpstreamMode)
        if asked or address is None or any(live.client == client.id for live in self._live.values()):
            return  # its request says so
        name = _address(address)
        server = Server(name=name, listen=_listen(client.sockname), upstream=f"http://{name}")
        server = self._servers.setdefault((server.name, server.upstream), server)
        number, now = self._next_number(), time.monotonic_ns()
        self._put(
            Opened(number, server, time.time_ns(), now, _address(client.peername), "CONNECT", name, "1.1", ()),
        )
        self._put(RequestDone(number, now))
        self._put(Ended(number, now, transport_error(data.server.error or "", answered=False)))

    def http_connect_error(self, flow: http.HTTPFlow) -> None:
        """A client asked for a server that it could not have: there is no other exchange that would say so."""
        live = self._live[flow.id] = self._open(flow, f"{flow.request.host}:{flow.request.port}")
        self._put(RequestDone(live.number, time.monotonic_ns()))
        if flow.response is not None and flow.server_conn.error is None:  # it may not ask: that is an answer
            self._answered(live, flow.response)
            self._end(flow)
            return
        self._end(flow, transport_error(flow.server_conn.error or "refused by the proxy", answered=False))

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
        trust = f"; it has to trust {self.ca}, see docs/mitmproxy.md" if self.ca else ""
        self._put(Unparsed(server, time.time_ns(), f"a client refused the proxy's certificate: {reason}{trust}"))
        if self._said is not None and name not in self._refusals:
            self._refusals.add(name)
            self._said(f"a client of {name} refused the certificate, so nothing of it is captured: {reason}{trust}")

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

    def _known(self, data: ServerConnectionHookData) -> None:
        _, known = self._connecting.pop(data.server.id, (0, None))
        if known is not None:
            known.set_result(None)

    def _open(self, flow: http.HTTPFlow, target: str) -> _Live:
        request, peer = flow.request, flow.client_conn.peername
        parent = request.headers.pop(CAUSALITY_HEADER, None)
        live = _Live(self._next_number(), is_websocket(request), flow.client_conn.id)
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

    def _answered(self, live: _Live, answer: http.Response) -> None:
        fields = raw_fields(answer.headers)
        live.answered = True
        self._put(Answered(live.number, time.monotonic_ns(), answer.status_code, answer.reason or "", fields))

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


def _is_unaware(flow: http.HTTPFlow) -> bool:
    """Whether the client takes us for the server: it does, unless it asked a proxy for a URL that is not TLS."""
    aware = isinstance(flow.client_conn.proxy_mode, mode_specs.RegularMode | mode_specs.UpstreamMode)
    return not aware or flow.request.scheme == "https"


def _came_by(data: ServerConnectionHookData) -> Ends:
    """The client's connection, as the client sees it: where it was redirected, it called the server."""
    redirected = isinstance(data.client.proxy_mode, mode_specs.TransparentMode | mode_specs.LocalMode)
    return data.client.peername, data.server.address if redirected else data.client.sockname


def _listen(address: tuple[str, int] | None) -> str:
    return f"http://{_address(address)}" if address else ""


def _address(address: tuple[str, int] | None) -> str:
    return f"{address[0]}:{address[1]}" if address else "an unknown server"
