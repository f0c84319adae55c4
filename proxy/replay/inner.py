"""The hops inside a replay, as a tap that still runs sees them.

A replay through a tap carries a mark in the causality header, which the tap takes off and records as the
parent; so what the replay caused is found in the tap's own capture. It is only read: the tap writes it.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gymtap.proxy.replay.load import recorded
from gymtap.proxy.replay.recorded import Recorded, in_order
from gymtap.proxy.replay.send import Route
from gymtap.proxy.store import Capture, Cursor
from gymtap.schemas import Exchange, Method, State

_WAIT_S = 3.0
"""How long the tap may take to write what has ended: it commits several times a second."""
_LOOK_S = 0.05
_LOOKED_AT = 2_000
"""How many exchanges are looked at to learn what a tap does with the header: a few rows tell."""


class Inside:
    """Reads what a running tap records of a replay."""

    def __init__(self, capture: Path) -> None:
        self._capture = Capture(capture)

    def marked(self, routes: Mapping[str, Route]) -> dict[str, Route]:
        """The routes, marked where they lead through this tap and it has taken causality headers off there before."""
        listening = {server.listen.rstrip("/"): server.name for server in self._capture.servers()}
        reading = self._reading()
        return {name: replace(route, marked=listening.get(route.base) in reading) for name, route in routes.items()}

    def _reading(self) -> set[str]:
        """The servers in front of which the tap takes the header off: it read one there, or put its own there."""
        reading: set[str] = set()
        servers: dict[str, str] = {}
        for one in self._capture.exchanges(attributed=True, limit=_LOOKED_AT):
            servers[one.id] = one.server
            if one.attribution.method is Method.CAUSALITY:
                reading |= {one.server, servers.get(one.parent or "", one.server)}
        return reading

    def now(self) -> Cursor:
        """Where its capture stands."""
        return self._capture.changes(None)[1]

    async def caused(self, mark: str, since: Cursor, expected: int) -> list[Recorded]:
        """What `mark` caused, with the `expected` marked requests themselves; what has come after a few seconds."""
        seen: dict[str, Exchange] = {}
        deadline = time.monotonic() + _WAIT_S
        while True:
            changed, since = self._capture.changes(since)
            seen.update((one.id, one) for one in changed)
            found = below(mark, seen.values())
            roots = [one for one in found if one.parent == mark]
            settled = len(roots) >= expected and not any(one.state is State.OPEN for one in found)
            if settled or time.monotonic() > deadline:
                return in_order(recorded(self._capture, one) for one in found)
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """Close the capture."""
        self._capture.close()


def below(parent: str, exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Everything under a parent, at any depth."""
    children: dict[str | None, list[Exchange]] = defaultdict(list)
    for one in exchanges:
        children[one.parent].append(one)
    found, waiting = [], [parent]
    while waiting:
        for child in children.pop(waiting.pop(), []):
            found.append(child)
            waiting.append(child.id)
    return found


def paired(
    original: Sequence[Recorded], repeats: Sequence[Recorded]
) -> tuple[list[tuple[Recorded, Recorded | None]], list[Recorded]]:
    """Recorded exchanges with what repeats each: the same call to the same server, counted in order; and the rest."""
    waiting: dict[tuple[str, ...], list[Recorded]] = defaultdict(list)
    for one in in_order(repeats):
        waiting[_place(one)].append(one)
    pairs = [(one, waiting[_place(one)].pop(0) if waiting[_place(one)] else None) for one in in_order(original)]
    return pairs, in_order(one for left in waiting.values() for one in left)


def _place(one: Recorded) -> tuple[str, ...]:
    return one.exchange.server, one.exchange.call, one.path
