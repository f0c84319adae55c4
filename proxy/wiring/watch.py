"""Tells a person at a tap that the run hangs, while it hangs: one line for each new alarm.

It reads the capture now and then, on a thread, as every reader does, so it cannot slow the traffic down; and what it
cannot read, it says nothing about.
"""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.core.in_flight import Alarm, AlarmKind, alarms
from gymtap.proxy.store import Capture

EVERY_S = 5.0
LATEST = 2_000
"""How many of the latest exchanges are looked at."""


@asynccontextmanager
async def watching(capture: Path, say: Callable[[str], None], every_s: float = EVERY_S) -> AsyncIterator[None]:
    """Watch for as long as the block runs. What goes wrong with the watch itself is said, and ends nothing."""
    task = asyncio.ensure_future(_watch(capture, say, every_s))
    try:
        yield
    finally:
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - the run went well, whatever the watch met
            say(f"gymtap: alarms were not watched to the end: {type(error).__name__}: {error}")


async def _watch(capture: Path, say: Callable[[str], None], every_s: float) -> None:
    """Say each alarm once; one that has passed and comes again is said again."""
    known: set[tuple[AlarmKind, str]] = set()
    while True:
        await asyncio.sleep(every_s)
        found = await asyncio.get_running_loop().run_in_executor(None, alarms_of, capture)
        first = {(alarm.kind, alarm.server): alarm for alarm in reversed(found)}  # of many rows' storms, one is said
        for key, alarm in first.items():
            if key not in known:
                kind, named = str(alarm.kind).replace("_", " "), shlex.quote(str(capture))
                say(f"gymtap: {kind}: {alarm.message}; see `gymtap inflight {named}`")
        known = set(first)


def alarms_of(capture: Path) -> list[Alarm]:
    """What is wrong in a capture right now; nothing where it cannot be read yet."""
    try:
        with Capture(capture) as opened:
            return alarms(opened.open_exchanges(), opened.latest(LATEST), time.time_ns())
    except (GymtapError, OSError):  # OSError: no file may be opened now, say
        return []
