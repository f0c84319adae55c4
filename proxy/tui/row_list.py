"""The rows of a capture as the screens show them: filtered, sorted, growing, with what is known of their causes.

One thread adds rows, another adds diagnoses, the screen reads: an added row is appended and never moves, and what is
shown is a list of positions that is replaced whole, so that nobody waits for a lock.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gymtap.proxy.core.filter import Filter, parse
from gymtap.proxy.store import Identity, RowLine
from gymtap.proxy.tui.notes import NO_NOTE, Note, Notes
from gymtap.schemas import Diagnosis


class Order(StrEnum):
    """What the rows are sorted by; the first is the order in which they began."""

    STARTED = "started"
    ROW = "row"
    STATUS = "status"
    REWARD = "reward"
    TIME = "time"
    HOPS = "hops"
    FAILED = "failed"
    LAYER = "layer"


def full_label(line: RowLine) -> str:
    """`12.3~agent`: what names the row for certain."""
    return f"{line.label}~{line.agent}" if line.agent else line.label


@dataclass(slots=True)
class Listed:
    """A row with what is known beside it: what a filter asks (`gymtap.proxy.core.filter.Subject`).

    Of a hundred thousand of these most are asked one thing, so what costs more is made when it is asked for.
    """

    line: RowLine
    diagnosis: Diagnosis | None
    notes: Notes

    @property
    def note(self) -> Note:
        """What a person put to it."""
        return self.notes.of(full_label(self.line)) if len(self.notes) else NO_NOTE

    @property
    def label(self) -> str:  # noqa: D102  # these are the fields of Subject, described there
        return self.line.label

    @property
    def run(self) -> int:  # noqa: D102
        return self.line.run

    @property
    def task(self) -> int | None:  # noqa: D102
        return self.line.task

    @property
    def rollout(self) -> int | None:  # noqa: D102
        return self.line.rollout

    @property
    def attempt(self) -> int:  # noqa: D102
        return self.line.attempt

    @property
    def agent(self) -> str | None:  # noqa: D102
        return self.line.agent

    @property
    def state(self) -> str:  # noqa: D102
        return self.line.state

    @property
    def status(self) -> int | None:  # noqa: D102
        return self.line.status

    @property
    def reward(self) -> float | None:  # noqa: D102
        return self.line.reward

    @property
    def duration_ms(self) -> float | None:  # noqa: D102
        return self.line.duration_ms

    @property
    def exchanges(self) -> int:  # noqa: D102
        return self.line.exchanges

    @property
    def failed(self) -> int:  # noqa: D102
        return self.line.failed

    @property
    def failed_at(self) -> frozenset[str]:  # noqa: D102
        return self.line.failed_at

    @property
    def layer(self) -> str | None:  # noqa: D102
        return str(self.diagnosis.layer) if self.diagnosis else None

    @property
    def cause(self) -> str | None:  # noqa: D102
        return self.diagnosis.fingerprint if self.diagnosis else None

    @property
    def words(self) -> str:  # noqa: D102
        told = (self.diagnosis.symptom, self.diagnosis.cause, self.message) if self.diagnosis else ()
        return "\n".join((self.label, self.line.agent or "", self.line.error or "", self.note.comment, *told))

    @property
    def message(self) -> str:
        """The innermost message, or the error that the row ended in."""
        if self.diagnosis and self.diagnosis.innermost and self.diagnosis.innermost.leaf.message:
            return self.diagnosis.innermost.leaf.message
        return self.line.error or ""

    @property
    def marked(self) -> bool:  # noqa: D102
        return self.note.marked


_KEYS: dict[Order, Callable[[Listed], tuple[float, str]]] = {
    Order.STARTED: lambda row: (row.line.started_ns, ""),
    Order.ROW: lambda row: (
        row.line.run * 1e12 + (row.task if row.task is not None else 1e9) * 1e3 + (row.rollout or 0),
        row.label,
    ),
    Order.STATUS: lambda row: (-(row.status or 0), ""),
    Order.REWARD: lambda row: (-1e18 if row.reward is None else row.reward, ""),
    Order.TIME: lambda row: (-(row.duration_ms or 0.0), ""),
    Order.HOPS: lambda row: (-row.exchanges, ""),
    Order.FAILED: lambda row: (-row.failed, ""),
    Order.LAYER: lambda row: (row.layer in {None, "none"}, row.layer or ""),
}


@dataclass(frozen=True)
class View:
    """What is shown: positions in the list, and what they were chosen and sorted by."""

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
        self.complete = False
        self.version = 0
        self._at: dict[Identity, int] = {}
        self.view = View(range(0), parse(""))

    def put(self, lines: Iterable[RowLine]) -> None:
        """Add rows, and replace those that are there."""
        for line in lines:
            at = self._at.setdefault(line.identity, len(self.lines))
            if at == len(self.lines):
                self.diagnoses.append(None)
                self.lines.append(line)
            elif self.lines[at] != line:
                self.lines[at] = line
                self.diagnoses[at] = None
        self.version += 1

    def diagnosed(self, found: dict[int, Diagnosis]) -> None:
        """Take diagnoses in, by position."""
        for at, diagnosis in found.items():
            self.diagnoses[at] = diagnosis
        self.version += 1

    def listed(self, at: int) -> Listed:
        """The row at a position of the list."""
        return Listed(self.lines[at], self.diagnoses[at], self.notes)

    def position(self, identity: Identity) -> int | None:
        """Where a row is in the list."""
        return self._at.get(identity)

    def choose(self, wanted: Filter, order: Order, *, backwards: bool = False) -> View:
        """Filter and sort all rows: not quick when they are many, so ask it in a thread. Sorting keeps equals."""
        chosen: Sequence[int] = range(len(self.lines))
        if wanted.tests:
            chosen = [at for at in chosen if wanted(self.listed(at))]
        if order is not Order.STARTED:
            key = _KEYS[order]
            chosen = sorted(chosen, key=lambda at: key(self.listed(at)))
        return View(chosen[::-1] if backwards else chosen, wanted, order, backwards)

    def show(self, view: View) -> None:
        """Make that what is shown."""
        self.view = view
        self.version += 1
