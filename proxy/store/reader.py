"""Reading a capture: all its writers' files merged, while they are written or after.

Rows are computed here, not stored: a row is its outermost /run plus counts over what is attributed to it, so
a revised attribution can never leave a stale row behind. A file is opened read-only and never changed; one of
an older format is migrated in a private copy in memory.
"""

import heapq
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import orjson
import zstandard

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.store.bodies import splice
from gymtap.proxy.store.format import CONTRACT_KEY, SUFFIX, migrate
from gymtap.proxy.store.liveness import Process, is_alive
from gymtap.proxy.store.row_lines import PIECE_ROWS, Identity, RowLine, changed_rows, failure_shapes, of_rows, pieces
from gymtap.schemas import (
    FORMAT_VERSION,
    Attribution,
    Body,
    Call,
    CaptureInfo,
    Exchange,
    Finding,
    Gap,
    GapKind,
    Row,
    RowKey,
    RowState,
    Server,
    ServerContract,
    ServerKind,
    State,
    TransportError,
    TransportErrorKind,
)

_MAGIC = b"SQLite format 3\0"

_KEYS_AT_ONCE = 1000

_DIED = TransportError(kind=TransportErrorKind.TAP_STOPPED, message="the tap died while this was open")

_EXCHANGE = """
SELECT e.id, e.server, e.kind, e.call, e.state, e.started_ns, e.duration_ms, e.parent, e.attempt, e.row,
    e.attribution, e.record, COALESCE(e.caller, p.kind) AS caller
FROM exchanges e LEFT JOIN exchanges p ON p.id = e.parent
"""

_RUNS = """
SELECT e.row, e.id, e.parent, e.state, e.started_ns, e.duration_ms, e.status, e.error, e.reward
FROM exchanges e WHERE e.call = 'run' AND e.row IS NOT NULL
"""

type Cursor = Mapping[str, int]
"""How far `changes` has been read, by writer."""


@dataclass(slots=True)
class _Run:
    """A /run exchange, as its row needs it."""

    id: str
    parent: str | None
    state: str
    started_ns: int
    duration_ms: float | None
    status: int | None
    error: str | None
    reward: float | None


@dataclass(slots=True)
class _Tally:
    """What is known of one row over all writers."""

    runs: list[_Run] = field(default_factory=list)
    exchanges: int = 0
    failed: int = 0
    opened: int = 0
    started_ns: int = 0


class _Source:
    """One writer's file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.name = file.name.removesuffix(SUFFIX)
        self.connection = _connect(file)
        weakref.finalize(self, self.connection.close)  # nobody closes a Capture
        self.meta = dict(self.all("SELECT key, value FROM meta"))
        version = int(self.meta["format"])
        if version < FORMAT_VERSION:
            self.connection = _copy(self.connection)
            weakref.finalize(self, self.connection.close)
            migrate(self.connection, version)
        self._keys: dict[int, RowKey] = {}

    def all(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise _damaged(self.file, error) from error

    def each(self, statement: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            with closing(self.connection.execute(statement, values)) as cursor:
                yield from cursor
        except sqlite3.Error as error:
            raise _damaged(self.file, error) from error

    def refresh(self) -> None:
        """Read again what changes while it is written."""
        self.meta = dict(self.all("SELECT key, value FROM meta"))

    @property
    def ended_ns(self) -> int | None:
        ended = self.meta.get("ended_ns")
        return None if ended is None else int(ended)

    def died(self, now_ns: int) -> bool:
        """Whether its writer neither ended it nor runs."""
        if self.ended_ns is not None:
            return False
        process = Process(self.meta["place"], int(self.meta["pid"]), self.meta["started"])
        if is_alive(process, now_ns - self.heartbeat_ns):
            return False
        self.refresh()  # it may have ended between the two looks
        return self.ended_ns is None

    @property
    def heartbeat_ns(self) -> int:
        return int(self.meta.get("heartbeat_ns") or self.meta["created_ns"])

    def key(self, row: int) -> RowKey:
        """The row of that number in this file, read with its neighbours: one may be all that is asked of many."""
        if row not in self._keys:
            first = row - row % _KEYS_AT_ONCE
            for number, *parts in self.all(
                "SELECT id, run, task, rollout, attempt, rollout_id, agent FROM rows WHERE id BETWEEN ? AND ?",
                (first, first + _KEYS_AT_ONCE - 1),
            ):
                run, task, rollout, attempt, rollout_id, agent = parts
                if number not in self._keys:
                    self._keys[number] = RowKey.model_construct(
                        run=run, task=task, rollout=rollout, attempt=attempt, rollout_id=rollout_id, agent=agent
                    )
        return self._keys[row]

    def row_numbers(self, key: RowKey) -> list[int]:
        """The numbers of that row in this file; an agent of None matches any."""
        statement = "SELECT id FROM rows WHERE run = ? AND attempt = ? AND task IS ? AND rollout IS ?"
        values: list[Any] = [key.run, key.attempt, key.task, key.rollout]
        if key.rollout_id is not None:
            statement, values = statement + " AND rollout_id IS ?", [*values, key.rollout_id]
        if key.agent is not None:
            statement, values = statement + " AND agent IS ?", [*values, key.agent]
        return [number for (number,) in self.all(statement, tuple(values))]


class Capture:
    """A capture, opened for reading; safe to keep open while it is written.

    `path` is its directory, or a bundle: a single file of the same format. Raises CaptureError, from here or from
    any method, when that is not a capture, was written by a newer gymtap, or is damaged.
    """

    def __init__(self, path: Path, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.path = Path(path)
        self._now_ns = now_ns
        self._known: dict[str, _Source] = {}
        if not self._sources():
            raise CaptureError(
                f"{self.path}: this capture is empty: its tap ended before it could write",
                "`gymtap captures` lists others",
            )

    @staticmethod
    def created_ns(file: Path) -> int | None:
        """When a writer's file was begun; None when it cannot be read."""
        try:
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                found = connection.execute("SELECT value FROM meta WHERE key = 'created_ns'").fetchone()
        except sqlite3.Error:
            return None
        return int(found[0]) if found else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; the capture cannot be read after that. It is a context manager that does so at its end."""
        for source in self._known.values():
            source.connection.close()
        self._known.clear()

    def info(self) -> CaptureInfo:
        """What the capture says of itself."""
        sources = self._sources()
        now_ns = self._now_ns()
        dead = {source.name for source in sources if source.died(now_ns)}
        live = any(source.ended_ns is None and source.name not in dead for source in sources)
        first = min(sources, key=lambda source: int(source.meta["created_ns"]))
        ends = [source.ended_ns for source in sources]
        rows = list(self.rows())
        return CaptureInfo(
            path=str(self.path),
            format=int(first.meta["format"]),
            gymtap_version=first.meta["gymtap_version"],
            created_ns=int(first.meta["created_ns"]),
            ended_ns=None if None in ends else max(end for end in ends if end is not None),
            live=live,
            command=tuple(orjson.loads(first.meta["command"])),
            servers=self.servers(),
            exchanges=sum(source.all("SELECT count(*) FROM exchanges")[0][0] for source in sources),
            open_exchanges=sum(
                source.all("SELECT count(*) FROM exchanges WHERE state = 'open'")[0][0]
                for source in sources
                if source.name not in dead
            ),
            rows=len(rows),
            failed_rows=sum(row.state is RowState.FAILED for row in rows),
            gaps=self.gaps(),
            size_bytes=sum(file.stat().st_size for file in self._kept_files()),
        )

    def servers(self) -> tuple[Server, ...]:
        """All servers that were listened for, in the order in which they appeared."""
        found: dict[str, Server] = {}
        for source in self._sources():
            for name, kind, listen, upstream in source.all("SELECT name, kind, listen, upstream FROM servers"):
                server = Server(name=name, kind=ServerKind(kind), listen=listen, upstream=upstream)
                if name not in found or found[name].kind is ServerKind.UNKNOWN:
                    found[name] = server
        return tuple(found.values())

    def contracts(self) -> tuple[ServerContract, ...]:
        """What the tap learned of the servers' contracts; a document is read by `document`."""
        found: dict[str, ServerContract] = {}
        for source in self._sources():
            for key, text in source.meta.items():
                if key.startswith(CONTRACT_KEY):
                    said = ServerContract.model_validate_json(text)
                    if said.server not in found or found[said.server].digest is None:
                        found[said.server] = said
        return tuple(found.values())

    def document(self, contract: ServerContract) -> bytes | None:
        """A server's OpenAPI document; None where there is none. Raises CaptureError when it was lost."""
        if contract.digest is None:
            return None
        return self.body(Body(digest=contract.digest, size_bytes=contract.size_bytes))

    def gaps(self) -> tuple[Gap, ...]:
        """All gaps, by time, with one for each writer that died."""
        gaps: list[Gap] = []
        for source in self._sources():
            gaps += [Gap.model_validate_json(text) for (text,) in source.all("SELECT gap FROM gaps ORDER BY id")]
            if source.died(self._now_ns()):
                gaps.append(_death(source))
        return tuple(sorted(gaps, key=lambda gap: gap.at_ns))

    def rows(
        self,
        *,
        failed: bool | None = None,
        agent: str | None = None,
        run: int | None = None,
        task: int | None = None,
        state: RowState | None = None,
        limit: int | None = None,
    ) -> Iterator[Row]:
        """Rows by start time. `failed` asks whether the row's /run ended in an error; None asks nothing."""

        def wanted(key: RowKey) -> bool:
            return (
                (agent is None or key.agent == agent)
                and (run is None or key.run == run)
                and (task is None or key.task == task)
            )

        rows = sorted((_row(key, tally) for key, tally in self._tallies(wanted)), key=lambda row: row.started_ns)
        chosen = (
            row
            for row in rows
            if (failed is None or (row.state is RowState.FAILED) is failed) and (state is None or row.state is state)
        )
        return islice(chosen, limit)

    def row(self, key: RowKey) -> Row:
        """That row. An agent of None matches if only one row does. Raises CaptureError naming what is nearby."""

        def wanted(other: RowKey) -> bool:
            return (
                (other.run, other.task, other.rollout, other.attempt) == (key.run, key.task, key.rollout, key.attempt)
                and (key.rollout_id is None or other.rollout_id == key.rollout_id)
                and (key.agent is None or other.agent == key.agent)
            )

        found = [_row(other, tally) for other, tally in self._tallies(wanted)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f"{row.key.label}~{row.key.agent}" for row in found[:5])
            raise CaptureError(f"{key.label} is {len(found)} rows", f"say which: {names}")
        raise CaptureError(f"no row {key.label} in {self.path.name}", self._nearby(key))

    def exchange(self, id: str) -> Exchange:  # noqa: A002  # the noun's own field name
        """That exchange. Raises CaptureError when there is none."""
        for source in self._sources():
            for values in source.all(f"{_EXCHANGE} WHERE e.id = ?", (id,)):
                return self._exchange(source, values)
        raise CaptureError(
            f"no exchange {id} in {self.path.name}", "`gymtap tree ROW` and `gymtap tail` show their ids"
        )

    def exchanges(
        self,
        *,
        row: RowKey | None = None,
        call: Call | None = None,
        kind: ServerKind | None = None,
        server: str | None = None,
        state: State | None = None,
        failed: bool | None = None,
        attributed: bool | None = None,
        since_ns: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Exchange]:
        """Exchanges by start time; None asks nothing. `attributed`: whether its row is known.

        `since_ns`: only those that began then or later, found without a look at those before.
        """
        streams = []
        for source in self._sources():
            died = source.died(self._now_ns())
            where, values = _conditions(
                {"e.call": call, "e.kind": kind, "e.server": server}, state=state, failed=failed, died=died
            )
            if attributed is not None:
                where.append(f"e.row IS {'NOT ' if attributed else ''}NULL")
            if since_ns is not None:
                where.append("e.started_ns >= ?")
                values.append(since_ns)
            if row is not None:
                numbers = source.row_numbers(row)
                where.append(f"e.row IN ({','.join('?' * len(numbers))})")
                values += numbers
            streams.append(self._select(source, where, values, died=died))
        return islice(heapq.merge(*streams, key=lambda exchange: exchange.started_ns), limit)

    def body(self, body: Body | None) -> bytes | None:
        """A body's content, whole; None where there is none, or none was kept. Raises CaptureError for a lost one."""
        return None if body is None or body.digest is None else b"".join(self.body_chunks(body))

    def body_chunks(self, body: Body) -> Iterator[bytes]:
        """A body's stored content, in pieces of at most about 1 MiB for long ones. Raises as `body` does."""
        if body.digest is None:
            return
        writer, draft, spool = body.digest.partition(":")
        for source in self._sources():
            if draft and source.name == writer:
                yield from _segments(source, int(spool))
                return
        digest = b"" if draft else bytes.fromhex(body.digest)
        for source in self._sources():
            spools = source.all("SELECT spool FROM bodies WHERE digest = ?", (digest,))
            if not spools:
                continue
            if spools[0][0] is None:
                yield _whole(source, digest)
            else:
                yield from _segments(source, spools[0][0])
            return
        raise CaptureError(f"body {body.digest[:12]} is not in {self.path.name}", "its capture has a write_failed gap")

    def findings(self, *, exchange: str | None = None, row: RowKey | None = None) -> Iterator[Finding]:
        """Findings in the order in which they were made; of one exchange, or of one row's exchanges."""
        for source in self._sources():
            statement, values = "SELECT finding FROM findings", list[Any]()
            if exchange is not None:
                statement, values = f"{statement} WHERE exchange = ?", [exchange]
            elif row is not None:
                values = source.row_numbers(row)
                marks = ",".join("?" * len(values))
                statement += f" WHERE exchange IN (SELECT id FROM exchanges WHERE row IN ({marks}))"  # noqa: S608  # marks
            for (text,) in source.each(f"{statement} ORDER BY id", tuple(values)):
                yield Finding.model_validate_json(text)

    def error_findings(self) -> dict[RowKey, int]:
        """How many findings of severity `error` each row's exchanges have; rows without are left out."""
        counts: dict[RowKey, int] = {}
        for source in self._sources():
            for row, count in source.all(
                "SELECT e.row, count(*) FROM findings f JOIN exchanges e ON e.id = f.exchange"
                " WHERE f.finding ->> '$.severity' = 'error' AND e.row IS NOT NULL GROUP BY e.row"
            ):
                key = source.key(row)
                counts[key] = counts.get(key, 0) + count
        return counts

    def changes(self, cursor: Cursor | None, *, from_start: bool = False) -> tuple[list[Exchange], Cursor]:
        """Exchanges made or changed since `cursor`, and the cursor to ask with next.

        None begins now, with no exchanges, or with `from_start` at the beginning of the capture.
        """
        begin = cursor is None and not from_start
        seen = dict(cursor or {})
        changed: list[Exchange] = []
        for source in self._sources():
            if begin:
                seen[source.name] = source.all("SELECT COALESCE(max(changed), 0) FROM exchanges")[0][0]
                continue
            last = seen.get(source.name, 0)
            columns = _EXCHANGE.replace("FROM", ", e.changed FROM", 1)
            for *values, number in source.all(f"{columns} WHERE e.changed > ? ORDER BY e.changed", (last,)):
                changed.append(self._exchange(source, tuple(values)))
                seen[source.name] = number
        return changed, MappingProxyType(seen)

    # Long lists and live views

    def row_lines(self, piece_rows: int = PIECE_ROWS) -> Iterator[list[RowLine]]:
        """All rows, light and in pieces, in the order in which they appeared: for lists of any length."""
        return pieces(self._with_death(), piece_rows)

    def row_lines_since(self, cursor: Cursor | None) -> tuple[list[RowLine], Cursor]:
        """The rows that changed since `cursor`, and the cursor to ask with next; None begins now, with none.

        A row that lost an exchange to another, by a revised attribution, is told of when it changes itself.
        """
        sources = self._with_death()
        keys: set[Identity] = set()
        after: dict[str, int] = {}
        for source, _ in sources:
            since = 0 if cursor is not None else source.all("SELECT max(changed) FROM exchanges")[0][0] or 0
            found, after[source.name] = changed_rows(source, (cursor or {}).get(source.name, since))
            keys |= found
        return of_rows(sources, keys) if keys else [], MappingProxyType(after)

    def row_lines_of(self, identities: Iterable[Identity]) -> list[RowLine]:
        """The lines of those rows, without a look at any other; those that are not there are left out."""
        return of_rows(self._with_death(), identities)

    def failure_shapes(self, piece_rows: int = PIECE_ROWS) -> Iterator[dict[Identity, int]]:
        """In pieces, what failed in each row that has failures, as a number: rows of one number have one cause."""
        for source in self._sources():
            (last,) = source.all("SELECT max(id) FROM rows")[0]
            for first in range(0, (last or 0) + 1, piece_rows):
                yield failure_shapes(source, first, first + piece_rows - 1)

    def open_exchanges(self) -> list[Exchange]:
        """What is in flight, the oldest first; nothing of a writer that died."""
        found: list[Exchange] = []
        for source, died in self._with_death():
            if not died:
                found += self._select(source, ["e.state = 'open'"], [], died=False)
        return sorted(found, key=lambda exchange: exchange.started_ns)

    def latest(self, limit: int) -> list[Exchange]:
        """The exchanges that were made or changed last, at most `limit` of each writer, by start time."""
        found: list[Exchange] = []
        for source, died in self._with_death():
            rows = source.all(f"{_EXCHANGE} ORDER BY e.changed DESC LIMIT ?", (limit,))
            found += [self._exchange(source, values, died=died) for values in rows]
        return sorted(found, key=lambda exchange: exchange.started_ns)

    def live(self) -> bool:
        """Whether a tap writes it now."""
        return any(source.ended_ns is None and not died for source, died in self._with_death())

    def count(self, since_ns: int | None = None) -> int:
        """How many exchanges there are, or how many began at `since_ns` or later."""
        where, values = ("", ()) if since_ns is None else (" WHERE started_ns >= ?", (since_ns,))
        statement = f"SELECT count(*) FROM exchanges{where}"  # noqa: S608  # one of two constants
        return sum(int(source.all(statement, values)[0][0]) for source in self._sources())

    # Inside

    def _with_death(self) -> list[tuple[_Source, bool]]:
        now_ns = self._now_ns()
        return [(source, source.died(now_ns)) for source in self._sources()]

    def _sources(self) -> list[_Source]:
        """The writers' files, with those that have come since; a file that is being made is passed over."""
        for file in self._files():
            if file.name not in self._known and _is_ready(file):
                self._known[file.name] = _Source(file)
            elif file.name in self._known:
                self._known[file.name].refresh()
        return list(self._known.values())

    def _files(self) -> list[Path]:
        """The writers' files: those of the directory, or the one file that is a bundle."""
        if self.path.is_file():
            return [self.path]
        if not self.path.is_dir():
            raise CaptureError(f"{self.path}: not a capture", "`gymtap captures` lists them")
        try:
            found = [
                file for file in self.path.iterdir() if file.name.endswith(SUFFIX)
            ]  # glob would pass over a refusal
        except PermissionError as error:
            raise CaptureError(f"{self.path}: {error.strerror}", "run as its owner, or on a copy") from error
        files = sorted(found, key=lambda file: (len(file.name), file.name))
        if not files:
            raise CaptureError(f"{self.path}: not a capture: it holds no writer's file", "`gymtap captures` lists them")
        return files

    def _kept_files(self) -> list[Path]:
        return [self.path] if self.path.is_file() else [file for file in self.path.iterdir() if file.is_file()]

    def _select(self, source: _Source, where: list[str], values: list[Any], *, died: bool) -> Iterator[Exchange]:
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        for found in source.each(f"{_EXCHANGE}{condition} ORDER BY e.started_ns", tuple(values)):
            yield self._exchange(source, found, died=died)

    def _exchange(self, source: _Source, values: tuple[Any, ...], *, died: bool | None = None) -> Exchange:
        name, server, kind, call, state, started_ns, duration_ms, parent, attempt, row, attribution, record, caller = (
            values
        )
        fields: dict[str, Any] = orjson.loads(record)
        if state == State.OPEN:
            _add_drafts(source, name, fields)
        if state == State.OPEN and (source.died(self._now_ns()) if died is None else died):
            state, fields["error"] = State.FAILED, _DIED
        about: dict[str, Any] = orjson.loads(attribution) if attribution else {}
        if row is not None:
            about["row"] = source.key(row)
        return Exchange(
            id=name,
            server=server,
            kind=ServerKind(kind),
            call=Call(call),
            state=State(state),
            started_ns=started_ns,
            duration_ms=duration_ms,
            parent=parent,
            attempt=attempt,
            caller=caller,
            attribution=Attribution(**about),
            **fields,
        )

    def _tallies(self, wanted: Callable[[RowKey], bool]) -> Iterator[tuple[RowKey, _Tally]]:
        tallies: dict[RowKey, _Tally] = {}
        for source in self._sources():
            died = source.died(self._now_ns())
            for number, exchanges, failed, started_ns, opened in source.all(
                "SELECT row, count(*), sum(failed), min(started_ns), sum(state = 'open')"
                " FROM exchanges WHERE row IS NOT NULL GROUP BY row"
            ):
                key = source.key(number)
                if not wanted(key):
                    continue
                tally = tallies.setdefault(key, _Tally(started_ns=started_ns))
                tally.exchanges += exchanges
                tally.failed += failed + (opened if died else 0)
                tally.opened += 0 if died else opened
                tally.started_ns = min(tally.started_ns, started_ns)
            for number, *values in source.each(_RUNS):
                tally_or_none = tallies.get(source.key(number))
                if tally_or_none is not None:
                    run = _Run(*values)
                    if died and run.state == State.OPEN:
                        run.state, run.error = State.FAILED, f"{_DIED.kind}: {_DIED.message}"
                    tally_or_none.runs.append(run)
        yield from tallies.items()

    def _nearby(self, key: RowKey) -> str:
        """What exists that is like the row that does not."""
        rows = [row.key for row in self.rows()]
        if not rows:
            return "this capture has no rows"
        same_task = [other for other in rows if other.task == key.task and key.task is not None]
        names = list(dict.fromkeys(other.label for other in chain(same_task, rows)))[:5]
        return f"there are: {', '.join(names)}{', …' if len(rows) > len(names) else ''}"


def _row(key: RowKey, tally: _Tally) -> Row:
    """The row of what is known of it. Its root is the outermost /run: the first without a /run above it."""
    ids = {run.id for run in tally.runs}
    outermost = [run for run in tally.runs if run.parent not in ids]
    root = min(outermost, key=lambda run: run.started_ns, default=None)
    if root is None:
        state = RowState.RUNNING if tally.opened else RowState.DONE
        return Row(
            key=key,
            state=state,
            root=None,
            started_ns=tally.started_ns,
            exchanges=tally.exchanges,
            failed_exchanges=tally.failed,
        )
    return Row(
        key=key,
        state=_state(root),
        root=root.id,
        started_ns=root.started_ns,
        duration_ms=root.duration_ms,
        status=root.status,
        error=root.error,
        reward=root.reward,
        exchanges=tally.exchanges,
        failed_exchanges=tally.failed,
    )


def _state(root: _Run) -> RowState:
    if root.state == State.OPEN:
        return RowState.RUNNING
    bad = root.state == State.FAILED or root.status is None or root.status >= 400
    return RowState.FAILED if bad else RowState.DONE


def _conditions(
    equal: Mapping[str, str | None], *, state: State | None, failed: bool | None, died: bool
) -> tuple[list[str], list[Any]]:
    """SQL conditions; what a dead writer left open counts as failed."""
    where = [f"{column} = ?" for column, value in equal.items() if value is not None]
    values: list[Any] = [value for value in equal.values() if value is not None]
    if state is not None:
        as_read = f"CASE WHEN e.state = 'open' THEN '{State.FAILED if died else State.OPEN}' ELSE e.state END"
        where.append(f"{as_read} = ?")
        values.append(state)
    if failed is not None:
        as_read = "(e.failed OR e.state = 'open')" if died else "e.failed"
        where.append(as_read if failed else f"NOT {as_read}")
    return where, values


def _death(source: _Source) -> Gap:
    opened = source.all("SELECT count(*) FROM exchanges WHERE state = 'open'")[0][0]
    return Gap(
        kind=GapKind.TAP_DIED,
        at_ns=source.heartbeat_ns,
        detail=f"the tap (writer {source.name}, pid {source.meta['pid']}) ended without closing its capture",
        count=opened,
    )


def _whole(source: _Source, digest: bytes) -> bytes:
    """A body of the table, put together from its predecessors, the first of them stored whole."""
    links: list[tuple[int, int, bytes]] = []
    wanted: bytes | None = digest
    while wanted is not None:
        found = source.all("SELECT base, prefix_bytes, suffix_bytes, data FROM bodies WHERE digest = ?", (wanted,))
        if not found or found[0][3] is None:
            raise CaptureError(f"{source.file}: body {digest.hex()[:12]} is damaged: a predecessor is missing")
        wanted, prefix, suffix, data = found[0]
        links.append((prefix, suffix, _decompress(source, data)))
    content = b""
    for prefix, suffix, new in reversed(links):
        content = splice(content, prefix, new, suffix)
    return content


def _segments(source: _Source, spool: int) -> Iterator[bytes]:
    for (data,) in source.each("SELECT data FROM segments WHERE spool = ? ORDER BY number", (spool,)):
        yield _decompress(source, data)


def _add_drafts(source: _Source, exchange: str, fields: dict[str, Any]) -> None:
    """Give an open exchange what its bodies have brought so far, under the name `WRITER:SPOOL` for want of a digest."""
    for spool, side, size_bytes in source.all(
        "SELECT spool, side, sum(size_bytes) FROM segments WHERE exchange = ? GROUP BY spool", (exchange,)
    ):
        message = fields.get(side)
        if message is not None and message.get("body") is None:
            message["body"] = {"digest": f"{source.name}:{spool}", "size_bytes": size_bytes}


def _decompress(source: _Source, data: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise _damaged(source.file, error) from error


def _is_ready(file: Path) -> bool:
    """Whether a writer has written its first transaction. Raises CaptureError for what is not ours, or is newer."""
    with file.open("rb") as content:
        magic = content.read(len(_MAGIC))
    if not magic:
        return False
    if magic != _MAGIC:
        raise CaptureError(f"{file}: not a capture, or damaged: it is no SQLite file", "`gymtap captures` lists them")
    try:
        with closing(_connect(file)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                return False
            if "meta" not in tables:
                raise CaptureError(f"{file}: not a capture", "`gymtap captures` lists them")
            found = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    except sqlite3.Error as error:
        raise _damaged(file, error) from error
    if found is None:
        return False
    if not found[0].isdecimal():
        raise _damaged(file, ValueError(f"its format is {found[0][:20]!r}"))
    if int(found[0]) > FORMAT_VERSION:
        raise CaptureError(
            f"{file.parent}: capture format {found[0]} is newer than this gymtap's, which is {FORMAT_VERSION}",
            "read it with a newer gymtap",
        )
    return True


def _connect(file: Path) -> sqlite3.Connection:
    """Open read-only. Where the directory cannot be written, SQLite cannot make WAL's index: read the file as it is."""
    place = file.absolute().as_uri()
    connection = sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=5.0, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if os.access(file.parent, os.W_OK):
            raise CaptureError(f"{file}: cannot be read now: {error}", "try again") from error
        connection = sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _damaged(file, error) from error
    return connection


def _copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    connection.backup(memory)
    connection.close()
    return memory


def _damaged(file: Path, error: Exception) -> CaptureError:
    return CaptureError(f"{file}: damaged: {error}", "`sqlite3 FILE .recover` may save what is left")
