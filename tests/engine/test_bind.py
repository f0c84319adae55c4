"""A port that cannot be had is said in one line, with who has it where the system tells."""

import asyncio
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from gymtap.proxy.core.errors import ListenError, UsageError
from gymtap.proxy.core.events import Tape
from gymtap.proxy.engine import Engine
from gymtap.proxy.engine.bind import bind
from gymtap.schemas import Server

LISTEN = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"


@pytest.fixture
def other_process():
    """A process that listens; its id and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process.pid, int(process.stdout.readline())
        process.communicate("\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a port without privileges")
async def test_a_taken_port_names_the_address_and_who_has_it(other_process):
    pid, port = other_process
    engine = Engine(Tape(0))
    with pytest.raises(ListenError) as caught:
        await engine.listen(Server(name="x", listen=f"http://127.0.0.1:{port}", upstream="http://127.0.0.1:1"))
    assert f"127.0.0.1:{port} is taken by pid {pid} (" in str(caught.value)
    assert "socket.create_server" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("port", [0, None])
def test_a_name_is_listened_to_at_all_its_addresses_on_one_port(port):
    """As a server that is given `localhost` would."""
    if port is None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
    bound = bind("localhost", port)
    addresses = {sock.getsockname()[0] for sock in bound}
    ports = {sock.getsockname()[1] for sock in bound}
    for sock in bound:
        sock.close()
    assert "127.0.0.1" in addresses
    assert addresses <= {"127.0.0.1", "::1"}
    assert len(ports) == 1
    assert port in {0, *ports}


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused(host):
    """192.0.2.0/24 is nobody's (RFC 5737), .invalid does not resolve (RFC 2606)."""
    with pytest.raises(ListenError, match=f"cannot listen on {host}:0"):
        bind(host, 0)


@pytest.mark.parametrize(
    ("listen", "upstream"),
    [
        ("127.0.0.1:0", "http://h"),
        ("https://127.0.0.1:0", "http://h"),
        ("http://127.0.0.1:0", "ftp://h"),
        ("http://h:x", "http://h"),
    ],
)
async def test_what_is_no_address_is_refused(listen, upstream):
    with pytest.raises(UsageError):
        await Engine(Tape(0)).listen(Server(name="x", listen=listen, upstream=upstream))


async def test_a_socket_that_listens_already_is_taken_over(lab):
    """With TCP_NODELAY on what it accepts, which it does not have of itself."""
    asked = asyncio.Event()

    async def upstream(reader, writer):
        asked.set()
        await reader.read()

    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    engine = Engine(Tape(0))
    url = f"http://127.0.0.1:{await lab.serve(upstream)}"
    listener = await engine.listen(Server(name="x", listen="http://127.0.0.1:0", upstream=url), sock=sock)
    assert listener.server.listen == f"http://127.0.0.1:{port}"
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await asked.wait()
    (link,) = listener._boundary.links
    assert link._client.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await engine.close()
    writer.close()


async def test_ipv6_at_both_ends(lab):
    """Addresses in brackets."""

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 Six\r\n\r\n")

    try:
        port = await lab.serve(upstream, host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    tape = Tape(0)
    engine = Engine(tape)
    listener = await engine.listen(Server(name="x", listen="http://[::1]:0", upstream=f"http://[::1]:{port}"))
    assert listener.server.listen.startswith("http://[::1]:")
    reader, writer = await asyncio.open_connection("::1", urlsplit(listener.server.listen).port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == b"HTTP/1.1 204 Six\r\n\r\n"
    assert next(tape.drain()).client.startswith("[::1]:")
    writer.close()
    await engine.close()


async def test_closing_does_not_wait_for_a_client_that_just_came():
    """However far its connection got; it is reset, and closing returns."""
    for turns in range(6):
        engine = Engine(Tape(0))
        server = Server(name="x", listen="http://127.0.0.1:0", upstream="http://127.0.0.1:1")
        listener = await engine.listen(server)
        with socket.create_connection(("127.0.0.1", urlsplit(listener.server.listen).port)) as client:
            client.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await engine.close()
            with pytest.raises(ConnectionResetError):
                await asyncio.get_running_loop().sock_recv(client, 1)


async def test_a_connection_that_arrives_after_closing_is_reset():
    engine = Engine(Tape(0))
    server = Server(name="x", listen="http://127.0.0.1:0", upstream="http://127.0.0.1:1")
    listener = await engine.listen(server)
    listener._boundary.closed = True
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(listener.server.listen).port)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    await engine.close()


async def test_one_boundary_can_be_closed_and_opened_again():
    engine = Engine(Tape(0))
    server = Server(name="x", listen="http://127.0.0.1:0", upstream="http://127.0.0.1:1")
    first = await engine.listen(server)
    await first.close()
    second = await engine.listen(first.server)
    assert second.server.listen == first.server.listen
    await engine.close()
