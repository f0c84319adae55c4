r"""One client connection paired with one upstream connection, and what passes between them.

The non-obvious decision: there is no pool. The client's own keep-alive decides what is reused, so whatever
happens to one side can be done to the other, as it would have happened without a tap: a FIN becomes a FIN,
a reset a reset, and nothing is ever retried, answered or timed out here. What cannot be read as HTTP/1.1 is
relayed as it is from there on, and a gap says so.

    request head -> connect upstream (once) -> relay -> response head -> relay -> next head
                          \ 101, CONNECT, or bytes that are not HTTP/1.1: relay blindly both ways

A client that ends its side is taken for gone, as uvicorn, aiohttp, Node and Go's servers take it; where bytes pass
blindly each side ends alone. An upstream that ends its side is gone too, unless it still reads: a server that refuses
a request before the end of it lingers, so that its answer is not lost to a reset.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from gymtap.proxy.core.events import (
    Answered,
    Ended,
    Event,
    Opened,
    RequestData,
    RequestDone,
    ResponseData,
    Unparsed,
)
from gymtap.proxy.core.http1 import (
    Body,
    MalformedError,
    RawHeaders,
    RequestHead,
    ResponseHead,
    UntilCloseBody,
    check_start,
    head_end,
    relay_head,
    request_body,
    response_body,
    without_header,
)
from gymtap.proxy.engine.boundary import CAUSALITY_HEADER, Boundary, Causality
from gymtap.proxy.engine.failures import connect_error, lost_error
from gymtap.proxy.engine.paths import Ends, circle
from gymtap.schemas import TransportError, TransportErrorKind

_CAUSALITY = CAUSALITY_HEADER.encode()

HOLD_BYTES = 256 * 2**10
"""How much is held for a side that cannot take it yet, before the other side is read no further."""
_NO_TIME_OUT_S = 7 * 24 * 3600.0
"""asyncio insists on a limit for TLS handshakes; this one is nobody's."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class _Exchange:
    number: int
    method: str
    request_done: bool = False
    response_done: bool = False


class Link(asyncio.Protocol):
    """The client's side of a pair, and its state. `UpstreamSide` is the other side's ear.

    `spare` is a descriptor that keeps a place for the upstream's connection.
    """

    def __init__(self, boundary: Boundary, spare: int) -> None:
        self._boundary = boundary
        self._spare: int | None = spare
        self._put: Callable[[Event], None] = boundary.tape.put
        self._exchange: _Exchange | None = None
        self._tunnel = False
        self._over = False
        self._client_ended = False
        self._upstream_ended = False
        # From the client to the upstream.
        self._inbox = b""
        self._inbox_seen = 0
        self._request_body: Body | None = None
        self._upstream: asyncio.Transport | None = None
        self._upstream_ends: Ends = (None, None)
        self._connecting: asyncio.Task[None] | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._upstream_full = False
        self._client_held = False
        # From the upstream to the client.
        self._answer = b""
        self._answer_seen = 0
        self._response_body: Body | None = None
        self._surplus_told = False

    # The client's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start listening to the client; the upstream is called when it asks for something."""
        self._client = cast("asyncio.Transport", transport)
        self._client.set_write_buffer_limits(high=HOLD_BYTES)
        self._client_address = _address(self._client)
        self._boundary.links.add(self)
        if self._boundary.closed:
            self.stop()  # accepted just before the port was closed

    def data_received(self, data: bytes) -> None:
        """Relay what can be relayed now."""
        if self._over:
            return
        if self._tunnel:
            self._to_upstream(data)
            self._steer()
        else:
            self._inbox = self._inbox + data if self._inbox else data
            self._pump()

    def eof_received(self) -> bool:
        """Take the client for gone; in a tunnel, end this direction alone. True keeps the other one open."""
        if not self._tunnel or self._over or self._upstream_ended or self._boundary.tls is not None:
            self._client_lost(None)
            return False
        self._client_ended = True
        if self._upstream is not None:
            self._upstream.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the upstream know."""
        self._client_lost(exc)
        self._give_up_spare()
        self._boundary.links.discard(self)

    def pause_writing(self) -> None:
        """Read no more from the upstream than the client takes."""
        if self._upstream is not None:
            self._upstream.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        if self._upstream is not None:
            self._upstream.resume_reading()

    def stop(self) -> None:
        """End at once, because the tap does."""
        if not self._over:
            self._end(TransportErrorKind.TAP_STOPPED, "the tap was stopped")
            self._over = True
        self._drop_upstream(reset=True)
        _reset(self._client)

    def _client_lost(self, exc: Exception | None) -> None:
        if self._over:
            return
        self._over = True
        if self._exchange is None and exc is None:
            self._close_upstream()
            return
        how = "reset" if exc else "closed"
        self._end(TransportErrorKind.CLIENT_GONE, f"the client {how} its connection before the response was whole")
        self._drop_upstream(reset=exc is not None)

    # Client to upstream.

    def _pump(self) -> None:
        out: list[bytes] = []
        try:
            while self._inbox and self._request_step(out):
                pass
        except MalformedError as error:
            self._request_malformed(error, out)
        if out:
            self._to_upstream(out[0] if len(out) == 1 else b"".join(out))
        self._steer()

    def _request_step(self, out: list[bytes]) -> bool:
        """Take one thing from the inbox; False when it needs more bytes, or the response before it."""
        if self._request_body is not None:
            return self._request_body_step(self._request_body, out)
        if self._exchange is not None:
            return False  # pipelined: the next request waits until this response is whole
        if self._inbox[0] in b"\r\n":
            self._inbox = self._inbox.lstrip(b"\r\n")
            return True
        return self._request_head_step(out)

    def _request_head_step(self, out: list[bytes]) -> bool:
        inbox = self._inbox
        end = head_end(inbox, self._inbox_seen)
        if end < 0:
            check_start(inbox, response=False)
            self._inbox_seen = len(inbox)
            return False
        head = self._boundary.reader.request(inbox[:end])
        body = request_body(head)
        self._inbox, self._inbox_seen = inbox[end:], 0
        out.append(self._open(head))
        self._request_body = body
        if body is None:
            self._request_done()
        return True

    def _open(self, head: RequestHead) -> bytes:
        """Record the request's head; the head as it goes on."""
        boundary = self._boundary
        number = boundary.next_number()
        read = boundary.causality is not Causality.OFF
        parents = head.values(_CAUSALITY) if read else []
        headers = _without_parent(head.headers) if parents else head.headers
        self._exchange = _Exchange(number, head.method)
        self._put_opened(number, head, headers, parents[0].decode("latin-1") if parents else None)
        if not read:
            return relay_head(head)
        value = f"{boundary.prefix}{number}".encode() if boundary.causality is Causality.INJECT else None
        return relay_head(head, header=_CAUSALITY, value=value)

    def _put_opened(self, number: int, head: RequestHead, headers: RawHeaders, parent: str | None) -> None:
        clock = self._boundary.clock
        self._put(
            Opened(
                number=number,
                server=self._boundary.server,
                started_ns=clock.wall_ns(),
                started_mono_ns=clock.mono_ns(),
                client=self._client_address,
                method=head.method,
                target=head.target,
                http_version=head.version,
                headers=headers,
                parent=parent,
            )
        )

    def _request_body_step(self, body: Body, out: list[bytes]) -> bool:
        assert self._exchange is not None
        used, pieces, whole = body.scan(self._inbox)
        for piece in pieces:
            self._put(RequestData(self._exchange.number, piece))
        taken, self._inbox = _split(self._inbox, used)
        out.append(taken)
        if whole:
            self._request_body = None
            self._request_done()
        return True

    def _request_done(self) -> None:
        assert self._exchange is not None
        self._exchange.request_done = True
        self._put(RequestDone(self._exchange.number, self._boundary.clock.mono_ns()))
        self._finish()

    def _request_malformed(self, error: MalformedError, out: list[bytes]) -> None:
        rest, self._inbox = self._inbox, b""
        if self._exchange is None:
            self._exchange = _Exchange(self._boundary.next_number(), "?")
            words = rest[:256].split(b"\n")[0].decode("latin-1").split()
            method, target = [*words, "?", "?"][:2]
            self._put_opened(self._exchange.number, RequestHead(rest, "?", (), method, target), (), None)
            if self._boundary.causality is not Causality.OFF:
                rest = without_header(rest, _CAUSALITY)
        out.append(rest)
        self._malformed("request", error)

    def _to_upstream(self, data: bytes) -> None:
        if self._upstream is not None:
            self._upstream.write(data)
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def _steer(self) -> None:
        """Read from the client as fast as the upstream takes, and hold few pipelined requests."""
        hold = self._upstream_full or self._pending_bytes > HOLD_BYTES or len(self._inbox) > HOLD_BYTES
        if self._inbox and self._exchange is None and not self._upstream_full:
            hold = False  # an unfinished head: only more bytes can end it
        if hold != self._client_held:
            self._client_held = hold
            if hold:
                self._client.pause_reading()
            else:
                self._client.resume_reading()

    # The upstream's side.

    async def _connect(self) -> None:
        boundary = self._boundary
        tls = boundary.tls
        if boundary.server.listen in self._passed():
            error = TransportError(kind=TransportErrorKind.REFUSED, message=circle(boundary.server.listen))
            self._connecting = None
            self._upstream_lost(error, reset=True)
            return
        self._give_up_spare()
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: UpstreamSide(self),
                boundary.host,
                boundary.port,
                ssl=tls,
                server_hostname=boundary.host if tls else None,
                ssl_handshake_timeout=_NO_TIME_OUT_S if tls else None,
            )
        except (OSError, ValueError) as error:  # ValueError: a name that cannot be one
            self._connecting = None
            self._upstream_lost(connect_error(error, boundary.host), reset=True)

    def _give_up_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _passed(self) -> frozenset[str]:
        """The tap's listeners that this has come through before it came here."""
        info = self._client.get_extra_info
        return self._boundary.paths.through((info("peername"), info("sockname")))

    def upstream_made(self, transport: asyncio.Transport) -> None:
        """Send what waited for the connection."""
        if self._over:
            transport.abort()
            return
        self._upstream_ends = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        self._boundary.paths.opened(self._upstream_ends, self._passed() | {self._boundary.server.listen})
        self._connecting = None
        self._upstream = transport
        transport.set_write_buffer_limits(high=HOLD_BYTES)
        pending, self._pending, self._pending_bytes = b"".join(self._pending), [], 0
        transport.write(pending)
        if self._client_ended:
            transport.write_eof()
        self._steer()

    def upstream_full(self, *, full: bool) -> None:
        """Note whether the upstream takes no more for now."""
        self._upstream_full = full
        self._steer()

    def upstream_ended(self) -> bool:
        """The upstream sends no more; True where it may still read, which TLS does not tell."""
        secure = self._boundary.tls is not None
        if self._over or self._client_ended or not self._lingers() or (secure and self._tunnel):
            self.upstream_closed(None)
            return False
        self._upstream_ended = True
        self._end(None)
        self._client.write_eof()
        if secure:
            self._drain()
        else:
            self._tunnel = True  # what the client still says can have no answer
        return not secure

    def _drain(self) -> None:
        """Read what the client still says, so that no reset overtakes the answer, and forget it."""
        self._over, self._upstream = True, None
        self._client.resume_reading()

    def _lingers(self) -> bool:
        """Whether the upstream has said all, and the client has not."""
        exchange = self._exchange
        if exchange is None or exchange.request_done:
            return self._tunnel
        return exchange.response_done or isinstance(self._response_body, UntilCloseBody)

    def upstream_closed(self, exc: Exception | None) -> None:
        """Do to the client what the upstream did, and record it."""
        self._boundary.paths.closed(self._upstream_ends)
        if exc is None:
            error = TransportError(
                kind=TransportErrorKind.CLOSED, message="the upstream closed before the response was whole"
            )
        else:
            error = lost_error(exc, self._boundary.host)
        self._upstream_lost(error, reset=exc is not None)

    def _upstream_lost(self, error: TransportError, *, reset: bool) -> None:
        if self._over:
            return
        self._over = True
        self._upstream = None
        exchange = self._exchange
        whole = exchange is None or exchange.response_done
        if exchange is not None:
            if whole or (not reset and isinstance(self._response_body, UntilCloseBody)):
                self._end(None)
            else:
                self._end(error.kind, error.message)
        if self._answer:  # half a head is what the client would have seen
            self._client.write(self._answer)
        if reset and not whole:
            _reset(self._client)
        else:
            self._client.close()  # a reset here could overtake the whole response that is still on its way

    def _close_upstream(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._upstream.close()

    def _drop_upstream(self, *, reset: bool) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            if reset:
                _reset(self._upstream)
            else:
                self._upstream.abort()

    # Upstream to client.

    def upstream_data(self, data: bytes) -> None:
        """Relay what can be relayed now, which is all but an unfinished head."""
        if self._over:
            return
        if self._tunnel:
            self._client.write(data)
            return
        self._answer = self._answer + data if self._answer else data
        out: list[bytes] = []
        try:
            while self._answer and self._response_step(out):
                pass
        except MalformedError as error:
            out.append(self._answer)
            self._answer = b""
            self._malformed("response", error)
        if out:
            self._client.write(out[0] if len(out) == 1 else b"".join(out))
        if self._inbox and self._exchange is None:
            self._pump()

    def _response_step(self, out: list[bytes]) -> bool:
        """Take one thing from the answer; False when it needs more bytes."""
        if self._response_body is not None:
            return self._response_body_step(self._response_body, out)
        exchange = self._exchange
        if exchange is None or exchange.response_done:
            self._surplus(out)
            return False
        return self._response_head_step(exchange, out)

    def _response_head_step(self, exchange: _Exchange, out: list[bytes]) -> bool:
        answer = self._answer
        end = head_end(answer, self._answer_seen)
        if end < 0:
            check_start(answer, response=True)
            self._answer_seen = len(answer)
            return False
        head = self._boundary.reader.response(answer[:end])
        interim = head.status < 200 and head.status != 101
        body = None if interim or head.status == 101 else response_body(head, exchange.method)
        self._answer, self._answer_seen = answer[end:], 0
        out.append(relay_head(head))
        if not interim:
            self._answered(exchange, head, body, out)
        return True

    def _answered(self, exchange: _Exchange, head: ResponseHead, body: Body | None, out: list[bytes]) -> None:
        now = self._boundary.clock.mono_ns()
        self._put(Answered(exchange.number, now, head.status, head.reason, head.headers))
        self._response_body = body
        if head.status == 101 or (exchange.method == "CONNECT" and 200 <= head.status < 300):
            out.append(self._answer)
            self._answer = b""
            self._switch(head)
        elif body is None:
            self._response_done(exchange)

    def _response_body_step(self, body: Body, out: list[bytes]) -> bool:
        exchange = self._exchange
        assert exchange is not None
        used, pieces, whole = body.scan(self._answer)
        for piece in pieces:
            self._put(ResponseData(exchange.number, piece))
        taken, self._answer = _split(self._answer, used)
        out.append(taken)
        if whole:
            self._response_body = None
            self._response_done(exchange)
        return True

    def _response_done(self, exchange: _Exchange) -> None:
        exchange.response_done = True
        self._finish()

    def _surplus(self, out: list[bytes]) -> None:
        """Bytes that answer nothing (a server's parting 408, say) go to the client, who would have seen them."""
        out.append(self._answer)
        self._answer = b""
        if not self._surplus_told:
            self._surplus_told = True
            self._gap("the upstream sent bytes that answer no request")

    # Both ways.

    def _finish(self) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.request_done and exchange.response_done:
            self._end(None)

    def _end(self, kind: TransportErrorKind | None, message: str = "") -> None:
        """End the exchange, if there is one; a whole response is a good end, whatever came after it."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        failed = kind is not None and not exchange.response_done
        error = TransportError(kind=kind, message=message) if kind is not None and failed else None
        self._put(Ended(exchange.number, self._boundary.clock.mono_ns(), error))

    def _switch(self, head: ResponseHead) -> None:
        protocol = (head.values(b"upgrade") or [b"a tunnel"])[0]
        self._end(None)
        self._relay_blindly(f"switched to {protocol.decode('latin-1')}: relayed, not recorded")

    def _malformed(self, what: str, error: MalformedError) -> None:
        self._end(TransportErrorKind.MALFORMED, f"{what}: {error}")
        self._relay_blindly(f"{what}: {error}; this connection is relayed, not recorded, from here on")

    def _relay_blindly(self, detail: str) -> None:
        """From now on bytes pass unread; what was held for reading goes first."""
        self._tunnel = True
        self._gap(detail)
        self._request_body = self._response_body = None
        inbox, self._inbox = self._inbox, b""
        answer, self._answer = self._answer, b""
        if inbox:
            self._to_upstream(inbox)
        if answer:
            self._client.write(answer)
        self._steer()

    def _gap(self, detail: str) -> None:
        self._put(Unparsed(self._boundary.server, self._boundary.clock.wall_ns(), detail))


class UpstreamSide(asyncio.Protocol):
    """Tells the link what the upstream does."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshakes are done."""
        self._link.upstream_made(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        """Bytes of a response."""
        self._link.upstream_data(data)

    def eof_received(self) -> bool:
        """True keeps what the client still says going."""
        return self._link.upstream_ended()

    def connection_lost(self, exc: Exception | None) -> None:
        """Told twice when an end of file came first; the link listens once."""
        self._link.upstream_closed(exc)

    def pause_writing(self) -> None:
        """The upstream takes no more for now."""
        self._link.upstream_full(full=True)

    def resume_writing(self) -> None:
        """It does again."""
        self._link.upstream_full(full=False)


def _without_parent(headers: RawHeaders) -> RawHeaders:
    return tuple(pair for pair in headers if pair[0].lower() != _CAUSALITY)


def _split(data: bytes, at: int) -> tuple[bytes, bytes]:
    return (data, b"") if at == len(data) else (data[:at], data[at:])


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    if not peer:
        return ""
    return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"


def _reset(transport: asyncio.Transport) -> None:
    """Close so that the other side sees a reset, not an orderly end."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0 and not transport.is_closing():
        with socket.socket(fileno=os.dup(sock.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
