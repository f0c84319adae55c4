"""The rows of a capture as the screens show them: filtered, sorted, growing, with what is known of their causes.

One thread adds rows, another adds diagnoses, the screen reads: an added row is appended and never moves, and what a
page shows is a list of positions of its own that is replaced whole, so that nobody waits for a lock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gymtap.proxy.core.filter import Filter
from gymtap.proxy.store import Identity, RowLine
from gymtap.proxy.store.listed import SORT_KEYS, Listed, Order
from gymtap.proxy.store.notes import Notes
from gymtap.schemas import Diagnosis, RowState


@dataclass(frozen=True)
class View:
    """What is shown: positions in the list, and what they were chosen and sorted by. Each page of rows has its own."""

    positions: Sequence[int]
    filter: Filter
    order: Order = Order.STARTED
    backwards: bool = False


class RowList:
    """All rows of a capture. `version` grows with every change."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.lines: list[RowLine] = []
        self.diagnoses: list[Diagnosis | None] = []
        self.open_at: Mapping[Identity, set[str]] = {}
        self.complete = False
        self.version = 0
        self._at: dict[Identity, int] = {}

    def put(self, lines: Iterable[RowLine]) -> None:
        """Add rows, and replace those that are there."""
        for line in lines:
            at = self._at.setdefault(line.identity, len(self.lines))
            if at == len(self.lines):
                self.diagnoses.append(None)
                self.lines.append(line)
            elif self.lines[at] != line:
                self.lines[at] = line
                if line.state is not RowState.RUNNING:  # why it hangs is known until it is looked at again
                    self.diagnoses[at] = None
        self.version += 1

    def diagnosed(self, found: Mapping[int, Diagnosis | None]) -> None:
        """Take diagnoses in, by position; None takes one away."""
        for at, diagnosis in found.items():
            self.diagnoses[at] = diagnosis
        self.version += 1

    def listed(self, at: int) -> Listed:
        """The row at a position of the list."""
        line, is_open = self.lines[at], self.open_at
        return Listed(line, self.diagnoses[at], self.notes, is_open.get(line.identity, ()) if is_open else ())

    def position(self, identity: Identity) -> int | None:
        """Where a row is in the list."""
        return self._at.get(identity)

    def choose(self, wanted: Filter, order: Order, *, backwards: bool = False) -> View:
        """Filter and sort all rows: not quick when they are many, so ask it in a thread. Sorting keeps equals."""
        chosen: Sequence[int] = range(len(self.lines))
        if wanted.tests:
            chosen = [at for at in chosen if wanted(self.listed(at))]
        if order is not Order.STARTED:
            key = SORT_KEYS[order]
            chosen = sorted(chosen, key=lambda at: key(self.listed(at)))
        return View(chosen[::-1] if backwards else chosen, wanted, order, backwards)
