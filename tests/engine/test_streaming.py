"""Bodies stream as they come, however long, and many at once; memory stays bounded."""

import asyncio
import os
import resource
from pathlib import Path

import pytest

from gymtap.proxy.core.events import Answered, Dropped, RequestData, ResponseData

MIB = 2**20
BIG_BYTES = 300 * MIB
GROWTH_BYTES = 64 * MIB
CALLS = 2000


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from Linux's /proc")


def rss_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_the_first_event_arrives_before_the_second_is_sent(lab):
    seen = asyncio.Event()

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"9\r\ndata: 1\n\n\r\n")
        await seen.wait()
        writer.write(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
        await reader.read()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (await reader.readuntil(b"\n\n\r\n")).endswith(b"data: 1\n\n\r\n")
    events = await tap.tape.until(lambda events: any(isinstance(event, ResponseData) for event in events))
    assert events[-1] == ResponseData(1, b"data: 1\n\n")
    seen.set()
    assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"9\r\ndata: 2\n\n")


async def test_a_requests_first_bytes_arrive_before_its_last_are_sent(lab):
    seen = asyncio.Event()

    async def upstream(reader, writer):
        await reader.readuntil(b"first")
        seen.set()
        await reader.readuntil(b"last")
        writer.write(b"HTTP/1.1 204 Done\r\n\r\n")
        await reader.read()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nfirst")
    await seen.wait()
    writer.write(b"last")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 204 Done\r\n\r\n"


async def send_zeros(writer):
    zeros = bytes(MIB)
    for _ in range(BIG_BYTES // MIB):
        writer.write(zeros)
        await writer.drain()


async def take(reader, growth):
    """Read the body; append how much larger the process is at the most."""
    start, left, most = rss_bytes(), BIG_BYTES, 0
    while left:
        left -= len(await reader.readexactly(min(left, MIB)))
        most = max(most, rss_bytes() - start)
    growth.append(most)


def kept_and_dropped(events, kind):
    kept = sum(len(event.data) for event in events if isinstance(event, kind))
    dropped = [event for event in events if isinstance(event, Dropped)]
    return kept, sum(event.request_bytes + event.response_bytes for event in dropped)


@needs_proc
async def test_300_mb_down_in_bounded_memory(lab):
    """What the tape had no room for is counted, to the byte."""

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG_BYTES)
        await send_zeros(writer)
        await reader.read()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    growth = []
    await take(reader, growth)
    await tap.tape.ended()
    kept, dropped = kept_and_dropped(tap.tape.seen, ResponseData)
    assert kept + dropped == BIG_BYTES
    assert growth[0] < GROWTH_BYTES


@needs_proc
async def test_300_mb_up_in_bounded_memory(lab):
    growth = []

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await take(reader, growth)
        writer.write(b"HTTP/1.1 204 Done\r\n\r\n")
        await reader.read()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % BIG_BYTES)
    await send_zeros(writer)
    await reader.readuntil(b"\r\n\r\n")
    await tap.tape.ended()
    kept, dropped = kept_and_dropped(tap.tape.seen, RequestData)
    assert kept + dropped == BIG_BYTES
    assert growth[0] < GROWTH_BYTES


async def test_a_client_that_does_not_read_stops_the_upstream_from_sending(lab):
    """Flow control reaches through: the upstream's writer blocks, and nothing piles up here."""
    blocked, sent = asyncio.Event(), []

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG_BYTES)
        try:
            while len(sent) < BIG_BYTES // MIB:
                writer.write(bytes(MIB))
                sent.append(MIB)
                await asyncio.wait_for(writer.drain(), 0.5)
        except TimeoutError:
            writer.transport.abort()
        blocked.set()

    tap = await lab.tapped(upstream)
    _, writer = await tap.connect()
    writer.transport.pause_reading()
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await blocked.wait()
    assert sum(sent) < 64 * MIB


@pytest.fixture
def many_files():
    """Four descriptors per call, all in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CALLS * 4 + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"needs {needed} open files, the hard limit is {hard}")
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@needs_proc
@pytest.mark.usefixtures("many_files")
async def test_2000_slow_calls_are_open_together(lab):
    """The upstream answers none before it has them all, so each must be open while all the others are."""
    all_here, here = asyncio.Event(), []

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        here.append(1)
        if len(here) == CALLS:
            all_here.set()
        await all_here.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")
        await reader.read()

    async def call():
        reader, writer = await tap.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        return (await reader.readuntil(b"slow")).startswith(b"HTTP/1.1 200 OK")

    start = rss_bytes()
    tap = await lab.tapped(upstream)
    answers = await asyncio.gather(*(call() for _ in range(CALLS)))
    assert answers == [True] * CALLS
    assert rss_bytes() - start < 10**9
    events = await tap.tape.until(lambda events: sum(isinstance(event, Answered) for event in events) == CALLS)
    assert {event.number for event in events} == set(range(1, CALLS + 1))
