"""Leaves as with `Q` when a signal says so, and by force where that takes too long.

It can take for ever: the escape sequences by which one leaves are written to the terminal, and a terminal that nobody
reads any more (a connection that is dead, a window that stands still) takes none.
"""

import asyncio
import os
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any

_PATIENCE_S = 5.0
_INPUT = 0


@contextmanager
def heeded(leave: Callable[[int], None]) -> Iterator[None]:
    """On SIGTERM and SIGHUP, call `leave` in the running loop with the status to end with, which says by what.

    The process is ended if the block has not then ended in time. It is no handler of the loop's, which may itself be
    waiting for the terminal. In another thread than the first nothing is heeded.
    """
    loop = asyncio.get_running_loop()
    modes = _modes()
    forces: list[Timer] = []

    def told(number: int, _: object) -> None:
        loop.call_soon_threadsafe(leave, 128 + number)
        forces.append(Timer(_PATIENCE_S, _by_force, (modes, 128 + number)))
        forces[-1].daemon = True
        forces[-1].start()

    before = {}
    with suppress(ValueError):
        before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for force in forces:
            force.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _modes() -> list[Any] | None:
    try:
        return termios.tcgetattr(_INPUT)
    except termios.error:  # no terminal
        return None


def _by_force(modes: list[Any] | None, status: int) -> None:
    """End without the terminal's consent; what is typed there is seen again, at least."""
    if modes is not None:
        with suppress(termios.error):
            termios.tcsetattr(_INPUT, termios.TCSANOW, modes)
    os._exit(status)
