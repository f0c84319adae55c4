"""Property: both sides see through the tap what they see without it: the same bytes, and the same end of them.

A play is a list of steps, and each is seen by the other side before the next one is made, so that nothing depends on
time. The same play is given twice, once straight and once through the tap.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.events import Tape
from gymtap.proxy.engine import Engine
from gymtap.schemas import Server

RESET = struct.pack("ii", 1, 0)
TAPE_BYTES = 2**20

CLIENT, UPSTREAM = "client", "upstream"
CLOSE, END, BREAK = "close", "end", "break"
"""Close both directions, one's own direction only, or reset the connection."""

type Step = tuple[str, bytes | str]


@dataclass
class Side:
    """One end of a connection, and what it saw."""

    sock: socket.socket
    sent: int = 0
    seen: bytearray = field(default_factory=bytearray)
    over: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(self.sock, 2**16):
                self.seen += data
                self.changed.set()
            self.over = "ended"
        except OSError:
            self.over = "reset"
        self.changed.set()

    async def until(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            self.changed.clear()
            await self.changed.wait()

    async def do(self, act: bytes | str) -> None:
        if isinstance(act, bytes):
            self.sent += len(act)
            await asyncio.get_running_loop().sock_sendall(self.sock, act)
        elif act == END:
            self.sock.shutdown(socket.SHUT_WR)
        else:
            if act == BREAK:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            await self.stop()

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.sock.close()


def start(sock: socket.socket) -> Side:
    side = Side(sock)
    side.task = asyncio.get_running_loop().create_task(side.listen())
    return side


async def played(steps: list[Step], accepting: socket.socket, port: int) -> dict[str, tuple[bytes, str]]:
    """What each side saw, and how it ended for it."""
    loop = asyncio.get_running_loop()
    client_sock = socket.socket()
    client_sock.setblocking(False)
    await loop.sock_connect(client_sock, ("127.0.0.1", port))
    sides = {CLIENT: start(client_sock)}
    for who, act in steps:
        if who == CLIENT and UPSTREAM not in sides:
            await sides[CLIENT].do(act)
            upstream_sock, _ = await loop.sock_accept(accepting)
            upstream_sock.setblocking(False)
            sides[UPSTREAM] = start(upstream_sock)
        else:
            await sides[who].do(act)
        me, other = sides[who], sides[UPSTREAM if who == CLIENT else CLIENT]
        if isinstance(act, bytes):
            await other.until(lambda me=me, other=other: len(other.seen) >= me.sent or bool(other.over))
        else:
            await other.until(lambda other=other: bool(other.over))
    seen = {who: (bytes(side.seen), side.over) for who, side in sides.items()}
    for side in sides.values():
        await side.stop()
    return seen


async def straight_and_tapped(steps: list[Step]) -> list[dict[str, tuple[bytes, str]]]:
    with socket.create_server(("127.0.0.1", 0)) as accepting:
        accepting.setblocking(False)
        port = accepting.getsockname()[1]
        engine = Engine(Tape(TAPE_BYTES))
        server = Server(name="policy", listen="http://127.0.0.1:0", upstream=f"http://127.0.0.1:{port}")
        listener = await engine.listen(server)
        try:
            straight = await played(steps, accepting, port)
            tapped = await played(steps, accepting, int(listener.server.listen.rpartition(":")[2]))
        finally:
            await engine.close()
    return [straight, tapped]


def chunked(pieces: list[bytes], extension: bytes, trailer: bytes) -> bytes:
    body = b"".join(b"%X%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return body + b"0" + extension + b"\r\n" + trailer + b"\r\n"


PIECES = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4)
CHUNKED = st.builds(
    chunked, PIECES, st.sampled_from([b"", b";a", b' ; a="b"']), st.sampled_from([b"", b"X-Sum: 1\r\n"])
)
FIELDS = st.lists(
    st.sampled_from(
        [b"X-A: 1\r\n", b"x-a:2\r\n", b"Cookie: a=b\r\n", b"X-Long: " + b"a" * 9000 + b"\r\n", b"X-F: a\r\n b\r\n"]
    ),
    max_size=4,
).map(b"".join)


@st.composite
def framed(draw: st.DrawFn, none: bool = True) -> tuple[bytes, bytes]:
    """Framing fields, and the body."""
    way = draw(st.sampled_from(["none", "length", "chunked"] if none else ["length", "chunked"]))
    if way == "none":
        return b"", b""
    if way == "chunked":
        return b"Transfer-Encoding: chunked\r\n", draw(CHUNKED)
    body = b"".join(draw(PIECES))
    return b"Content-Length: %d\r\n" % len(body) * draw(st.integers(1, 2)), body


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes, bytes]:
    method = draw(st.sampled_from(["GET", "POST", "HEAD", "FETCH"]))
    target = draw(st.sampled_from([b"/a%2Fb?x", b"http://elsewhere:1/", b"//", b"/\xff"]))
    length, body = draw(framed())
    head = method.encode() + b" " + target + b" HTTP/1.1\r\nHost: h\r\n" + draw(FIELDS) + length + b"\r\n"
    return method, head, body


@st.composite
def responses(draw: st.DrawFn, method: str) -> tuple[bytes, bytes, bool]:
    """Interim answers and the head, the body, and whether only the connection's end ends it."""
    interim = draw(st.lists(st.sampled_from([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nA: b\r\n\r\n"])))
    status = draw(st.sampled_from([b"200 OK", b"204 None", b"304 Same", b"500 Internal Server Error", b"299"]))
    length, body = draw(framed(none=False))
    until_close = draw(st.booleans())
    length = b"" if until_close else length
    if method == "HEAD" or status[:3] in {b"204", b"304"}:
        body, until_close = b"", False
    head = b"HTTP/1.1 " + status + b"\r\n" + draw(FIELDS) + length + b"\r\n"
    return b"".join(interim) + head, body, until_close


def cut(draw: st.DrawFn, data: bytes) -> tuple[bytes, bytes]:
    at = draw(st.integers(0, len(data)))
    return data[:at], data[at:]


@st.composite
def plays(draw: st.DrawFn) -> list[Step]:
    """Exchanges on one connection, some answered before their end, until one side has enough of it."""
    steps: list[Step] = []
    while True:
        method, asked, asked_body = draw(requests())
        answered, answered_body, until_close = draw(responses(method))
        before, after = cut(draw, asked_body)
        steps += [(CLIENT, asked + before), (UPSTREAM, answered)]
        part, rest = cut(draw, answered_body)
        how = draw(st.sampled_from(["client goes", "upstream goes", "lingers", "whole", "whole"]))
        if how.endswith("goes"):
            whole = how == "upstream goes" and not rest and not until_close  # see test_aborts: its reset is a close
            return [
                *steps,
                (UPSTREAM, part),
                (how.split()[0], CLOSE if whole else draw(st.sampled_from([CLOSE, BREAK]))),
            ]
        steps += [(UPSTREAM, part), (UPSTREAM, rest)]
        if after and (how == "lingers" or until_close):
            return [*steps, (UPSTREAM, END), (CLIENT, after), (CLIENT, CLOSE)]
        steps.append((CLIENT, after))
        if how == "lingers" or until_close:
            return [*steps, (UPSTREAM, CLOSE)]


@settings(deadline=None, max_examples=60)
@given(plays())
def test_a_play_is_the_same_with_a_tap(steps: list[Step]) -> None:
    straight, tapped = asyncio.run(straight_and_tapped(steps))
    assert tapped == straight


TUNNELS = {
    "websocket": (
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81",
    ),
    "not HTTP": (b"\x00\x01hello", b"\x00\x02"),
}


@pytest.mark.parametrize("first", [CLIENT, UPSTREAM])
@pytest.mark.parametrize(("asked", "answered"), TUNNELS.values(), ids=TUNNELS)
async def test_in_a_tunnel_each_side_ends_alone(first: str, asked: bytes, answered: bytes) -> None:
    second = UPSTREAM if first == CLIENT else CLIENT
    steps = [(CLIENT, asked), (UPSTREAM, answered), (first, END), (second, b"\x82 the rest"), (second, END)]
    straight, tapped = await straight_and_tapped(steps)
    assert tapped == straight


async def test_what_is_no_http_may_end_before_the_upstream_is_there() -> None:
    """As in `printf ... | nc -N`: the end waits with the bytes."""

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"<" + await reader.read())
        writer.close()

    serving = await asyncio.start_server(upstream, "127.0.0.1", 0)
    engine = Engine(Tape(TAPE_BYTES))
    port = serving.sockets[0].getsockname()[1]
    server = Server(name="policy", listen="http://127.0.0.1:0", upstream=f"http://127.0.0.1:{port}")
    listener = await engine.listen(server)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(listener.server.listen.rpartition(":")[2]))
    writer.write(b"\x00\x01")
    writer.write_eof()
    assert await reader.read() == b"<\x00\x01"
    writer.close()
    await engine.close()
    serving.close()
