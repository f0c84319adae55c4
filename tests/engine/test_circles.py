"""A tap whose listeners lead back to themselves."""

import asyncio
import socket
import struct

import pytest

from gymtap.proxy.core.events import Ended, Opened, Tape
from gymtap.proxy.engine import Engine
from gymtap.proxy.engine.paths import Paths
from gymtap.schemas import Server, TransportErrorKind

ASK = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
IP_LOCAL_PORT_RANGE = 51


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def only_port(sock: socket.socket, port: int) -> None:
    """Let the kernel give the socket this port when it connects, as it may of itself (Linux 6.3, linux/in.h)."""
    sock.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=I", port << 16 | port))


@pytest.fixture
def needs_port_range() -> None:
    with socket.socket() as sock:
        try:
            only_port(sock, 50_000)
        except OSError:
            pytest.skip("here a socket cannot choose the range of its port")


@pytest.mark.parametrize("length", [1, 2, 3])
async def test_a_circle_ends_where_it_closes(length: int) -> None:
    """Each listener is passed once, the client is refused, and the record says why."""
    tape, ports = Tape(2**20), free_ports(length)
    engine = Engine(tape)
    for port, following in zip(ports, [*ports[1:], ports[0]], strict=True):
        listen, upstream = f"http://127.0.0.1:{port}", f"http://127.1:{following}"  # a name that no check knows
        await engine.listen(Server(name=f"s{port}", listen=listen, upstream=upstream))
    reader, writer = await asyncio.open_connection("127.0.0.1", ports[0])
    writer.write(ASK)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    await engine.close()
    events = list(tape.drain())
    assert len([event for event in events if isinstance(event, Opened)]) == length + 1
    errors = [event.error for event in events if isinstance(event, Ended) and event.error is not None]
    (refused,) = [error for error in errors if error.kind is TransportErrorKind.REFUSED]
    assert (
        refused.message == f"http://127.0.0.1:{ports[0]} would call itself over and over: its upstream leads back to it"
    )


async def test_a_chain_is_no_circle() -> None:
    """One listener before another is let through, as often as it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    tape = Tape(2**20)
    engine = Engine(tape)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for name in ("inner", "outer"):
        listener = await engine.listen(Server(name=name, listen="http://127.0.0.1:0", upstream=upstream))
        upstream = listener.server.listen
    for _ in range(2):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(upstream.rpartition(":")[2]))
        for _ in range(2):
            writer.write(ASK)
            assert (await reader.readuntil(b"ok")).endswith(b"ok")
        writer.close()
    await engine.close()
    server.close()


@pytest.mark.usefixtures("needs_port_range")
async def test_a_client_at_a_port_that_the_tap_calls_from_is_no_circle() -> None:
    """A port is one's own for one destination only: the kernel gives it out again for another."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        callers.append(writer.get_extra_info("peername"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read()
        writer.close()

    callers: list[tuple[str, int]] = []
    engine = Engine(Tape(2**20))
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    listener = await engine.listen(Server(name="s", listen="http://127.0.0.1:0", upstream=upstream))
    port = int(listener.server.listen.rpartition(":")[2])
    writers = []
    for _ in range(2):
        sock = socket.socket()
        if callers:
            only_port(sock, callers[0][1])
        sock.connect(("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock)
        writers.append(writer)
        writer.write(ASK)
        assert (await reader.readuntil(b"ok")).endswith(b"ok")
    assert sock.getsockname() == callers[0]
    for writer in writers:
        writer.close()
    await engine.close()
    server.close()
    await server.wait_closed()


ENDS = ("::1", 5, 0, 0), ("::1", 80, 0, 0)


def test_what_is_remembered() -> None:
    """Only while the connection stands, whatever its family adds to an address; what is unknown is from elsewhere."""
    paths = Paths()
    paths.opened(ENDS, frozenset({"a"}))
    paths.opened((None, None), frozenset({"b"}))
    assert paths.through((("::1", 5), ("::1", 80))) == {"a"}
    elsewhere = [(("::1", 6), ("::1", 80)), (("::1", 5), ("::1", 81)), (None, ("::1", 80)), (None, None)]
    assert not any(paths.through(ends) for ends in elsewhere)
    paths.closed(ENDS)
    paths.closed(ENDS)
    paths.closed((None, None))
    assert paths.through(ENDS) == frozenset()
