"""HTTP/3, by the QUIC that mitmproxy itself is built on: what passes is recorded, as with the others."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, ErrorCode, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, QuicEvent, StreamReset

from gymtap.schemas import State, TransportErrorKind

BODY = bytes(range(256)) * 300


class _Side(QuicConnectionProtocol):
    """What both sides do: gather each stream's headers and body until it ends."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.h3: H3Connection | None = None
        self.headers: dict[int, dict[bytes, bytes]] = {}
        self.bodies: dict[int, bytes] = {}

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ProtocolNegotiated):
            self.h3 = H3Connection(self._quic)
        for each in self.h3.handle_event(event) if self.h3 else ():
            self._gather(each)

    def _gather(self, event: H3Event) -> None:
        if isinstance(event, HeadersReceived):
            self.headers.setdefault(event.stream_id, {}).update(event.headers)
            self.bodies.setdefault(event.stream_id, b"")
        elif isinstance(event, DataReceived):
            self.bodies[event.stream_id] += event.data
        if isinstance(event, HeadersReceived | DataReceived) and event.stream_ended:
            self.ended(event.stream_id)

    def ended(self, stream: int) -> None:
        """A stream is whole."""


class _Echo(_Side):
    """As much of a server as echoing takes; `/reset` resets the stream, `/trailers` ends with some."""

    def ended(self, stream: int) -> None:
        assert self.h3 is not None
        path = self.headers[stream][b":path"]
        if path == b"/reset":
            self._quic.reset_stream(stream, ErrorCode.H3_REQUEST_REJECTED)
        else:
            trailers = path == b"/trailers"
            self.h3.send_headers(stream, [(b":status", b"200"), (b"content-type", b"text/plain")])
            self.h3.send_data(stream, self.bodies[stream], end_stream=not trailers)
            if trailers:
                self.h3.send_headers(stream, [(b"x-sum", b"1")], end_stream=True)
        self.transmit()


class _Caller(_Side):
    """A client: `post` answers the status and the body, or the error code of the reset that came instead."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._whole: dict[int, asyncio.Future[int | None]] = {}

    async def post(self, path: str, *more: tuple[bytes, bytes]) -> tuple[int, bytes] | int:
        assert self.h3 is not None
        stream = self._quic.get_next_available_stream_id()
        self._whole[stream] = asyncio.get_running_loop().create_future()
        names = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"h"), (b":path", path.encode())]
        self.h3.send_headers(stream, [*names, *more])
        self.h3.send_data(stream, BODY, end_stream=True)
        self.transmit()
        code = await self._whole[stream]
        return (int(self.headers[stream][b":status"]), self.bodies[stream]) if code is None else code

    def quic_event_received(self, event: QuicEvent) -> None:
        super().quic_event_received(event)
        if isinstance(event, StreamReset) and event.stream_id in self._whole:
            self._whole[event.stream_id].set_result(event.error_code)
        elif isinstance(event, ConnectionTerminated):
            for waiting in self._whole.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError(event.reason_phrase))

    def ended(self, stream: int) -> None:
        self._whole[stream].set_result(None)


@pytest.fixture
async def http3(certificate: Any) -> AsyncIterator[int]:
    """The port of a server that speaks HTTP/3 only."""
    settings = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    settings.load_cert_chain(certificate.file, certificate.key)
    server = await serve("127.0.0.1", 0, configuration=settings, create_protocol=_Echo)
    yield server._transport.get_extra_info("sockname")[1]
    server.close()


def calling(standing: Any) -> Any:
    """A connection to it, of a client that trusts its CA."""
    host, port = standing.engine.addresses[0]
    settings = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name=host)
    settings.load_verify_locations(str(standing.engine.ca))
    return connect(host, port, configuration=settings, create_protocol=_Caller)


@pytest.mark.parametrize("path", ["/echo", "/trailers"])
async def test_it_passes_and_is_recorded(stand: Any, http3: int, path: str) -> None:
    standing = await stand(f"reverse:http3://127.0.0.1:{http3}@0")
    async with calling(standing) as client:
        assert await client.post(path) == (200, BODY)
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert (found.server, found.request.target, found.request.http_version) == (f"127.0.0.1:{http3}", path, "3")
    assert standing.bodies(found) == (BODY, BODY)
    assert not standing.capture().gaps()


async def test_a_server_of_several_versions_may_be_asked_in_this_one(stand: Any, http3: int) -> None:
    standing = await stand(f"reverse:https://127.0.0.1:{http3}@0")
    async with calling(standing) as client:
        assert await client.post("/echo", (b"content-length", b"%d" % len(BODY))) == (200, BODY)
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert standing.bodies(found) == (BODY, BODY)


async def test_a_stream_that_the_server_resets(stand: Any, http3: int) -> None:
    """The client's stream is reset, its connection is not, and the capture says of whom the reset came."""
    standing = await stand(f"reverse:http3://127.0.0.1:{http3}@0")
    async with calling(standing) as client:
        assert isinstance(await client.post("/reset"), int)
        assert await client.post("/echo") == (200, BODY)
    found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert (found.request.target, found.response) == ("/reset", None)
    assert found.error is not None
    assert found.error.kind is TransportErrorKind.RESET
    assert "reset by server" in found.error.message


async def test_a_server_that_is_not_there(stand: Any) -> None:
    standing = await stand("reverse:http3://127.0.0.1:9@0")
    async with calling(standing) as client:
        assert isinstance(await client.post("/echo"), int)
    found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert (found.request.target, found.response) == ("/echo", None)
