"""An engine on loopback between raw sockets: what a test sends is what goes out, and so for what it sees."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from gymtap.proxy.core.events import Ended, Event, Tape
from gymtap.proxy.engine import Causality, Engine, Listener
from gymtap.schemas import Server

type Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

TAPE_BYTES = 8 * 2**20


class WatchedTape(Tape):
    """A tape that a test can wait on."""

    def __init__(self) -> None:
        super().__init__(TAPE_BYTES)
        self.seen: list[Event] = []
        self._changed = asyncio.Event()

    def put(self, event: Event) -> None:
        super().put(event)
        self._changed.set()

    async def until(self, wanted: Callable[[list[Event]], bool]) -> list[Event]:
        """Everything so far, once it is what the test waits for."""
        while True:
            self.seen += self.drain()
            if wanted(self.seen):
                return self.seen
            self._changed.clear()
            await self._changed.wait()

    async def ended(self, number: int = 1) -> Ended:
        def over(events: list[Event]) -> bool:
            return any(isinstance(event, Ended) and event.number == number for event in events)

        events = await self.until(over)
        return next(event for event in events if isinstance(event, Ended) and event.number == number)


@dataclass
class Tapped:
    """A listener in front of an upstream."""

    engine: Engine
    listener: Listener
    tape: WatchedTape
    stack: AsyncExitStack

    @property
    def port(self) -> int:
        port = urlsplit(self.listener.server.listen).port
        assert port is not None
        return port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
        self.stack.callback(writer.close)
        return reader, writer


class Lab:
    """Starts upstreams and taps, and stops them with the test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def serve(self, handler: Handler, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> int:
        """A raw server; each connection is its handler's, and is closed after it."""
        tasks: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(handle(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        async def stop() -> None:
            server.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        server = await asyncio.start_server(accept, host, 0, ssl=tls, backlog=4096, limit=2**22)
        self._stack.push_async_callback(stop)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def tap(
        self,
        upstream: int | str,
        *,
        causality: Causality = Causality.OFF,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], int] | None = None,
    ) -> Tapped:
        url = f"http://127.0.0.1:{upstream}" if isinstance(upstream, int) else upstream
        tape = WatchedTape()
        engine = Engine(tape, wall_ns=clock, mono_ns=clock) if clock else Engine(tape)
        self._stack.push_async_callback(engine.close)
        server = Server(name="policy", listen="http://127.0.0.1:0", upstream=url)
        return Tapped(engine, await engine.listen(server, causality=causality, tls=tls), tape, self._stack)

    async def tapped(self, handler: Handler, *, causality: Causality = Causality.OFF) -> Tapped:
        """A tap in front of a raw server."""
        return await self.tap(await self.serve(handler), causality=causality)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        yield Lab(stack)
