"""A row with what is known beside it: how it went, why, what people noted. What filters ask and lists show."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gymtap.proxy.store.notes import NO_NOTE, Note, Notes
from gymtap.proxy.store.reader import Capture
from gymtap.proxy.store.row_lines import Identity, RowLine
from gymtap.schemas import Diagnosis, Exchange, Row, RowKey, RowState


def identity_of(key: RowKey) -> Identity:
    """What a row's line is looked up by."""
    return key.run, key.task, key.rollout, key.attempt, key.rollout_id, key.agent


def named(key: RowKey) -> str:
    """`12.3~agent`: what names the row for certain, as notes do."""
    return f"{key.label}~{key.agent}" if key.agent else key.label


def full_label(line: RowLine) -> str:
    """The same, of a row's line."""
    return named(line.key)


@dataclass(slots=True)
class Listed:
    """A row with what is known beside it: what a filter asks (`gymtap.proxy.core.filter.Subject`).

    Of a hundred thousand of these most are asked one thing, so what costs more is made when it is asked for.
    """

    line: RowLine
    diagnosis: Diagnosis | None
    notes: Notes
    open_at: Collection[str] = ()

    @property
    def note(self) -> Note:
        """What a person put to it."""
        return self.notes.of(full_label(self.line)) if len(self.notes) else NO_NOTE

    @property
    def label(self) -> str:
        return self.line.label

    @property
    def run(self) -> int:
        return self.line.run

    @property
    def task(self) -> int | None:
        return self.line.task

    @property
    def rollout(self) -> int | None:
        return self.line.rollout

    @property
    def attempt(self) -> int:
        return self.line.attempt

    @property
    def agent(self) -> str | None:
        return self.line.agent

    @property
    def state(self) -> str:
        return self.line.state

    @property
    def status(self) -> int | None:
        return self.line.status

    @property
    def reward(self) -> float | None:
        return self.line.reward

    @property
    def duration_ms(self) -> float | None:
        return self.line.duration_ms

    @property
    def exchanges(self) -> int:
        return self.line.exchanges

    @property
    def failed(self) -> int:
        return self.line.failed

    @property
    def began_ns(self) -> int:
        return self.line.started_ns

    @property
    def failed_at(self) -> frozenset[str]:
        return self.line.failed_at

    @property
    def layer(self) -> str | None:
        return str(self.diagnosis.layer) if self.diagnosis else None

    @property
    def cause(self) -> str | None:
        return self.diagnosis.fingerprint if self.diagnosis else None

    @property
    def words(self) -> str:
        told = (self.diagnosis.symptom, self.diagnosis.cause, self.message) if self.diagnosis else ()
        return "\n".join((self.label, self.line.agent or "", self.line.error or "", self.note.comment, *told))

    @property
    def message(self) -> str:
        """The innermost message, or the error that the row ended in."""
        if self.diagnosis and self.diagnosis.innermost and self.diagnosis.innermost.leaf.message:
            return self.diagnosis.innermost.leaf.message
        return self.line.error or ""

    @property
    def marked(self) -> bool:
        return self.note.marked


def listed(
    capture: Capture, diagnoses: Callable[[list[RowLine]], Mapping[Identity, Diagnosis]] = lambda _: {}
) -> list[Listed]:
    """All rows of a capture, in the order in which they began. `diagnoses` brings what is known of them."""
    lines = sorted((line for piece in capture.row_lines() for line in piece), key=lambda line: line.started_ns)
    known, notes, is_open = diagnoses(lines), Notes(capture.path), open_at(capture.open_exchanges())
    return [Listed(line, known.get(line.identity), notes, is_open.get(line.identity, ())) for line in lines]


def open_at(exchanges: Iterable[Exchange]) -> dict[Identity, set[str]]:
    """By row, at which calls and server kinds exchanges of it are open."""
    found: dict[Identity, set[str]] = {}
    for one in exchanges:
        if one.attribution.row is not None:
            found.setdefault(identity_of(one.attribution.row), set()).update((str(one.call), str(one.kind)))
    return found


def as_row(line: RowLine) -> Row:
    """The row of a line."""
    return Row(
        key=line.key,
        state=line.state,
        root=line.root,
        started_ns=line.started_ns,
        duration_ms=line.duration_ms,
        status=line.status,
        error=line.error,
        reward=line.reward,
        exchanges=line.exchanges,
        failed_exchanges=line.failed,
    )


class Order(StrEnum):
    """What rows are sorted by; the first is the order in which they began."""

    STARTED = "started"
    ROW = "row"
    STATUS = "status"
    REWARD = "reward"
    TIME = "time"
    HOPS = "hops"
    FAILED = "failed"
    LAYER = "layer"


def _place(row: Listed) -> tuple[int, bool, int, int, int, str, str]:
    """By run, task, rollout and attempt; rows known by their id alone come last."""
    key = row.line
    by_id = key.task is None
    return key.run, by_id, key.task or 0, key.rollout or 0, key.attempt, key.rollout_id or "", key.agent or ""


def _length(row: Listed) -> tuple[bool, float]:
    """What still runs, the oldest first; then the longest."""
    running = row.line.state is RowState.RUNNING
    return not running, row.line.started_ns if running else -(row.duration_ms or 0.0)


SORT_KEYS: Mapping[Order, Callable[[Listed], Any]] = {
    Order.STARTED: lambda row: row.line.started_ns,
    Order.ROW: _place,
    Order.STATUS: lambda row: -(row.status or 0),
    Order.REWARD: lambda row: (row.reward is None, row.reward or 0.0),
    Order.TIME: _length,
    Order.HOPS: lambda row: -row.exchanges,
    Order.FAILED: lambda row: -row.failed,
    Order.LAYER: lambda row: (row.layer in {None, "none"}, row.layer or ""),
}
"""Figures begin with the most, but for the reward, which begins with the least; no reward and no layer come last."""
