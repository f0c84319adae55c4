"""Clients and servers that others wrote, with their own ideas of keep-alive, chunking and cancelling."""

import asyncio
import http.client

import aiohttp
import pytest
from aiohttp import web

from gymtap.proxy.core.events import Ended, Opened
from gymtap.schemas import TransportErrorKind

CALLS = 300


async def pieces(body):
    """A body of unknown length, which aiohttp sends chunked."""
    for at in range(0, len(body), 1000):
        yield body[at : at + 1000]


@pytest.fixture
async def server():
    """An aiohttp application; `/slow` says when it was cancelled."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def echo(request):
        response = web.Response(body=await request.read())
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    async def stream(request):
        response = web.StreamResponse()
        await response.prepare(request)
        async for piece in request.content.iter_any():
            await response.write(piece)
        return response

    async def slow(request):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    app = web.Application(client_max_size=2**24)
    app.add_routes([web.post("/echo", echo), web.post("/stream", stream), web.get("/slow", slow)])
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1], started, cancelled
    await runner.cleanup()


async def test_a_pool_of_kept_connections_gets_every_answer_right(lab, server):
    """Bodies of all sizes, both framings, 50 at a time; one record each."""
    tap = await lab.tap(server[0])
    gate = asyncio.Semaphore(50)

    async def call(session, number):
        body = b"%d," % number * (number * 7 % 3000)
        path = "/stream" if number % 3 else "/echo"
        data = pieces(body) if number % 2 else body
        async with gate, session.post(f"http://127.0.0.1:{tap.port}{path}", data=data) as response:
            return response.status, await response.read() == body, len(response.headers.getall("Set-Cookie", []))

    async with aiohttp.ClientSession() as session:
        answers = await asyncio.gather(*(call(session, number) for number in range(CALLS)))
    assert answers == [(200, True, 0 if number % 3 else 2) for number in range(CALLS)]
    events = await tap.tape.until(lambda events: sum(isinstance(event, Ended) for event in events) == CALLS)
    assert sum(isinstance(event, Opened) for event in events) == CALLS
    assert not [event for event in events if isinstance(event, Ended) and event.error]
    assert len({event.client for event in events if isinstance(event, Opened)}) <= 50


async def test_a_client_that_cancels_cancels_the_handler(lab, server):
    port, started, cancelled = server
    tap = await lab.tap(port)
    async with aiohttp.ClientSession() as session:
        call = asyncio.ensure_future(session.get(f"http://127.0.0.1:{tap.port}/slow"))
        await started.wait()
        call.cancel()
        await cancelled.wait()
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.CLIENT_GONE


async def test_the_standard_librarys_client_keeps_its_connection(lab, server):
    tap = await lab.tap(server[0])

    def calls():
        connection = http.client.HTTPConnection("127.0.0.1", tap.port)
        answers = []
        for body in (b"whole", iter([b"in ", b"pieces"])):
            connection.request("POST", "/stream", body=body)
            answers.append(connection.getresponse().read())
        connection.close()
        return answers

    assert await asyncio.get_running_loop().run_in_executor(None, calls) == [b"whole", b"in pieces"]
    events = await tap.tape.until(lambda events: sum(isinstance(event, Ended) for event in events) == 2)
    assert len({event.client for event in events if isinstance(event, Opened)}) == 1
