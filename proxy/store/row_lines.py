"""Rows as a long list shows them: light, in pieces, and those that changed, at the price of an index.

A capture of a million exchanges is listed while a person waits: everything here is answered from the indexes and the
`/run` exchanges alone, as plain tuples, since models of that many rows would take longer to make than to read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any, NamedTuple, Protocol

from gymtap.schemas import RowKey, RowState, State
from gymtap.schemas.row import row_label

PIECE_ROWS = 10_000


class RowLine(NamedTuple):
    """A row and how it went; the fields are those of `RowKey` and `Row`.

    `failed_at` has the call and the server kind of every exchange that failed.
    """

    run: int
    task: int | None
    rollout: int | None
    attempt: int
    rollout_id: str | None
    agent: str | None
    root: str | None
    state: RowState
    started_ns: int
    duration_ms: float | None
    status: int | None
    error: str | None
    reward: float | None
    exchanges: int
    failed: int
    failed_at: frozenset[str]

    @property
    def key(self) -> RowKey:
        """Which row it is."""
        return RowKey.model_construct(
            run=self.run,
            task=self.task,
            rollout=self.rollout,
            attempt=self.attempt,
            rollout_id=self.rollout_id,
            agent=self.agent,
        )

    @property
    def identity(self) -> "Identity":
        """The fields of its key, to look it up by."""
        return self[:6]

    @property
    def label(self) -> str:
        """As `RowKey.label`."""
        return row_label(self.run, self.task, self.rollout, self.attempt, self.rollout_id)


type Identity = tuple[int, int | None, int | None, int, str | None, str | None]


class Source(Protocol):
    """One writer's file, as it is asked here."""

    def all(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All that a statement finds."""


@dataclass(slots=True)
class _Draft:
    """What is known of one row over all writers; runs: id, parent, state, start, duration, status, error, reward."""

    exchanges: int = 0
    failed: int = 0
    opened: int = 0
    started_ns: int | None = None
    runs: list[tuple[Any, ...]] = field(default_factory=list)
    failed_at: set[str] = field(default_factory=set)


type _Drafts = dict[Identity, _Draft]

_NO_FAILURE: frozenset[str] = frozenset()


def pieces(sources: Sequence[tuple[Source, bool]], size: int = PIECE_ROWS) -> Iterator[list[RowLine]]:
    """All rows, in the order in which they appeared. Each source comes with whether its writer died.

    Several writers may know the same row, so theirs come as one piece.
    """
    known: dict[frozenset[str], frozenset[str]] = {}
    if len(sources) == 1:
        source, died = sources[0]
        (last,) = source.all("SELECT max(id) FROM rows")[0]
        for first in range(0, (last or 0) + 1, size):
            drafts: _Drafts = {}
            _gather(source, drafts, first, first + size - 1, died=died)
            yield _lines(drafts, known)
        return
    merged: _Drafts = {}
    for source, died in sources:
        (last,) = source.all("SELECT max(id) FROM rows")[0]
        _gather(source, merged, 0, last or 0, died=died)
    yield _lines(merged, known)


def of_rows(sources: Sequence[tuple[Source, bool]], keys: Iterable[Identity]) -> list[RowLine]:
    """The lines of certain rows, by their identities; those that began first come first."""
    drafts: _Drafts = {}
    for key in keys:
        for source, died in sources:
            for (number,) in source.all(
                "SELECT id FROM rows WHERE run IS ? AND task IS ? AND rollout IS ? AND attempt IS ?"
                " AND rollout_id IS ? AND agent IS ?",
                key,
            ):
                _gather(source, drafts, number, number, died=died)
    return sorted(_lines(drafts, {}), key=lambda line: line.started_ns)


def failure_shapes(source: Source, first: int, last: int) -> dict[Identity, int]:
    """Of the rows with those numbers that have failures: a number that is the same where the same failed.

    The same is: call, server kind, status, error and the response's bytes, of each failed exchange in turn.
    """
    shapes: dict[Identity, int] = {}
    for run, task, rollout, attempt, rollout_id, agent, *failure in source.all(
        "SELECT r.run, r.task, r.rollout, r.attempt, r.rollout_id, r.agent,"
        " e.call, e.kind, e.status, e.error, json_extract(e.record, '$.response.body.digest')"
        " FROM rows r CROSS JOIN exchanges e INDEXED BY exchanges_by_row ON e.row = r.id AND e.failed = 1"
        " WHERE r.id BETWEEN ? AND ? ORDER BY r.id, e.rowid",
        (first, last),
    ):
        key = (run, task, rollout, attempt, rollout_id, agent and intern(agent))
        shapes[key] = hash((shapes.get(key), *failure))
    return shapes


def changed_rows(source: Source, since: int) -> tuple[set[Identity], int]:
    """The rows whose exchanges changed after `since`, and how far that goes."""
    found = source.all(
        "SELECT DISTINCT r.run, r.task, r.rollout, r.attempt, r.rollout_id, r.agent"
        " FROM exchanges e JOIN rows r ON r.id = e.row WHERE e.changed > ?",
        (since,),
    )
    (until,) = source.all("SELECT max(changed) FROM exchanges")[0]
    return {
        (run, task, rollout, attempt, name, agent) for run, task, rollout, attempt, name, agent in found
    }, until or since


def _gather(source: Source, drafts: _Drafts, first: int, last: int, *, died: bool) -> None:
    """A row that appears meanwhile is none yet: it is told of when what has changed is asked for."""
    span = (first, last)
    mine: defaultdict[int, _Draft] = defaultdict(_Draft)
    mine |= {
        number: drafts.setdefault((run, task, rollout, attempt, rollout_id, agent and intern(agent)), _Draft())
        for number, run, task, rollout, attempt, rollout_id, agent in source.all(
            "SELECT id, run, task, rollout, attempt, rollout_id, agent FROM rows WHERE id BETWEEN ? AND ?", span
        )
    }
    for number, exchanges, failed in source.all(
        "SELECT row, count(*), sum(failed) FROM exchanges INDEXED BY exchanges_by_row"
        " WHERE row BETWEEN ? AND ? GROUP BY row",
        span,
    ):
        draft = mine[number]
        draft.exchanges += exchanges
        draft.failed += failed
    _gather_runs(source, mine, span, died=died)
    _gather_failures(source, mine, span)
    _gather_open(source, mine, span, died=died)
    for number, draft in mine.items():
        if not draft.runs and draft.exchanges and draft.started_ns is None:
            (draft.started_ns,) = source.all("SELECT min(started_ns) FROM exchanges WHERE row = ?", (number,))[0]


def _gather_runs(source: Source, mine: dict[int, _Draft], span: tuple[int, int], *, died: bool) -> None:
    for number, *run in source.all(
        "SELECT row, id, parent, state, started_ns, duration_ms, status, error, reward"
        " FROM exchanges INDEXED BY runs WHERE call = 'run' AND row BETWEEN ? AND ?",
        span,
    ):
        if died and run[2] == State.OPEN:
            run[2], run[6] = State.FAILED, "tap stopped: the tap died while this was open"
        mine[number].runs.append(tuple(run))


def _gather_failures(source: Source, mine: dict[int, _Draft], span: tuple[int, int]) -> None:
    for number, call, kind in source.all(
        "SELECT row, call, kind FROM exchanges INDEXED BY exchanges_by_row WHERE row BETWEEN ? AND ? AND failed = 1",
        span,
    ):
        mine[number].failed_at.update((intern(call), intern(kind)))


def _gather_open(source: Source, mine: dict[int, _Draft], span: tuple[int, int], *, died: bool) -> None:
    for number, opened in source.all(
        "SELECT row, count(*) FROM exchanges INDEXED BY open_exchanges"
        " WHERE state = 'open' AND row BETWEEN ? AND ? GROUP BY row",
        span,
    ):
        mine[number].opened += 0 if died else opened
        mine[number].failed += opened if died else 0


def _lines(drafts: _Drafts, known: dict[frozenset[str], frozenset[str]]) -> list[RowLine]:
    """The lines of what was gathered; rows without exchanges are none. Equal sets become one, by `known`."""
    lines = []
    for key, draft in drafts.items():
        if draft.exchanges:
            at = frozenset(draft.failed_at) if draft.failed_at else _NO_FAILURE
            lines.append(_line(key, draft, known.setdefault(at, at)))
    return lines


def _line(key: Identity, draft: _Draft, failed_at: frozenset[str]) -> RowLine:
    """The row's root is the outermost /run: the first without a /run above it."""
    runs = draft.runs
    if len(runs) > 1:
        ids = {run[0] for run in runs}
        runs = sorted((run for run in runs if run[1] not in ids), key=lambda run: int(run[3]))
    if not runs:
        state = RowState.RUNNING if draft.opened else RowState.DONE
        started_ns = draft.started_ns or 0
        return RowLine(*key, None, state, started_ns, None, None, None, None, draft.exchanges, draft.failed, failed_at)
    root, _, state_text, started_ns, duration_ms, status, error, reward = runs[0]
    state = _state(state_text, status)
    return RowLine(
        *key, root, state, started_ns, duration_ms, status, error, reward, draft.exchanges, draft.failed, failed_at
    )


def _state(state: str, status: int | None) -> RowState:
    if state == State.OPEN:
        return RowState.RUNNING
    bad = state == State.FAILED or status is None or status >= 400
    return RowState.FAILED if bad else RowState.DONE
