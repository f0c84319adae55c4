"""When one side goes, the other sees what it would have seen without a tap, and the tape says how it was."""

import asyncio
import errno
import socket
import struct
import sys

import pytest

from gymtap.proxy.core.events import Answered, Ended, Opened, RequestDone, Unparsed
from gymtap.proxy.engine import Causality
from gymtap.proxy.engine.failures import connect_error
from gymtap.schemas import TransportErrorKind

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def reset(writer):
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def closed_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


async def test_a_refused_connection_is_a_reset_and_no_answer(lab):
    tap = await lab.tap(closed_port())
    reader, writer = await tap.connect()
    writer.write(GET)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    ended = await tap.tape.ended()
    assert ended.error.kind is TransportErrorKind.REFUSED
    assert [type(event) for event in tap.tape.seen] == [Opened, RequestDone, Ended]


async def test_a_refusal_at_every_address_of_a_name_is_a_refusal(lab):
    tap = await lab.tap(f"http://localhost:{closed_port()}")
    _, writer = await tap.connect()
    writer.write(GET)
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.REFUSED


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError("Multiple exceptions: [Errno 111] Connect a, [Errno 111] Connect b"), TransportErrorKind.REFUSED),
        (OSError("Multiple exceptions: [Errno 111] Connect a, [Errno 113] No route"), TransportErrorKind.UNREACHABLE),
        (OSError(113, "No route to host"), TransportErrorKind.UNREACHABLE),
        (ConnectionResetError(104, "Connection reset by peer"), TransportErrorKind.RESET),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the numbers are Linux's")
def test_what_kept_a_connection_from_being_made(error, kind):
    """asyncio joins the errors of several addresses into one text."""
    assert connect_error(error, "h").kind is kind


def test_a_lack_of_open_files_is_the_taps_own():
    """No upstream is to blame for it."""
    assert "the tap's own" in connect_error(OSError(errno.EMFILE, "Too many open files"), "h").message


@pytest.mark.parametrize("host", ["no-such-host.invalid", "no..host", "x" * 64])
async def test_a_name_that_does_not_resolve_is_unreachable(lab, host):
    tap = await lab.tap(f"http://{host}:1")
    reader, writer = await tap.connect()
    writer.write(GET)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    error = (await tap.tape.ended()).error
    assert error.kind is TransportErrorKind.UNREACHABLE
    assert f"{host} does not resolve" in error.message


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_reset_is_passed_on_as_a_reset(lab, sent):
    """Before, within and after the response's head."""
    received = asyncio.Event()

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        if b"half" in sent:
            await received.wait()
        reset(writer)

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(GET)
    if b"half" in sent:
        assert await reader.readexactly(len(sent)) == sent
        received.set()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.RESET


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
async def test_an_early_close_is_passed_on_as_a_close(lab, sent):
    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(GET)
    assert await reader.read() == sent
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.CLOSED


async def test_an_idle_connection_that_the_upstream_closes_is_closed(lab):
    """No later request can meet a connection that is gone, so nothing ever needs a retry."""

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(GET)
    assert (await reader.read()).endswith(b"\r\n\r\n")
    assert (await tap.tape.ended()).error is None


async def test_an_idle_connection_that_the_upstream_resets_is_closed(lab):
    """A reset could overtake the end of the answer before it, which the client may still be reading."""
    answered = asyncio.Event()

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody")
        await answered.wait()
        reset(writer)

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(GET)
    await tap.tape.ended()
    answered.set()
    assert (await reader.read()).endswith(b"body")


@pytest.mark.parametrize("rudely", [False, True])
async def test_a_client_that_goes_takes_the_upstream_request_with_it(lab, rudely):
    asked, gone = asyncio.Event(), asyncio.Event()

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        try:
            assert await reader.read() == b""
        finally:
            gone.set()

    tap = await lab.tapped(upstream)
    _, writer = await tap.connect()
    writer.write(GET)
    await asked.wait()
    if rudely:
        reset(writer)
    else:
        writer.close()
    await gone.wait()
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.CLIENT_GONE


async def test_a_client_that_goes_while_it_is_answered_ends_the_upstreams_stream(lab):
    gone = asyncio.Event()

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await reader.read()
        gone.set()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(GET)
    await reader.readuntil(b"a\r\n")
    writer.close()
    await gone.wait()
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.CLIENT_GONE
    assert any(isinstance(event, Answered) for event in tap.tape.seen)


async def test_a_client_that_goes_within_its_own_request_is_gone(lab):
    started, gone = asyncio.Event(), asyncio.Event()

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        started.set()
        await reader.read()
        gone.set()

    tap = await lab.tapped(upstream)
    _, writer = await tap.connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf")
    await started.wait()
    writer.close()
    await gone.wait()
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.CLIENT_GONE


async def test_who_only_connects_calls_nobody(lab):
    """Health pollers do; the upstream is called when a request's head is there."""
    called = []

    async def upstream(reader, writer):
        called.append(1)

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\nHos")
    writer.write_eof()
    assert await reader.read() == b""
    assert (called, list(tap.tape.drain())) == ([], [])


async def test_stopping_ends_what_is_open(lab):
    asked = asyncio.Event()

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(GET)
    await asked.wait()
    await tap.engine.close()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.TAP_STOPPED
    with pytest.raises(ConnectionRefusedError):
        await tap.connect()


NOT_HTTP = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x0a\x0a",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n",
    "a field that is none": b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "no end": b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nab",
    "a chunk size that is none": b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
}


@pytest.mark.parametrize("sent", NOT_HTTP.values(), ids=NOT_HTTP)
async def test_what_is_not_http_is_relayed_and_recorded_as_a_gap(lab, sent):
    """The upstream says what it thinks of it, as it would without a tap; nobody hangs."""

    async def upstream(reader, writer):
        assert await reader.readexactly(len(sent)) == sent
        writer.write(b"\x15bye")

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(sent)
    assert await reader.read() == b"\x15bye"
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.MALFORMED
    assert sum(isinstance(event, Unparsed) for event in tap.tape.seen) == 1


async def test_the_causality_header_goes_no_further_in_what_is_not_http(lab):
    sent = b"GET / HTTP/1.1\r\nX-Gymtap-Parent: a1\r\nno colon\r\n\r\n"

    async def upstream(reader, writer):
        writer.write(await reader.readuntil(b"\r\n\r\n"))

    tap = await lab.tapped(upstream, causality=Causality.STRIP)
    reader, writer = await tap.connect()
    writer.write(sent)
    assert await reader.read() == b"GET / HTTP/1.1\r\nno colon\r\n\r\n"


@pytest.mark.parametrize(
    "sent", [b"\x00\x01\x02", b"HTTP/1.1 huh\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
async def test_an_answer_that_is_not_http_is_relayed_and_recorded_as_a_gap(lab, sent):
    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await writer.drain()
        writer.write(await reader.readexactly(4))

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(GET)
    assert await reader.readexactly(len(sent)) == sent
    writer.write(b"more")
    assert await reader.read() == b"more"
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.MALFORMED
    assert sum(isinstance(event, Unparsed) for event in tap.tape.seen) == 1


async def test_a_parting_answer_to_no_request_reaches_the_client(lab):
    """Some servers send 408 on an idle connection before they close it."""

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 A\r\n\r\n")
        await writer.drain()
        writer.write(b"HTTP/1.1 408 B\r\n\r\n")

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(GET)
    assert await reader.read() == b"HTTP/1.1 204 A\r\n\r\nHTTP/1.1 408 B\r\n\r\n"
    await tap.tape.until(lambda events: any(isinstance(event, Unparsed) for event in events))


@pytest.mark.parametrize(
    ("request_head", "answer"),
    [
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        ),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", b"HTTP/1.1 200 Connected\r\n\r\n"),
    ],
)
async def test_another_protocol_is_relayed_both_ways(lab, request_head, answer):
    async def upstream(reader, writer):
        assert await reader.readexactly(len(request_head)) == request_head
        writer.write(answer + b"\x81hello")
        writer.write(b"<" + await reader.readexactly(5))

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(request_head)
    assert await reader.readexactly(len(answer) + 6) == answer + b"\x81hello"
    writer.write(b"\x82\r\n\r\n")
    assert await reader.read() == b"<\x82\r\n\r\n"
    assert (await tap.tape.ended()).error is None
    assert [event.status for event in tap.tape.seen if isinstance(event, Answered)] == [int(answer[9:12])]
    assert sum(isinstance(event, Unparsed) for event in tap.tape.seen) == 1
