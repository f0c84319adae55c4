"""A tap with the second engine, real TLS upstreams on loopback, and a client that trusts the CA."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest
from aiohttp import WSMsgType, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gymtap.proxy.mitm.engine import MitmEngine
from gymtap.proxy.mitm.settings import MitmSettings
from gymtap.proxy.store import Capture
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.schemas import Exchange

LISTENS = r"listening at (127\.0\.0\.1:\d+)"
"""Where mitmdump says that it listens."""


async def said_until(stream: asyncio.StreamReader | None, pattern: str) -> str:
    """What a program said until the pattern was in it; fails with all of it where the program ends before."""
    assert stream is not None
    said = ""
    while re.search(pattern, said) is None:
        line = await stream.readline()
        assert line, said
        said += line.decode()
    return said


@dataclass
class Certificate:
    """A self-signed certificate of 127.0.0.1 and localhost, valid around now."""

    file: Path
    key: Path

    def server(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.file, self.key)
        context.set_alpn_protocols([*protocols, "http/1.1"])
        return context


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "upstream")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = Certificate(folder / "cert.pem", folder / "key.pem")
    files.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
    return files


@pytest.fixture(scope="session")
def confdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the CA is made, once for all tests: it takes a second."""
    return tmp_path_factory.mktemp("confdir")


@dataclass
class Standing:
    """A tap that runs with the second engine."""

    tap: Tap
    engine: MitmEngine
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        host, port = self.engine.addresses[0]
        return f"http://{host}:{port}"

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.engine.ca)

    def bodies(self, exchange: Exchange) -> tuple[bytes, bytes]:
        """Of the request and of the response, as recorded."""
        sides = exchange.request.body, exchange.response.body if exchange.response else None
        capture = self.capture()
        request, response = (capture.body(body) or b"" for body in sides)
        return request, response

    def capture(self) -> Capture:
        """What is recorded by now."""
        assert self.tap._recorder.flush()
        return Capture(self.tap.capture)

    async def until(self, met: Callable[[Exchange], bool]) -> Exchange:
        """The first exchange that is so; the test's own time limit ends the wait."""
        while True:
            for exchange in self.capture().exchanges():
                if met(exchange):
                    return exchange
            await asyncio.sleep(0)


@pytest.fixture
def standing_of() -> type[Standing]:
    """For a test that makes its own: `standing_of(tap, engine)`."""
    return Standing


type Stand = Callable[..., Awaitable[Standing]]


@pytest.fixture
async def stand(tmp_path: Path, confdir: Path, certificate: Certificate) -> AsyncIterator[Stand]:
    async with AsyncExitStack() as stack:

        async def make(*modes: str, **said: Any) -> Standing:
            tap = await stack.enter_async_context(Tap(TapSettings(capture=tmp_path / "capture")))
            told: list[str] = []
            settings = MitmSettings(
                modes=modes or ("regular@0",), confdir=confdir, upstream_ca=certificate.file, **said
            )
            engine = await stack.enter_async_context(MitmEngine(settings, tap.source(), told.append))
            return Standing(tap, engine, told)

        yield make


@dataclass
class Upstream:
    """An HTTPS server: `/echo` answers what it was sent, `/events` streams until it is released, `/ws` echoes.

    At `plain_port` it is an HTTP server.
    """

    port: int = 0
    plain_port: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    protocols: list[str] = field(default_factory=list)


@pytest.fixture
async def upstream(certificate: Certificate) -> AsyncIterator[Upstream]:
    made = Upstream()

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), headers={"X-Path": request.raw_path})

    async def events(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b"data: one\n\n")
        await made.released.wait()
        await answer.write(b"data: two\n\n")
        return answer

    async def websocket(request: web.Request) -> web.WebSocketResponse:
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        async for message in answer:
            if message.type is WSMsgType.TEXT:
                await answer.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await answer.send_bytes(message.data)
        return answer

    async def fail(request: web.Request) -> web.Response:
        return web.json_response(
            {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}, status=401
        )

    async def abort(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"part")
        assert request.transport is not None
        request.transport.abort()
        return answer

    app = web.Application()
    app.add_routes(
        [
            web.post("/echo", echo),
            web.get("/events", events),
            web.get("/ws", websocket),
            web.post("/v1/chat/completions", fail),
            web.post("/ng-rollout/{rollout}/v1/chat/completions", fail),
            web.get("/abort", abort),
        ]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate.server()).start()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port, made.plain_port = (address[1] for address in runner.addresses)
    yield made
    made.released.set()
    await runner.cleanup()


class _Http2(asyncio.Protocol):
    """As much of an HTTP/2 server as echoing takes; `/reset` resets the stream, `/trailers` ends with some."""

    def __init__(self) -> None:
        self._state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self._bodies: dict[int, bytes] = {}
        self._paths: dict[int, bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._state.initiate_connection()
        transport.write(self._state.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self._state.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self._bodies[event.stream_id] = b""
                self._paths[event.stream_id] = dict(event.headers)[b":path"]
            elif isinstance(event, h2.events.DataReceived):
                self._bodies[event.stream_id] += event.data
                self._state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self._answer(event.stream_id)
        self._transport.write(self._state.data_to_send())

    def _answer(self, stream: int) -> None:
        if self._paths[stream] == b"/reset":
            self._state.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        trailers = self._paths[stream] == b"/trailers"
        self._state.send_headers(stream, [(":status", "200"), ("content-type", "text/plain")])
        self._state.send_data(stream, self._bodies.pop(stream), end_stream=not trailers)
        if trailers:
            self._state.send_headers(stream, [("x-sum", "1")], end_stream=True)


@pytest.fixture
async def http2(certificate: Certificate) -> AsyncIterator[int]:
    """The port of an HTTPS server that speaks HTTP/2 only."""
    server = await asyncio.get_running_loop().create_server(_Http2, "127.0.0.1", 0, ssl=certificate.server("h2"))
    yield server.sockets[0].getsockname()[1]
    server.close()
