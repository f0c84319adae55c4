"""What a row or an exchange is compared with when nobody says: what it replayed, else the earlier attempt at it.

A replay's capture says in `replay.jsonl` what each of its exchanges repeats. In a run's own capture the earlier attempt
is the one before it (a retry of a call, a second attempt at a row), or the same row in an earlier run: a replay that
went through the tap is recorded as such.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay import load
from gymtap.proxy.replay.inner import paired
from gymtap.proxy.replay.keep import LINKS_NAME
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.store import Capture
from gymtap.proxy.store.listed import identity_of, named
from gymtap.schemas import Exchange, RowKey


@dataclass(frozen=True)
class Place:
    """A row, by its key, or an exchange, by its id, and the capture that it is in."""

    capture: Path
    what: RowKey | str

    @property
    def name(self) -> str:
        """What to type for it."""
        return self.what if isinstance(self.what, str) else named(self.what)

    def read(self) -> list[Recorded]:
        """The exchanges, with their bodies. Raises CaptureError."""
        with Capture(self.capture) as capture:
            if isinstance(self.what, str):
                return [load.recorded(capture, capture.exchange(self.what))]
            return load.row(capture, self.what)


def original(capture: Capture, what: RowKey | str) -> Place:
    """Where the original is. Raises UsageError where there is none, CaptureError where it cannot be read."""
    found = _of_exchange(capture, capture.exchange(what)) if isinstance(what, str) else _of_row(capture, what)
    if found is None:
        name = Place(capture.path, what).name
        raise UsageError(f"{name} replays nothing, and is the first attempt", "name what to compare it with")
    return found


def same_hop(capture: Capture, exchange: Exchange, other: Place) -> Place | None:
    """The exchange that is in another row what this one is in its own; None where that row has none like it."""
    key = exchange.attribution.row
    if key is None or isinstance(other.what, str):
        return None
    pairs, _ = paired(other.read(), load.row(capture, key))
    same = (before for before, after in pairs if after is not None and after.exchange.id == exchange.id)
    return next((Place(other.capture, before.exchange.id) for before in same), None)


def _of_exchange(capture: Capture, exchange: Exchange) -> Place | None:
    for link in _links(capture):
        if link["exchange"] == exchange.id:
            return Place(Path(link["capture"]), link["replays"])
    key = exchange.attribution.row
    if key is None:
        return None
    if (earlier := _attempt_before(capture, exchange)) is not None:
        return Place(capture.path, earlier.id)
    row = _of_row(capture, key)
    return None if row is None else same_hop(capture, exchange, row)


def _attempt_before(capture: Capture, exchange: Exchange) -> Exchange | None:
    def made(one: Exchange) -> tuple[str | None, str, str, str, str]:
        return one.parent, one.server, one.call, one.request.method, one.request.target

    earlier = [
        one
        for one in capture.exchanges(row=exchange.attribution.row)
        if made(one) == made(exchange) and one.attempt == exchange.attempt - 1
    ]
    return max(earlier, key=lambda one: one.started_ns, default=None)


def _of_row(capture: Capture, key: RowKey) -> Place | None:
    if (linked := _linked_row(capture, key)) is not None:
        return linked
    attempts = [{"attempt": attempt} for attempt in range(key.attempt - 1, -1, -1)]
    runs = [{"run": run} for run in range(key.run - 1, 0, -1)]
    for change in (*attempts, *runs):
        earlier = key.model_copy(update=change)
        if capture.row_lines_of([identity_of(earlier)]):
            return Place(capture.path, earlier)
    return None


def _linked_row(capture: Capture, key: RowKey) -> Place | None:
    """The row, in another capture, of what the row's exchanges repeat."""
    links = {link["exchange"]: link for link in _links(capture)}
    for exchange in capture.exchanges(row=key) if links else ():
        if (link := links.get(exchange.id)) is not None:
            with Capture(Path(link["capture"])) as other:
                row = other.exchange(link["replays"]).attribution.row
            return None if row is None else Place(other.path, row)
    return None


def _links(capture: Capture) -> Iterator[Mapping[str, Any]]:
    """The links of a replay's capture that lead somewhere; none of any other."""
    file = capture.path / LINKS_NAME
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        link = json.loads(line)
        if link["replays"] is not None:
            yield link
