"""What a low limit of open files does: the command keeps its own, and a person is told, before and when it is met."""

import asyncio
import contextlib
import signal
import socket
import sys

_LIMIT = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
_GYMTAP = f"exec {sys.executable} -m gymtap"


async def test_the_command_gets_the_limit_that_it_would_have_had(spawn, tmp_path) -> None:
    """Ours is raised; what closes or selects descriptors up to its limit would not be the same with another."""
    run = f"ulimit -Sn 300; {_GYMTAP} run -c {tmp_path / 'c'} -- {sys.executable} -c '{_LIMIT}'"
    ended = await (await spawn("bash", "-c", run)).end()
    assert (ended.status, ended.out) == (0, "300\n"), ended.err


async def test_a_low_limit_is_said_before_it_is_met_and_then(spawn, provider, unused_tcp_port, tmp_path) -> None:
    """In one line each, and connections that have to wait are no tracebacks."""
    up = f"ulimit -n 64; {_GYMTAP} up -c {tmp_path / 'c'} --map 'p={unused_tcp_port}->{provider.url}'"
    tap = await spawn("bash", "-c", up)
    await tap.err_line("only 64 files may be open")
    await tap.err_line("recording to")
    with contextlib.ExitStack() as clients:
        for _ in range(64):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", unused_tcp_port)))
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await tap.err_line("all 64 files that may be open are in use")
    tap.send(signal.SIGTERM)
    ended = await tap.end()
    assert "Traceback" not in ended.err


async def test_calls_beyond_the_limit_wait_and_none_fails(spawn, provider, unused_tcp_port, tmp_path) -> None:
    """A connection is accepted when there is a place for its call of the upstream too."""
    up = f"ulimit -n 64; {_GYMTAP} up -c {tmp_path / 'c'} --map 'p={unused_tcp_port}->{provider.url}'"
    tap = await spawn("bash", "-c", up)
    await tap.err_line("recording to")

    async def call() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    answers = await asyncio.gather(*(call() for _ in range(60)))
    assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 200 OK"}
    await tap.err_line("are in use")
    tap.send(signal.SIGTERM)
    assert (await tap.end()).status == 0
