"""What HTTP/1 and HTTP/2 have besides heads and bodies, byte for byte through the second engine."""

import asyncio
import gzip
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import brotli
import httpx
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy.proxy.layers import http

from gymtap.proxy.mitm.layers import _INTERIM
from gymtap.schemas import GapKind, State, TransportErrorKind

TEXT = b'{"text": "' + b"hello " * 50 + b'"}'
CODED = {
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.ZstdCompressor().compress(TEXT),
}
GET = b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TRAILED = b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n"

type Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(handle: Handle) -> AsyncIterator[int]:
    """A server that does so with each connection, and closes it, also where the test ends first; its port."""

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        finally:
            writer.close()

    standing = await asyncio.start_server(handled, "127.0.0.1", 0)
    yield standing.sockets[0].getsockname()[1]
    standing.close()


async def asked(standing: Any, request: bytes, until: bytes) -> bytes:
    """What the client reads, up to that, or to the end."""
    host, port = standing.engine.addresses[0]
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    heard = b""
    while not heard.endswith(until) and (data := await reader.read(2**16)):
        heard += data
    writer.close()
    return heard


def answering(answer: bytes, heard: list[bytes] | None = None, *, until: bytes = b"\r\n\r\n") -> Handle:
    """Read a request up to that, note it, and answer so."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(until)
        if heard is not None:
            heard.append(request)
        writer.write(answer)
        await writer.drain()
        await reader.read()

    return handle


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 2]
)
async def test_interim_responses_pass(stand: Any, interim: bytes) -> None:
    """The client gets them as they came; recorded is the response."""
    async with server(answering(interim + OK)) as port:
        standing = await stand(f"reverse:http://127.0.0.1:{port}@0")
        assert await asked(standing, GET, OK) == interim + OK
        found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert found.response.status == 200
    assert standing.bodies(found)[1] == b"ok"


@given(st.integers(102, 199), st.lists(st.sampled_from([b"A: b", b"Link: <x>"])), st.integers(0, 80))
def test_interim_heads_are_told_from_others(status: int, fields: list[bytes], cut: int) -> None:
    """A whole head of 1xx is one, with nothing of what follows; part of one is none, nor is 101 or a response."""
    head = b"".join(b"%s\r\n" % line for line in [b"HTTP/1.1 %d Words" % status, *fields, b""])
    found = _INTERIM.match(head + OK)
    assert found is not None
    assert found[0] == head
    assert _INTERIM.match(head[: min(cut, len(head) - 1)]) is None
    assert _INTERIM.match(OK) is None
    assert _INTERIM.match(b"HTTP/1.1 101 Switching Protocols\r\n\r\n") is None


async def test_trailers_of_a_response_pass(stand: Any) -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + TRAILED
    async with server(answering(answer)) as port:
        standing = await stand(f"reverse:http://127.0.0.1:{port}@0")
        assert await asked(standing, GET, b"X-Other: 2\r\n\r\n") == answer
        found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert standing.bodies(found)[1] == b"hello"


async def test_trailers_of_a_request_pass(stand: Any) -> None:
    heard: list[bytes] = []
    async with server(answering(OK, heard, until=b"X-Other: 2\r\n\r\n")) as port:
        standing = await stand(f"reverse:http://127.0.0.1:{port}@0")
        assert await asked(standing, b"POST /x HTTP/1.1\r\nHost: h\r\n" + TRAILED, OK) == OK
        found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert heard[0].endswith(TRAILED)
    assert standing.bodies(found)[0] == b"hello"


@pytest.mark.parametrize("coding", CODED)
async def test_a_coded_body_passes_as_it_is_and_is_read(stand: Any, coding: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(CODED[coding])}\r\n\r\n"
    answer = head.encode() + CODED[coding]
    async with server(answering(answer)) as port:
        standing = await stand(f"reverse:http://127.0.0.1:{port}@0")
        assert await asked(standing, GET, answer) == answer
        found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert standing.bodies(found)[1] == TEXT
    assert (found.response.body.encoding, found.response.body.size_bytes) == (coding, len(CODED[coding]))


async def test_another_protocol_passes_and_is_a_gap(stand: Any) -> None:
    """After a 101 that begins no WebSocket the bytes are nobody's to read, and that is said."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n")
        writer.write((await reader.readexactly(5)).upper())
        writer.close()

    async with server(handle) as port:
        standing = await stand(f"reverse:http://127.0.0.1:{port}@0")
        request = b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\nhello"
        assert (await asked(standing, request, b"HELLO")).endswith(b"\r\n\r\nHELLO")
        found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert found.response.status == 101
    while not standing.capture().gaps():  # noqa: ASYNC110 - the engine's thread knows no event of this loop's
        await asyncio.sleep(0)
    assert standing.capture().gaps()[0].kind is GapKind.UNPARSED


async def test_a_server_that_hangs_up(stand: Any) -> None:
    """Where the client takes the proxy for the server, it is hung up on, as it would have been, not answered 502."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with server(handle) as port:
        standing = await stand(f"reverse:http://127.0.0.1:{port}@0")
        assert await asked(standing, GET, b"never") == b""
        found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert (found.response, found.error.kind) == (None, TransportErrorKind.CLOSED)


async def test_a_stream_that_the_server_resets(stand: Any, http2: int) -> None:
    """The client's stream is reset, its connection is not, and the capture says what happened."""
    standing = await stand()
    proxy, trust = standing.url, standing.trust()
    async with httpx.AsyncClient(proxy=proxy, verify=trust, http2=True, timeout=None) as http:
        with pytest.raises(httpx.RemoteProtocolError, match="reset"):
            await http.post(f"https://127.0.0.1:{http2}/reset", content=b"x")
        assert (await http.post(f"https://127.0.0.1:{http2}/trailers", content=b"x")).content == b"x"
    found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert (found.request.target, found.response) == ("/reset", None)
    assert found.error.kind is TransportErrorKind.RESET
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert standing.bodies(found)[1] == b"x"


async def test_another_mitmproxy(stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the modules that the layers are made of have moved, traffic passes, and what does not is said."""
    monkeypatch.delattr(http, "_http2")
    monkeypatch.setitem(sys.modules, "mitmproxy.proxy.layers.http._http2", None)
    monkeypatch.delitem(sys.modules, "gymtap.proxy.mitm.layers")
    async with server(answering(OK)) as port:
        standing = await stand(f"reverse:http://127.0.0.1:{port}@0")
        assert (await asked(standing, GET, b"ok")).endswith(b"\r\n\r\nok")
    (said,) = standing.said
    assert "interim responses and trailers of HTTP/1 do not pass" in said
