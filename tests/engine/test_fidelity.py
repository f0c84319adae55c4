"""Transcripts: what goes in is what comes out, both ways, byte for byte."""

import asyncio

import pytest

from gymtap.proxy.core.events import Answered, Ended, Opened, RequestData, RequestDone, ResponseData
from gymtap.proxy.engine import Causality

HOST = b"Host: 127.0.0.1:9\r\n"

UNCHANGED_REQUESTS = {
    "encoded path, double slash, query": b"GET //v1/a%2Fb/%E2%82%AC?x=%2F&&y HTTP/1.1\r\n" + HOST + b"\r\n",
    "empty query": b"GET /v1? HTTP/1.1\r\n" + HOST + b"\r\n",
    "fragment": b"GET /v1#part HTTP/1.1\r\n" + HOST + b"\r\n",
    "absolute form": b"GET http://elsewhere:1/a?b HTTP/1.1\r\n" + HOST + b"\r\n",
    "asterisk form": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "names, order, duplicates, spaces": b"GET / HTTP/1.1\r\nX-b:1\r\nhOST: h\r\nx-B:  2 \r\n"
    b"Cookie: a=b\r\nCookie: c=d\r\n\r\n",
    "HTTP/1.0": b"GET / HTTP/1.0\r\n\r\n",
    "HTTP/1.0 keep-alive": b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "connection close": b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
    "unknown method": b"FETCH /x HTTP/1.1\r\n" + HOST + b"\r\n",
    "repeated singleton": b"GET / HTTP/1.1\r\n" + HOST + b"User-Agent: a\r\nUser-Agent: b\r\n\r\n",
    "not ASCII": b"GET /\xc3\xa9\xff HTTP/1.1\r\n" + HOST + b"X-Name: \xe9\xff\r\n\r\n",
    "length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello",
    "length zero": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n",
    "chunked, extensions, trailers": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"05;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 6\r\n\r\n",
    "length beside chunked": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhi\r\n0\r\n\r\n",
    "coded and chunked": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n"
    b"2\r\n\x1f\x8b\r\n0\r\n\r\n",
    "64 KiB header": b"GET / HTTP/1.1\r\n" + HOST + b"X-Long: " + b"a" * 2**16 + b"\r\n\r\n",
    "1 MiB header": b"GET / HTTP/1.1\r\n" + HOST + b"X-Long: " + b"a" * 2**20 + b"\r\n\r\n",
    "64 KiB target": b"GET /" + b"a" * 2**16 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "two thousand fields": b"GET / HTTP/1.1\r\n"
    + HOST
    + b"".join(b"X-%d: %d\r\n" % (n, n) for n in range(2000))
    + b"\r\n",
}

UNCHANGED_RESPONSES = {
    "duplicates, case, order": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\ndate: x\r\n"
    b"set-cookie: c=d\r\nDate: y\r\nContent-Length: 2\r\n\r\nhi",
    "reason": b"HTTP/1.1 299 Sort of   OK (\xe9)\r\nContent-Length: 0\r\n\r\n",
    "no reason": b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
    "neither reason nor space": b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "304 with a length": b'HTTP/1.1 304 Not Modified\r\nContent-Length: 55\r\nETag: "x"\r\n\r\n',
    "500 of Gym": b"HTTP/1.1 500 Internal Server Error\r\n"
    b'content-type: application/json\r\ncontent-length: 4\r\n\r\n"x"\n',
    "gzip stays gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08",
    "chunked, extensions, trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"003;x\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
    "100 and 103 before the answer": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "64 KiB header": b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 2**16 + b"\r\nContent-Length: 0\r\n\r\n",
    "line feeds only": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
    "a folded field": b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nhi",
    "length beside chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhi\r\n0\r\n\r\n",
}

UNTIL_CLOSE_RESPONSES = {
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\nall of this",
    "HTTP/1.1 without a length": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of this",
    "empty": b"HTTP/1.1 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("sent", UNCHANGED_REQUESTS.values(), ids=UNCHANGED_REQUESTS)
async def test_a_request_reaches_the_upstream_as_it_was_sent(lab, sent):
    received = asyncio.Queue()

    async def upstream(reader, writer):
        received.put_nowait(await reader.readexactly(len(sent)))
        writer.write(b"HTTP/1.1 204 Done\r\n\r\n")
        received.put_nowait(await reader.read())

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(sent)
    assert await reader.readexactly(21) == b"HTTP/1.1 204 Done\r\n\r\n"
    writer.close()
    assert [await received.get(), await received.get()] == [sent, b""]
    assert (await tap.tape.ended()).error is None


@pytest.mark.parametrize("sent", UNCHANGED_RESPONSES.values(), ids=UNCHANGED_RESPONSES)
@pytest.mark.parametrize("step", [1, 10**9], ids=["byte by byte", "at once"])
async def test_a_response_reaches_the_client_as_it_was_sent_and_the_connection_stays(lab, sent, step):
    step = max(step, len(sent) // 500)

    async def upstream(reader, writer):
        while await reader.readuntil(b"\r\n\r\n"):
            for at in range(0, len(sent), step):
                writer.write(sent[at : at + step])
                await writer.drain()
                await asyncio.sleep(0)

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    for number in (1, 2):
        writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert await reader.readexactly(len(sent)) == sent
        assert (await tap.tape.ended(number)).error is None


@pytest.mark.parametrize("sent", UNTIL_CLOSE_RESPONSES.values(), ids=UNTIL_CLOSE_RESPONSES)
async def test_a_body_without_a_length_ends_with_the_connection(lab, sent):
    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
    assert await reader.read() == sent
    assert (await tap.tape.ended()).error is None


async def test_the_answer_to_head_has_a_length_and_no_body(lab):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"

    async def upstream(reader, writer):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(answer)

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    for _ in range(2):
        writer.write(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert await reader.readexactly(len(answer)) == answer
    assert (await tap.tape.ended(2)).error is None


async def test_expect_is_the_upstreams_to_answer(lab):
    """The tap says no 100 of its own: the body comes only after the upstream's."""

    async def upstream(reader, writer):
        assert b"Expect: 100-continue" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(4) == b"body"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


async def test_an_expectation_can_be_refused_without_the_body(lab):
    """The body that never comes does not keep the exchange open once both sides part."""

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 417 No")
    assert (await tap.tape.ended()).error is None


async def test_hop_by_hop_fields_end_here(lab):
    """RFC 9110, 7.6.1; close and keep-alive are the pair's own, and what frames a message cannot be nominated away."""
    received = asyncio.Queue()

    async def upstream(reader, writer):
        received.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nconnection: Keep-Alive, X-Hop\r\n"
            b"X-Hop: 1\r\nContent-Length: 0\r\n\r\n"
        )
        await reader.read()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(
        b"GET / HTTP/1.1\r\n" + HOST + b"TE: trailers\r\nConnection: TE, x-mine, close, host\r\nX-Mine: 1\r\n"
        b"Proxy-Connection: x\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nX-Stays: 1\r\n\r\n"
    )
    assert await received.get() == b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\nX-Stays: 1\r\n\r\n"
    expected = b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nContent-Length: 0\r\n\r\n"
    assert await reader.readuntil(b"\r\n\r\n") == expected


async def test_pipelined_requests_are_answered_in_order(lab):
    async def upstream(reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n"):
            body = head.split()[1]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"".join(b"GET /%d HTTP/1.1\r\n" % n + HOST + b"\r\n" for n in range(50)))
    for number in range(50):
        expected = b"/%d" % number
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        assert await reader.readexactly(len(expected)) == expected
    await tap.tape.ended(50)
    told = [(type(event), event.number) for event in tap.tape.seen if isinstance(event, Opened | Ended)]
    assert told == [(kind, number) for number in range(1, 51) for kind in (Opened, Ended)]


async def test_an_answer_before_the_request_is_whole_leaves_the_connection_in_step(lab):
    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await reader.readexactly(6)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    tap = await lab.tapped(upstream)
    reader, writer = await tap.connect()
    writer.write(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 6\r\n\r\nabc")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
    writer.write(b"defGET /next HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert (await tap.tape.ended(2)).error is None


async def test_the_tape_tells_the_whole_exchange(lab):
    """Headers as received, bodies with the transfer coding undone, times from the clocks that were given."""

    async def upstream(reader, writer):
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 Fine\r\nSet-Cookie: a\r\nConnection: X\r\nX: 1\r\nContent-Length: 2\r\n\r\nhi")
        await reader.read()

    tap = await lab.tap(await lab.serve(upstream), clock=lambda: 7)
    reader, writer = await tap.connect()
    writer.write(b"POST /a?b HTTP/1.1\r\nhost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")
    await reader.readuntil(b"hi")
    await tap.tape.ended()
    host, port = writer.get_extra_info("sockname")
    assert tap.tape.seen == [
        Opened(
            number=1,
            server=tap.listener.server,
            started_ns=7,
            started_mono_ns=7,
            client=f"{host}:{port}",
            method="POST",
            target="/a?b",
            http_version="1.1",
            headers=((b"host", b"h"), (b"Transfer-Encoding", b"chunked")),
        ),
        RequestData(1, b"a"),
        RequestData(1, b"bc"),
        RequestDone(1, 7),
        Answered(
            1, 7, 200, "Fine", ((b"Set-Cookie", b"a"), (b"Connection", b"X"), (b"X", b"1"), (b"Content-Length", b"2"))
        ),
        ResponseData(1, b"hi"),
        Ended(1, 7),
    ]


@pytest.mark.parametrize(
    ("causality", "forwarded", "parent", "recorded"),
    [
        (Causality.OFF, b"A: 1\r\nX-Gymtap-Parent: b7\r\nB: 2\r\n", None, 3),
        (Causality.INJECT, b"A: 1\r\nX-Gymtap-Parent: a1\r\nB: 2\r\n", "b7", 2),
        (Causality.STRIP, b"A: 1\r\nB: 2\r\n", "b7", 2),
    ],
)
async def test_the_causality_header_is_read_and_replaced_or_removed(lab, causality, forwarded, parent, recorded):
    received = asyncio.Queue()

    async def upstream(reader, writer):
        received.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        await reader.read()

    tap = await lab.tapped(upstream, causality=causality)
    _, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\nA: 1\r\nX-Gymtap-Parent: b7\r\nB: 2\r\n\r\n")
    assert await received.get() == b"GET / HTTP/1.1\r\n" + forwarded + b"\r\n"
    opened = (await tap.tape.until(bool))[0]
    assert isinstance(opened, Opened)
    assert (opened.parent, len(opened.headers)) == (parent, recorded)


async def test_a_request_without_a_parent_gets_its_own_id_too(lab):
    received = asyncio.Queue()

    async def upstream(reader, writer):
        while True:
            received.put_nowait(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 204 Done\r\n\r\n")

    tap = await lab.tapped(upstream, causality=Causality.INJECT)
    reader, writer = await tap.connect()
    for number in (1, 2):
        writer.write(b"GET / HTTP/1.1\r\nA: 1\r\n\r\n")
        assert await received.get() == b"GET / HTTP/1.1\r\nA: 1\r\nx-gymtap-parent: a%d\r\n\r\n" % number
        await reader.readuntil(b"\r\n\r\n")
