"""Accepts connections, and leaves them waiting in the kernel's queue while no file may be opened.

asyncio's own server would take a connection with the last descriptor, so that its call of the upstream fails; would
then try as often as its backlog is long, all at once, every second; and goes on with that after it was closed.
"""

import asyncio
import os
import socket
from collections.abc import Callable

RETRY_S = 1.0
"""How long connections wait before the next try, where the system has no file, or no memory, for one."""
_AT_ONCE = 64
"""How many connections are accepted before others, that are open already, are served."""

type Accepted = Callable[[int], asyncio.Protocol]
"""Makes the protocol of a connection; what it is given is a descriptor, which it has to close."""


class Accepting:
    """Accepts from `sock`, a listening socket of its own, until it is closed.

    Each connection comes with a spare descriptor: the place that its connection to the upstream will take.
    """

    def __init__(self, sock: socket.socket, accepted: Accepted) -> None:
        self._sock = sock
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._arriving: set[asyncio.Task[object]] = set()
        self._listen()

    async def close(self) -> None:
        """Accept no more; connections that are being accepted arrive first. Twice is harmless."""
        if self._retry is not None:
            self._retry.cancel()
        elif self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
        self._sock.close()
        await asyncio.gather(*self._arriving, return_exceptions=True)

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._sock, self._readable)

    def _readable(self) -> None:
        try:
            for _ in range(_AT_ONCE):
                self._accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass
        except OSError as error:
            self._loop.call_exception_handler({"message": "cannot accept a connection", "exception": error})
            self._loop.remove_reader(self._sock)
            self._retry = self._loop.call_later(RETRY_S, self._listen)

    def _accept(self) -> None:
        spare = os.dup(self._sock.fileno())
        try:
            sock, _ = self._sock.accept()
        except OSError:
            os.close(spare)
            raise
        sock.setblocking(False)
        arriving = self._loop.create_task(self._loop.connect_accepted_socket(lambda: self._accepted(spare), sock))
        self._arriving.add(arriving)
        arriving.add_done_callback(self._arriving.discard)
