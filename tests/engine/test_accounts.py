"""However both sides behave, every exchange that was opened is ended once, and no connection is left over."""

import asyncio
import random
import socket
import struct
from collections import Counter
from contextlib import suppress

import pytest

from gymtap.proxy.core.events import Answered, Ended, Opened, RequestDone

EXCHANGES = 400
AT_ONCE = 40


def reset(writer):
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def misbehave(reader, writer, chance):
    """An upstream: answers, or does one of the things that upstreams do instead."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        early = chance.random() < 0.2
        if not early and b"Content-Length" in head:
            await reader.readexactly(3000)
        kind = chance.choice(["length", "length", "chunked", "until close", "reset", "half", "close", "junk", "wait"])
        if kind == "length":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + bytes(5000))
        elif kind == "chunked":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        elif kind == "until close":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
            return
        elif kind == "half":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nhalf")
            return
        elif kind == "junk":
            writer.write(b"\x00\x01junk")
            return
        elif kind == "wait":
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), chance.random() / 20)
            return
        else:
            if kind == "reset":
                reset(writer)
            return
        if early and b"Content-Length" in head:
            await reader.readexactly(3000)


async def use(reader, writer, chance):
    """A client: a few requests on one connection, each read to its end, or left in one of many ways."""
    for _ in range(chance.randrange(1, 4)):
        posts = chance.random() < 0.5
        head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000\r\n\r\n" if posts else b"GET / HTTP/1.1\r\n\r\n"
        body = bytes(3000) if posts else b""
        leave = chance.random()
        writer.write(head + body[: chance.randrange(3001) if leave < 0.1 else 3000])
        if leave < 0.3:
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), chance.random() / 50)
            if leave < 0.2:
                reset(writer)
            return
        answer = await reader.readuntil(b"\r\n\r\n")
        if b"Content-Length" not in answer:
            return
        await reader.readexactly(5000)


@pytest.mark.parametrize("seed", range(3))
async def test_every_exchange_is_ended_once(lab, seed):
    chance = random.Random(seed)
    gate = asyncio.Semaphore(AT_ONCE)

    async def upstream(reader, writer):
        await misbehave(reader, writer, chance)

    async def client():
        async with gate:
            reader, writer = await tap.connect()
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await use(reader, writer, chance)
            writer.close()

    tap = await lab.tapped(upstream)
    await asyncio.gather(*(client() for _ in range(EXCHANGES)))

    def all_ended(events):
        return sum(isinstance(event, Opened) for event in events) == sum(isinstance(event, Ended) for event in events)

    events = await tap.tape.until(all_ended)
    for kind in (Opened, Ended, Answered, RequestDone):
        counts = Counter(event.number for event in events if isinstance(event, kind))
        assert set(counts.values()) <= {1}
    ended = {event.number: event.error for event in events if isinstance(event, Ended)}
    kinds = Counter(error and error.kind for error in ended.values())
    assert len(kinds) >= 4, f"the clients and upstreams behave too well: {kinds}"
    while tap.listener._boundary.links:  # noqa: ASYNC110 - the last connections close in a turn or two
        await asyncio.sleep(0)
