"""A tap whose listeners lead back to themselves."""

import asyncio
import socket

import pytest

from gymtap.proxy.core.events import Ended, Opened, Tape
from gymtap.proxy.engine import Engine
from gymtap.proxy.engine.paths import Paths
from gymtap.schemas import Server, TransportErrorKind

ASK = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


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


def test_what_is_remembered() -> None:
    """Only while the connection stands, whatever its family adds to an address; what is unknown is from elsewhere."""
    paths = Paths()
    paths.opened(("::1", 5, 0, 0), frozenset({"a"}))
    assert paths.through(("::1", 5)) == {"a"}
    assert paths.through(("::1", 6)) == paths.through(None) == frozenset()
    paths.closed(("::1", 5, 0, 0))
    paths.closed(("::1", 5, 0, 0))
    paths.closed(None)
    assert paths.through(("::1", 5)) == frozenset()
