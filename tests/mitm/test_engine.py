"""The second engine between real clients and real TLS servers."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from gymtap.proxy.core.events import Unparsed
from gymtap.proxy.diagnose.capture import diagnose_row
from gymtap.proxy.mitm.engine import MitmEngine
from gymtap.proxy.mitm.settings import MitmSettings
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.proxy.wiring.proxied import second_engine
from gymtap.schemas import GapKind, Layer, Server, ServerKind, State, TransportErrorKind


def client(standing: Any, **said: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(proxy=standing.url, verify=standing.trust(), timeout=None, **said)


async def test_https_is_captured(stand: Any, upstream: Any) -> None:
    """A client that trusts the CA is captured whole, and gets what the server sent."""
    standing = await stand()
    async with client(standing) as http:
        answer = await http.post(
            f"https://127.0.0.1:{upstream.port}/echo?a=%2F", content=b"hello", headers={"X-A": "b"}
        )
    assert (answer.status_code, answer.content, answer.headers["x-path"]) == (200, b"hello", "/echo?a=%2F")
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert (found.server, found.request.method, found.request.target) == (
        f"127.0.0.1:{upstream.port}",
        "POST",
        "/echo?a=%2F",
    )
    assert ("X-A", "b") in found.request.headers
    assert standing.bodies(found) == (b"hello", b"hello")
    (server,) = standing.capture().servers()
    assert (server.upstream, server.listen) == (f"https://127.0.0.1:{upstream.port}", standing.url)


async def test_http2_both_ways(stand: Any, http2: int) -> None:
    """HTTP/2 stays HTTP/2, many exchanges on one connection, none mixed with another."""
    standing = await stand()
    async with client(standing, http2=True) as http:
        sent = [f"body {number}".encode() * 999 for number in range(5)]
        answers = await asyncio.gather(*(http.post(f"https://127.0.0.1:{http2}/e", content=body) for body in sent))
    assert [answer.content for answer in answers] == sent
    assert {answer.http_version for answer in answers} == {"HTTP/2"}
    await standing.until(lambda exchange: standing.capture().count() == 5 and exchange.state is State.DONE)
    found = [exchange for exchange in standing.capture().exchanges() if exchange.state is State.DONE]
    assert {exchange.request.http_version for exchange in found} == {"2.0"}
    assert sorted(standing.bodies(exchange) for exchange in found) == sorted((body, body) for body in sent)


async def test_http2_without_a_length(stand: Any, http2: int) -> None:
    """A body of unknown length passes."""
    standing = await stand()

    async def pieces() -> Any:
        yield b"one, "
        yield b"two"

    async with client(standing, http2=True) as http:
        answer = await http.post(f"https://127.0.0.1:{http2}/e", content=pieces())
    assert answer.content == b"one, two"
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert standing.bodies(found) == (b"one, two", b"one, two")


async def test_an_event_stream_is_recorded_while_it_runs(stand: Any, upstream: Any) -> None:
    """The client reads the first event, and the capture shows it, while the stream is still open."""
    standing = await stand()
    async with client(standing) as http, http.stream("GET", f"https://127.0.0.1:{upstream.port}/events") as answer:
        pieces = answer.aiter_bytes()
        assert await anext(pieces) == b"data: one\n\n"
        found = await standing.until(
            lambda exchange: exchange.response is not None and exchange.response.body is not None
        )
        assert found.state is State.OPEN
        assert standing.bodies(found)[1] == b"data: one\n\n"
        upstream.released.set()
        assert b"".join([piece async for piece in pieces]) == b"data: two\n\n"
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert standing.bodies(found)[1] == b"data: one\n\ndata: two\n\n"


async def test_a_websocket_is_recorded_while_it_runs(stand: Any, upstream: Any) -> None:
    """Messages pass both ways and are in the capture before the WebSocket is closed, text and binary."""
    standing = await stand()
    url = f"https://127.0.0.1:{upstream.port}/ws"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, proxy=standing.url, ssl=standing.trust()) as socket,
    ):
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"
        found = await standing.until(
            lambda exchange: exchange.response is not None and exchange.response.body is not None
        )
        assert found.state is State.OPEN
        assert [json.loads(side)["text"] for side in standing.bodies(found)] == ["hello", "hello"]
        await socket.send_bytes(b"\xff")
        assert await socket.receive_bytes() == b"\xff"
    found = await standing.until(lambda exchange: exchange.state is not State.OPEN)
    assert (found.state, found.response and found.response.status) == (State.DONE, 101)
    lines = [json.loads(line) for line in standing.bodies(found)[0].splitlines()]
    assert [(line["type"], line.get("text"), line.get("base64")) for line in lines] == [
        ("text", "hello", None),
        ("binary", None, "/w=="),
    ]


async def test_a_providers_refusal_is_known_for_what_it_is(stand: Any, upstream: Any) -> None:
    """The same addons run: the server is a provider, and the key is not on the disk."""
    standing = await stand()
    key = "sk-proj-Abcdefghijklmnop0123456789abcdefghij"
    async with client(standing) as http:
        url = f"https://127.0.0.1:{upstream.port}/v1/chat/completions"
        await http.post(url, json={"model": "m"}, headers={"Authorization": f"Bearer {key}"})
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert found.failed
    assert standing.capture().servers()[0].kind is ServerKind.PROVIDER
    assert all(key.encode() not in file.read_bytes() for file in standing.tap.capture.iterdir())


async def test_a_failed_call_is_attributed_and_diagnosed(stand: Any, upstream: Any) -> None:
    """Over TLS as over plain HTTP: the row is found, and the provider's own words are the cause."""
    standing = await stand()
    run = {"_ng_task_index": 6, "_ng_rollout_index": 1, "agent_ref": {"name": "agent"}}
    async with client(standing) as http:
        await http.post(f"https://127.0.0.1:{upstream.port}/ng-rollout/6-1/v1/chat/completions", json=run)
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert found.attribution.row is not None
    assert found.attribution.row.label == "6.1"
    capture = standing.capture()
    diagnosis = diagnose_row(capture, capture.row(found.attribution.row), now_ns=found.started_ns)
    assert diagnosis.layer is Layer.CONFIG
    assert "Incorrect API key" in diagnosis.evidence[0].text


async def test_a_client_that_does_not_trust_the_ca(stand: Any, upstream: Any) -> None:
    """Its refusal is said once, in words, and is a gap."""
    standing = await stand()
    for _ in range(2):
        async with httpx.AsyncClient(proxy=standing.url, timeout=None) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(f"https://127.0.0.1:{upstream.port}/events")
    while len(standing.capture().gaps()) < 2:  # noqa: ASYNC110 - the engine's thread knows no event of this loop's
        await asyncio.sleep(0)
    assert {gap.kind for gap in standing.capture().gaps()} == {GapKind.UNPARSED}
    assert "refused the proxy's certificate" in standing.capture().gaps()[0].detail
    assert len(standing.said) == 1
    assert f"127.0.0.1:{upstream.port} refused the certificate" in standing.said[0]
    assert f"it has to trust {standing.engine.ca}" in standing.said[0]


async def test_what_the_server_breaks_off(stand: Any, upstream: Any) -> None:
    """A body that ends early is kept as far as it came, and the exchange says who ended it."""
    standing = await stand()
    async with client(standing) as http:
        with pytest.raises(httpx.HTTPError):
            await http.get(f"https://127.0.0.1:{upstream.port}/abort")
    found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert found.error is not None
    assert found.error.kind in {TransportErrorKind.CLOSED, TransportErrorKind.RESET}
    assert standing.bodies(found)[1] == b"part"


async def test_an_upstream_that_is_not_there(stand: Any) -> None:
    """The client gets mitmproxy's 502; the capture says that the upstream refused."""
    standing = await stand()
    async with client(standing) as http:
        answer = await http.get("http://127.0.0.1:1/x")
    assert answer.status_code == 502
    found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert found.error is not None
    assert (found.error.kind, found.response) == (TransportErrorKind.REFUSED, None)


async def test_an_https_upstream_that_is_not_there(stand: Any) -> None:
    """The tunnel that could not be made is an exchange of its own, and says why."""
    standing = await stand()
    async with client(standing) as http:
        with pytest.raises(httpx.ProxyError):
            await http.get("https://127.0.0.1:1/x")
    found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert (found.request.method, found.request.target) == ("CONNECT", "127.0.0.1:1")
    assert found.error is not None
    assert found.error.kind is TransportErrorKind.REFUSED


async def test_an_upstream_that_is_not_trusted(tmp_path: Path, confdir: Path, upstream: Any, standing_of: Any) -> None:
    """Without `--upstream-ca` its certificate is refused; the client learns it, and the exchange says TLS."""
    async with Tap(TapSettings(capture=tmp_path / "capture")) as tap:
        settings = MitmSettings(confdir=confdir)
        async with MitmEngine(settings, tap.source(), lambda line: None) as engine:
            standing = standing_of(tap, engine)
            async with client(standing) as http:
                answer = await http.post(f"https://127.0.0.1:{upstream.port}/echo", content=b"secret")
            assert answer.status_code == 502
            found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert found.error is not None
    assert found.error.kind is TransportErrorKind.TLS
    assert "certificate" in found.error.message.lower()


async def test_what_is_open_ends_with_the_tap(stand: Any, upstream: Any, tmp_path: Any) -> None:
    """Stopping ends what is open, and says so."""
    standing = await stand()
    async with client(standing) as http, http.stream("GET", f"https://127.0.0.1:{upstream.port}/events") as answer:
        pieces = answer.aiter_bytes()
        assert await anext(pieces) == b"data: one\n\n"
        await standing.engine.__aexit__(None, None, None)
        found = await standing.until(lambda exchange: exchange.state is State.FAILED)
        with pytest.raises(httpx.HTTPError):
            await anext(pieces)
    assert found.error is not None
    assert found.error.kind is TransportErrorKind.TAP_STOPPED


def test_where_the_ca_is(tmp_path: Any) -> None:
    """The CA is mitmproxy's own, unless another folder is named."""
    assert MitmSettings().ca.parts[-2:] == (".mitmproxy", "mitmproxy-ca-cert.pem")
    assert MitmSettings(confdir=tmp_path).ca.parent == tmp_path
    assert ssl.create_default_context() is not None


async def test_a_strict_tap_closes_it(tmp_path: Path, confdir: Path) -> None:
    """Once something could not be recorded, a strict tap lets nothing pass through the second engine either."""
    async with Tap(TapSettings(capture=tmp_path / "capture", strict=True)) as tap:
        settings = MitmSettings(confdir=confdir, modes=("regular@0",))
        async with second_engine(tap, settings, lambda line: None) as engine:
            host, port = engine.addresses[0]
            tap.source().tape.put(Unparsed(Server(name="x", listen="", upstream=""), 1, "a protocol of its own"))
            await tap.broken()
            while engine._thread.is_alive():  # noqa: ASYNC110 - a thread has no event of this loop's
                await asyncio.sleep(0)
            with pytest.raises(httpx.ConnectError):
                async with httpx.AsyncClient(proxy=f"http://{host}:{port}") as http:
                    await http.get("http://127.0.0.1:1/")
