"""The engine: one listener per boundary, all of them telling one tape.

It keeps no connection of its own and no state but the exchange counter; what a connection does is in
`gymtap.proxy.engine.connection`.
"""

import asyncio
import itertools
import socket
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.events import Tape
from gymtap.proxy.engine.accept import Accepting
from gymtap.proxy.engine.bind import as_tcp, bind
from gymtap.proxy.engine.boundary import Boundary, Causality, Clock
from gymtap.proxy.engine.connection import Link
from gymtap.proxy.engine.heads import HeadReader
from gymtap.proxy.engine.paths import Paths
from gymtap.proxy.engine.tls import tls_context
from gymtap.schemas import Server

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Listener:
    """One boundary's open port. `server.listen` has the real port."""

    def __init__(self, boundary: Boundary, listening: list[socket.socket]) -> None:
        self.server: Server = boundary.server
        self._boundary = boundary
        self._accepting = [Accepting(sock, lambda spare: Link(boundary, spare)) for sock in listening]

    async def close(self) -> None:
        """Accept no more and abort what is open; those exchanges end as `tap_stopped`. Twice is harmless."""
        self._boundary.closed = True
        for accepting in self._accepting:
            await accepting.close()
        for link in list(self._boundary.links):
            link.stop()
        await asyncio.sleep(0)  # a turn for asyncio to close what was aborted


class Engine:
    """Relays HTTP/1.1 at any number of boundaries and puts what it sees on `tape`; recording never delays it.

    An exchange's id is `prefix` and its number, counted from 1 over all listeners; `next_number` gives the next one,
    to any thread; `paths` are for the engines beside this one. Make and use it on one event loop.
    """

    def __init__(
        self,
        tape: Tape,
        *,
        prefix: str = "a",
        wall_ns: Callable[[], int] = time.time_ns,
        mono_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._tape = tape
        self._prefix = prefix
        self._clock = Clock(wall_ns, mono_ns)
        self.next_number: Callable[[], int] = itertools.count(1).__next__
        self.paths = Paths()
        self._listeners: list[Listener] = []

    async def listen(
        self,
        server: Server,
        *,
        causality: Causality = Causality.OFF,
        tls: ssl.SSLContext | None = None,
        sock: socket.socket | None = None,
    ) -> Listener:
        """Open a boundary: `server.listen` is `http://host:port` (0: any free port), `server.upstream` http or https.

        `tls` is what an https upstream is verified with (None: the system's trust). `sock` is a socket that
        listens already; the engine owns it from then on. Raises ListenError and UsageError.
        """
        loop = asyncio.get_running_loop()
        host, port = _http_address(server.listen, schemes=("http",))
        upstream_host, upstream_port = _http_address(server.upstream, schemes=("http", "https"))
        secure = urlsplit(server.upstream).scheme == "https"
        trust = (tls or tls_context()) if secure else None
        listening = await loop.run_in_executor(None, bind, host, port) if sock is None else [as_tcp(sock)]
        boundary = Boundary(
            server=server.model_copy(update={"listen": _url(host, listening[0].getsockname()[1])}),
            causality=causality,
            host=upstream_host,
            port=upstream_port,
            tls=trust,
            tape=self._tape,
            clock=self._clock,
            reader=HeadReader(loop),
            next_number=self.next_number,
            prefix=self._prefix,
            paths=self.paths,
        )
        listener = Listener(boundary, listening)
        self._listeners.append(listener)
        return listener

    async def close(self) -> None:
        """Close all listeners."""
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()


def _http_address(url: str, *, schemes: tuple[str, ...]) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is not an address: {error}", "write http://host:port") from None
    if parts.scheme not in schemes or not parts.hostname:
        raise UsageError(f"{url!r} is not an address", f"write {schemes[-1]}://host:port")
    return parts.hostname, _DEFAULT_PORTS[parts.scheme] if port is None else port


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
