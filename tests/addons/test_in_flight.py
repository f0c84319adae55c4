"""Alarms while a run hangs: real sockets, a real tap, an upstream that drops every connection or never answers."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gymtap.addons.in_flight import InFlight
from gymtap.proxy.core.addon import Heard, Setup
from gymtap.proxy.core.flow import Flow
from gymtap.proxy.core.in_flight import AlarmKind, alarms, waits
from gymtap.proxy.store import Capture
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.schemas import Call, Server, ServerKind, TransportError, TransportErrorKind

type Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ROW = json.dumps({"_ng_task_index": 3, "_ng_rollout_index": 1, "responses_create_params": {"input": "Oslo?"}}).encode()


async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reset the connection, as a server that is killed does."""
    await reader.read(1)
    writer.transport.abort()


@asynccontextmanager
async def tapped(handler: Handler, capture: Path, kind: ServerKind) -> AsyncIterator[tuple[Tap, int]]:
    """A tap in front of an upstream; where clients reach it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    upstream = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    async with Tap(TapSettings(capture=capture)) as tap:
        server = Server(name="upstream", kind=kind, listen="http://127.0.0.1:0", upstream=f"http://127.0.0.1:{port}")
        listener = await tap.listen(server)
        yield tap, urlsplit(listener.server.listen).port or 0
    upstream.close()


async def post(port: int, path: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def try_again(port: int, times: int) -> None:
    for _ in range(times):
        reader, writer = await post(port, "/v1/chat/completions", b'{"model": "m", "messages": []}')
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def recorded(tap: Tap) -> Capture:
    """The capture, once all that has happened is in it."""
    await asyncio.get_running_loop().run_in_executor(None, tap._recorder.flush, 30)
    return Capture(tap.capture)


async def test_a_provider_that_resets_for_ever_is_told_while_it_goes_on(tmp_path: Path) -> None:
    """The finding is in the capture before anything has given up, on the try that crossed the threshold, once."""
    async with tapped(drop, tmp_path / "capture", ServerKind.PROVIDER) as (tap, port):
        await try_again(port, 9)
        assert [finding.rule for finding in (await recorded(tap)).findings()] == []
        await try_again(port, 4)
        capture = await recorded(tap)
        (finding,) = capture.findings()
        assert finding.rule == "flight.retry_storm"
        assert "10 times in a row" in finding.message
        assert capture.live()
        found = alarms([], capture.latest(100), 0, death_span_ms=0.0)
        assert {alarm.kind for alarm in found} == {AlarmKind.RETRY_STORM, AlarmKind.DEAD_UPSTREAM}
        assert {alarm.count for alarm in found} == {13}


async def test_an_answer_between_ends_the_count(tmp_path: Path) -> None:
    """Nine drops, an answer, nine drops: nothing to say."""
    answers = iter([False] * 9 + [True] + [False] * 9)

    async def sometimes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not next(answers):
            await drop(reader, writer)
            return
        await reader.readuntil(b"[]}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()

    async with tapped(sometimes, tmp_path / "capture", ServerKind.PROVIDER) as (tap, port):
        await try_again(port, 9)
        reader, writer = await post(port, "/v1/chat/completions", b'{"model": "m", "messages": []}')
        assert b"200" in await reader.readline()
        writer.close()
        await try_again(port, 9)
        found = (await recorded(tap)).findings()
        assert [finding.rule for finding in found if finding.rule.startswith("flight")] == []


async def test_an_upstream_that_never_answers_is_what_the_row_waits_on(tmp_path: Path) -> None:
    """`gymtap inflight`, asked from outside while it hangs: the row, the boundary, its age, and the wedge."""
    release = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await release.wait()

    async with tapped(hang, tmp_path / "capture", ServerKind.AGENT) as (tap, port):
        _, writer = await post(port, "/run", ROW)
        capture = await recorded(tap)
        while not (opened := capture.open_exchanges()) or opened[0].attribution.row is None:
            capture = await recorded(tap)
        (wait,) = waits(opened, capture.latest(10), opened[0].started_ns + 61_000_000_000)
        assert (wait.row, wait.exchange.server, wait.age_ms) == ("3.1", "upstream", 61_000.0)

        said = await inflight(tap.capture, "--quiet", "0")
        assert said["live"] is True
        assert said["rows_waiting"] == ["3.1"]
        assert [one["call"] for one in said["open"]] == ["run"]
        assert [alarm["kind"] for alarm in said["alarms"]] == ["wedge"]
        writer.close()
        release.set()

    said = await inflight(tap.capture)
    assert (said["live"], said["alarms"]) == (False, [])


async def inflight(capture: Path, *options: str) -> dict[str, object]:
    command = (sys.executable, "-m", "gymtap", "inflight", str(capture), "--json", *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    document: dict[str, object] = json.loads(out)
    assert process.returncode == (1 if document["live"] and document["alarms"] else 0)
    return document


def lost(number: int, at_s: float) -> Flow:
    """A call that nobody answered; each has a body of its own, so no two are tries of one call."""
    server = Server(name="upstream", kind=ServerKind.PROVIDER, listen="http://127.0.0.1:1", upstream="http://h:2")
    refused = TransportError(kind=TransportErrorKind.REFUSED, message="refused")
    flow = Flow(f"a{number}", server, int(at_s * 1e9), "POST", "/v1/responses", (), error=refused)
    flow.call, flow.request_body = Call.PROVIDER, b"%d" % number
    return flow


def test_a_dead_upstream_is_told_once_and_again_at_tenfold() -> None:
    """Eight calls over two seconds; what comes after is in that finding already."""
    heard = Heard()
    addon = InFlight(Setup(heard))
    for number in range(79):
        addon.ended(lost(number, number * 0.5))
    assert [(finding.rule, finding.exchange) for finding in heard.findings] == [("flight.dead_upstream", "a7")]
    addon.ended(lost(79, 40.0))
    assert "80 calls" in heard.findings[-1].message
