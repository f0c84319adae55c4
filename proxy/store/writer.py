"""Writing a capture: everything is gathered in memory and committed in one transaction per drain.

What cannot be written is kept for the next try, up to a limit in bytes; beyond it, it is given up and
counted as a gap. Nothing here raises because a disk refuses, except `create`: the tap fails open.
"""

import hashlib
import os
import sqlite3
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple, Self

import orjson

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.core.flow import Flow
from gymtap.proxy.core.redaction import Redactor
from gymtap.proxy.store.bodies import BodyEncoder, KeptBody
from gymtap.proxy.store.format import CONTRACT_KEY, SUFFIX, TABLES, journal_mode
from gymtap.proxy.store.liveness import HEARTBEAT_NS, this_process
from gymtap.schemas import (
    FORMAT_VERSION,
    Attribution,
    Body,
    Call,
    Exchange,
    Finding,
    Gap,
    GapKind,
    RowKey,
    Server,
    ServerContract,
    ServerKind,
    State,
    TransportError,
    TransportErrorKind,
)

PENDING_LIMIT_BYTES = 64 * 2**20
"""How much is kept for the next try while the disk refuses."""

_ERROR_CHARACTERS = 300
_STATEMENT_BYTES = 64
_RECENT_BODIES = 50_000
_RECENT_ATTRIBUTIONS = 5_000
_UPSERT = """
INSERT INTO exchanges (id, server, kind, call, state, failed, started_ns, duration_ms, status, reward, error,
    caller, parent, attempt, row, attribution, record, changed) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, call = excluded.call, state = excluded.state,
    failed = excluded.failed, duration_ms = excluded.duration_ms, status = excluded.status, reward = excluded.reward,
    error = excluded.error, caller = excluded.caller, parent = excluded.parent, attempt = excluded.attempt,
    row = excluded.row, attribution = excluded.attribution, record = excluded.record, changed = excluded.changed
"""
_UNKNOWN = Attribution()
_STOPPED = TransportError(kind=TransportErrorKind.TAP_STOPPED, message="the tap stopped while this was open")

type _Statement = tuple[str, Sequence[Any]]


@dataclass(slots=True)
class _Entry:
    """An exchange that changed since the last commit, or is still open."""

    flow: Flow
    request: KeptBody | None
    response: KeptBody | None
    state: State = State.OPEN
    caller: str | None = None
    reward: float | None = None


class _Said(NamedTuple):
    """An attribution as it is written."""

    attribution: Attribution
    row: int | None
    text: str | None


@dataclass(slots=True)
class _Loss:
    exchanges: int = 0
    size_bytes: int = 0
    detail: str = ""


@dataclass(slots=True)
class Spool:
    """A body that is too long to hold: written in segments as it comes, named by its digest at its end.

    It is whole only if nothing was given up (`losses`) since it began.
    """

    number: int
    exchange: str
    side: str
    losses: int
    segments: int = 0


class CaptureWriter:
    """One process's file in a capture; use it from one thread at a time (`gap` from any).

    It is the sink that addons write to. `commit` is called by the recorder after each drain. `prefix` is
    the letter that its exchange ids begin with. `lost` counts what could never be written.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        file: Path,
        *,
        redactor: Redactor,
        now_ns: Callable[[], int],
        on_failure: Callable[[str], None] | None,
        pending_limit_bytes: int,
    ) -> None:
        self.file = file
        self.prefix = file.name.removesuffix(SUFFIX)
        self._connection = connection
        weakref.finalize(self, connection.close)  # of a writer that is given up rather than closed
        self._redactor = redactor
        self._now_ns = now_ns
        self._on_failure = on_failure
        self._limit_bytes = pending_limit_bytes
        self._encoder = BodyEncoder()
        self._entries: dict[str, _Entry] = {}
        self._dirty: dict[str, None] = {}
        self._contents: list[tuple[bytes, bytes]] = []  # bodies by their digests, not compressed yet
        self._bodies: list[_Statement] = []  # bodies and findings: what may be given up
        self._facts: list[_Statement] = []  # small things, never given up
        self._updates: list[_Statement] = []  # to exchanges written before; after the others
        self._recent: OrderedDict[bytes, None] = OrderedDict()
        self._said: OrderedDict[int, _Said] = OrderedDict()  # by the identity of the attribution, which it keeps alive
        self._pending_bytes = 0
        self._gaps: list[tuple[str | None, Gap]] = []
        self._named: set[str] = set()
        self._gaps_taken = 0  # by the commit under way; other threads may add meanwhile
        self._gap_count = 0
        self._loss = _Loss()
        self._row_ids: dict[RowKey, int] = {}
        self._servers: dict[str, Server] = {}
        self._spools = count(1)
        self._losses = 0
        self._change = count(1)
        self._heartbeat_ns = 0
        self._failing = ""
        self._closed = False

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        command: Sequence[str] = (),
        redactor: Redactor | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        on_failure: Callable[[str], None] | None = None,
        pending_limit_bytes: int = PENDING_LIMIT_BYTES,
    ) -> Self:
        """Begin a capture, or join one that other processes write, with a file of one's own.

        `command` is redacted. `on_failure` is told of each first refusal of the disk, in one line; a strict
        tap stops there. Raises CaptureError when the directory cannot be made, or holds something else.
        """
        try:
            file = _claim(directory)
            connection = _open(file)
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise CaptureError(
                f"{directory}: cannot keep a capture there: {reason}", "name another directory"
            ) from error
        redactor = redactor or Redactor()
        writer = cls(
            connection,
            file,
            redactor=redactor,
            now_ns=now_ns,
            on_failure=on_failure,
            pending_limit_bytes=pending_limit_bytes,
        )
        writer._begin(redactor.command(command))
        return writer

    # What the tap says

    @property
    def gap_count(self) -> int:
        """How many gaps there are, those included that could not be written yet."""
        return self._gap_count + bool(self._loss.detail)

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers so far, with the kinds that addons found."""
        return tuple(self._servers.values())

    @property
    def redactor(self) -> Redactor:
        """What takes secrets out of the texts that this writer is given."""
        return self._redactor

    def listening(self, server: Server) -> Server:
        """Keep a server; returns it with its kind, where that is known already."""
        known = self._servers.get(server.name)
        if known is server:
            return server
        if known is not None and server.kind is ServerKind.UNKNOWN:
            server = server.model_copy(update={"kind": known.kind})
        if server != known:
            self._servers[server.name] = server
            upstream = self._redactor.text(server.upstream)[0]
            self._facts.append(
                ("INSERT OR REPLACE INTO servers VALUES (?,?,?,?)", (server.name, server.kind, server.listen, upstream))
            )
        return server

    def opened(self, flow: Flow) -> None:
        """The request's head is known. The flow is read again at each commit until it has ended."""
        self._entries[flow.id] = _Entry(flow, None, None)
        self._dirty[flow.id] = None

    def requested(self, flow: Flow, body: KeptBody | None) -> None:
        """The request is whole."""
        self._entry(flow).request = body
        self._dirty[flow.id] = None

    def answered(self, flow: Flow) -> None:
        """The response's head is known."""
        self._entry(flow)
        self._dirty[flow.id] = None

    def ended(self, flow: Flow, request: KeptBody | None, response: KeptBody | None) -> None:
        """The exchange is over."""
        entry = self._entry(flow)
        entry.request, entry.response = request, response
        entry.state = State.FAILED if flow.error is not None else State.DONE
        entry.reward = _reward(flow)
        self._dirty[flow.id] = None

    def store(self, content: bytes) -> str:
        """Keep a whole body, already redacted; returns its digest. Equal bodies are kept once."""
        digest = hashlib.sha256(content).digest()
        if digest not in self._recent:
            self._contents.append((digest, content))
            self._recent[digest] = None
            if len(self._recent) > _RECENT_BODIES:
                self._recent.popitem(last=False)
        return digest.hex()

    def spool(self, exchange: str, side: str) -> Spool:
        """Begin a long body; `side` is `request` or `response`. Segments are readable before its end."""
        return Spool(next(self._spools), exchange, side, self._losses)

    def spool_write(self, spool: Spool, segment: bytes) -> None:
        """Add a segment, already redacted."""
        values = (
            spool.number,
            spool.segments,
            spool.exchange,
            spool.side,
            len(segment),
            self._encoder.compress(segment),
        )
        spool.segments += 1
        self._pend("INSERT INTO segments VALUES (?,?,?,?,?,?)", values, len(values[-1]))

    def spool_end(self, spool: Spool, digest: bytes, size_bytes: int) -> str | None:
        """Name a long body by its digest; if it is there already, this copy goes. None when parts of it were lost."""
        if spool.losses != self._losses:
            self.spool_drop(spool)
            return None
        if self._has(digest):
            self.spool_drop(spool)
        else:
            self._recent[digest] = None
            self._pend(
                "INSERT INTO bodies (digest, size_bytes, spool) VALUES (?,?,?)", (digest, size_bytes, spool.number)
            )
        return digest.hex()

    def spool_drop(self, spool: Spool) -> None:
        """Forget a long body's segments."""
        if spool.segments:
            self._pend("DELETE FROM segments WHERE spool = ?", (spool.number,))

    def add(self, exchange: Exchange, request_body: bytes | None = None, response_body: bytes | None = None) -> None:
        """Keep a whole exchange from elsewhere (an import). Its texts and bodies are redacted here.

        The `Body` records in it are replaced by what is stored; its id must be new in this capture. Nothing is on
        disk before the next `commit`, or `close`.
        """
        flow, request, response = self._flow_of(exchange, request_body, response_body)
        self.listening(flow.server)
        self._entries[exchange.id] = _Entry(flow, request, response, exchange.state, exchange.caller, _reward(flow))
        self._dirty[exchange.id] = None

    # What addons say: core.addon.Sink

    def attribute(self, exchange: str, attribution: Attribution, parent: str | None, attempt: int) -> None:
        """Set or revise an exchange's row, its parent and its attempt."""
        entry = self._entries.get(exchange)
        if entry is not None:
            entry.flow.attribution, entry.flow.parent, entry.flow.attempt = attribution, parent, attempt
            self._dirty[exchange] = None
            return
        said = self._say(attribution)
        values = (said.row, said.text, parent, attempt, next(self._change), exchange)
        self._updates.append(
            ("UPDATE exchanges SET row = ?, attribution = ?, parent = ?, attempt = ?, changed = ? WHERE id = ?", values)
        )

    def classify(self, exchange: str, call: Call) -> None:
        """Set or revise what an exchange asked for."""
        entry = self._entries.get(exchange)
        if entry is not None:
            entry.flow.call = call
            self._dirty[exchange] = None
            return
        self._updates.append(
            ("UPDATE exchanges SET call = ?, changed = ? WHERE id = ?", (call, next(self._change), exchange))
        )

    def identify(self, server: str, kind: ServerKind) -> None:
        """Say what a server is; its exchanges so far are said to be of that kind too."""
        known = self._servers.get(server)
        if known is None or known.kind is kind:
            return
        self.listening(known.model_copy(update={"kind": kind}))
        self._updates.append(
            ("UPDATE exchanges SET kind = ?, changed = ? WHERE server = ?", (kind, next(self._change), server))
        )

    def finding(self, finding: Finding) -> None:
        """Keep a finding, redacted."""
        text = self._redactor.text(finding.model_dump_json(exclude_none=True))[0]
        values = (finding.exchange, finding.rule, text)
        self._pend("INSERT INTO findings (exchange, rule, finding) VALUES (?,?,?)", values, len(text))

    def contract(self, server: str, document: bytes | None, problem: str = "") -> None:
        """Keep a server's OpenAPI document as a body that `meta` names; without one, why there is none."""
        digest = self.store(self._redactor.body(document)[0]) if document is not None else None
        size_bytes = len(document) if document is not None else 0
        said = ServerContract(
            server=server, digest=digest, size_bytes=size_bytes, problem=self._redactor.text(problem)[0] or None
        )
        self._pend(
            "INSERT OR REPLACE INTO meta VALUES (?,?)", (CONTRACT_KEY + server, said.model_dump_json(exclude_none=True))
        )

    def gap(self, gap: Gap) -> None:
        """Count a gap; safe from any thread."""
        self._gap_count += 1
        self._gaps.append((None, gap))

    def recount(self, name: str, gap: Gap) -> None:
        """Count a gap that grows: it takes the place of the last one of that name."""
        self._gap_count += name not in self._named
        self._named.add(name)
        self._gaps.append((name, gap))

    # Committing

    def commit(self) -> bool:
        """Write what is pending; whether all of it is on disk. Never raises for a disk's refusal."""
        now_ns = self._now_ns()
        beat = abs(now_ns - self._heartbeat_ns) >= HEARTBEAT_NS  # a clock may be set back
        self._render_bodies()
        if not (beat or self._dirty or self._bodies or self._facts or self._updates or self._gaps or self._loss.detail):
            return True
        self._render_entries()
        self._gaps_taken = len(self._gaps)
        try:
            self._transact(now_ns)
        except (sqlite3.Error, UnicodeError) as error:
            self._refused(str(error))
            return False
        self._written(now_ns)
        return True

    def close(self) -> None:
        """Write what is left and say that the capture ended well. What cannot be written now is lost, and counted.

        Exchanges that are still open end here, as `tap_stopped`. Closing again does nothing.
        """
        if self._closed:
            return
        self._closed = True
        for entry in self._entries.values():
            if entry.state is State.OPEN:
                entry.flow.error, entry.state = _STOPPED, State.FAILED
                self._dirty[entry.flow.id] = None
        self._facts.append(("INSERT OR REPLACE INTO meta VALUES ('ended_ns', ?)", (str(self._now_ns()),)))
        if not self.commit():
            self._give_up()
            self.commit()
        try:
            # A finished capture is one plain file, readable from a read-only directory; a reader may still be in it.
            self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error:
            pass
        finally:
            self._connection.close()

    # Inside

    def _begin(self, command: tuple[str, ...]) -> None:
        process = this_process()
        facts = {
            "format": str(FORMAT_VERSION),
            "gymtap_version": _release(),
            "created_ns": str(self._now_ns()),
            "command": orjson.dumps(command).decode(),
            "place": process.place,
            "pid": str(process.pid),
            "started": process.started,
        }
        self._facts += [("INSERT INTO meta VALUES (?,?)", fact) for fact in facts.items()]
        if not self.commit():
            self._connection.close()
            raise CaptureError(f"{self.file}: {self._failing}", "name another directory, or make room")

    def _entry(self, flow: Flow) -> _Entry:
        entry = self._entries.get(flow.id)
        if entry is None:
            entry = self._entries[flow.id] = _Entry(flow, None, None)
        return entry

    def _pend(self, statement: str, values: Sequence[Any], size_bytes: int = 0) -> None:
        self._bodies.append((statement, values))
        self._pending_bytes += size_bytes + _STATEMENT_BYTES

    def _has(self, digest: bytes) -> bool:
        if digest in self._recent:
            return True
        try:
            found = self._connection.execute("SELECT 1 FROM bodies WHERE digest = ?", (digest,)).fetchone()
        except sqlite3.Error:
            return False
        return found is not None

    def _row(self, key: RowKey | None) -> int | None:
        if key is None:
            return None
        number = self._row_ids.get(key)
        if number is None:
            number = self._row_ids[key] = len(self._row_ids) + 1
            values = (number, key.run, key.task, key.rollout, key.attempt, key.rollout_id, key.agent)
            self._facts.append(("INSERT INTO rows VALUES (?,?,?,?,?,?,?)", values))
        return number

    def _say(self, attribution: Attribution) -> _Said:
        """Most exchanges are written more than once, and many share what is said of them; it is rendered once."""
        said = self._said.get(id(attribution))
        if said is None:
            text = None
            if attribution != _UNKNOWN:
                text = self._redactor.text(attribution.model_dump_json(exclude_defaults=True, exclude={"row"}))[0]
            said = self._said[id(attribution)] = _Said(attribution, self._row(attribution.row), text)
            if len(self._said) > _RECENT_ATTRIBUTIONS:
                self._said.popitem(last=False)
        return said

    def _render_bodies(self) -> None:
        """Done for many in a row: each takes twice as long where what it needs has left the processor's caches."""
        for digest, content in self._contents:
            stored = self._encoder.encode(content, digest)
            self._pend(
                "INSERT OR IGNORE INTO bodies VALUES (?,?,NULL,?,?,?,?)",
                (digest, stored.size_bytes, stored.base, stored.prefix_bytes, stored.suffix_bytes, stored.data),
                len(stored.data),
            )
        self._contents.clear()

    def _render_entries(self) -> None:
        for name in self._dirty:
            entry = self._entries[name]
            try:
                values = self._values(entry)
                "".join([value for value in values[:-2] if isinstance(value, str)]).encode()  # orjson made the record
            except (TypeError, ValueError) as error:  # a text that is no Unicode, say; the others go on
                detail = f"{name} cannot be written: {type(error).__name__}"
                self.gap(Gap(kind=GapKind.WRITE_FAILED, at_ns=self._now_ns(), detail=detail, count=1, exchange=name))
                del self._entries[name]
                continue
            self._pend(_UPSERT, values, len(values[-2]))
            if entry.state is not State.OPEN:
                del self._entries[name]
        self._dirty.clear()

    def _values(self, entry: _Entry) -> tuple[Any, ...]:
        flow = entry.flow
        server = self.listening(flow.server)
        said = self._say(flow.attribution)
        failed = entry.state is State.FAILED or (flow.status is not None and flow.status >= 400)
        over = entry.state is not State.OPEN
        return (
            flow.id,
            server.name,
            server.kind,
            flow.call,
            entry.state,
            failed,
            flow.started_ns,
            flow.ended_ms if over else None,
            flow.status,
            entry.reward,
            self._error(flow) if failed else None,
            entry.caller,
            flow.parent,
            flow.attempt,
            said.row,
            said.text,
            self._record(entry),
            next(self._change),
        )

    def _record(self, entry: _Entry) -> str:
        flow = entry.flow
        record: dict[str, Any] = {
            "request": {
                "method": flow.method,
                "target": flow.target,
                "headers": flow.request_headers,
                "http_version": flow.http_version,
                "body": _body(entry.request),
            }
        }
        if flow.request_done_ms is not None:
            record["request_done_ms"] = flow.request_done_ms
        if flow.status is not None:
            headers = flow.response_headers
            if entry.state is State.OPEN:  # the addons have not seen them yet
                headers = self._redactor.headers(headers)[0]
            record["response"] = {
                "status": flow.status,
                "reason": flow.reason,
                "headers": headers,
                "body": _body(entry.response),
                "first_byte_ms": flow.first_byte_ms or 0.0,
                "ended_ms": flow.ended_ms if flow.error is None else None,
            }
        if flow.error is not None:
            record["error"] = {"kind": flow.error.kind, "message": self._redactor.text(flow.error.message)[0]}
        return orjson.dumps(record).decode()

    def _error(self, flow: Flow) -> str:
        if flow.error is not None:
            return self._redactor.text(f"{flow.error.kind}: {flow.error.message}")[0][:_ERROR_CHARACTERS]
        body = (flow.response_body or b"")[: 4 * _ERROR_CHARACTERS].decode(errors="replace")
        text = self._redactor.text(" ".join(body.split()))[0]
        return f"{flow.status} {text or flow.reason}".strip()[:_ERROR_CHARACTERS]

    def _flow_of(
        self, exchange: Exchange, request_body: bytes | None, response_body: bytes | None
    ) -> tuple[Flow, KeptBody | None, KeptBody | None]:
        redactor = self._redactor
        asked, answered = exchange.request, exchange.response
        request, request_content = self._import_body(request_body, asked.body)
        response, response_content = self._import_body(response_body, answered.body if answered else None)
        server = self._servers.get(exchange.server) or Server(
            name=exchange.server, kind=exchange.kind, listen="", upstream=""
        )
        flow = Flow(
            id=exchange.id,
            server=server,
            started_ns=exchange.started_ns,
            method=asked.method,
            target=redactor.target(asked.target)[0],
            request_headers=redactor.headers(asked.headers)[0],
            http_version=asked.http_version,
            request_body=request_content,
            request_done_ms=exchange.request_done_ms,
            response_body=response_content,
            ended_ms=exchange.duration_ms,
            error=exchange.error,
            call=exchange.call,
            attribution=exchange.attribution,
            parent=exchange.parent,
            attempt=exchange.attempt,
        )
        if answered is not None:
            flow.status, flow.reason = answered.status, answered.reason
            flow.response_headers = redactor.headers(answered.headers)[0]
            flow.first_byte_ms = answered.first_byte_ms
        return flow, request, response

    def _import_body(self, content: bytes | None, body: Body | None) -> tuple[KeptBody | None, bytes | None]:
        made = KeptBody(None, body.size_bytes, body.encoding, body.missing_bytes, body.redacted) if body else None
        if content is None:
            return made, None
        clean, replaced = self._redactor.body(content)
        made = made or KeptBody(None, len(content))
        return made._replace(digest=self.store(clean), redacted=made.redacted + replaced), clean

    def _transact(self, now_ns: int) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            for statement, alike in groupby((*self._facts, *self._bodies, *self._updates), itemgetter(0)):
                self._connection.executemany(statement, [values for _, values in alike])
            for name, gap in self._all_gaps(now_ns):
                text = self._redactor.text(gap.model_dump_json(exclude_none=True))[0]
                run("INSERT OR REPLACE INTO gaps (name, gap) VALUES (?,?)", (name, text))
            run("INSERT OR REPLACE INTO meta VALUES ('heartbeat_ns', ?)", (str(now_ns),))
            run("COMMIT")
        except (sqlite3.Error, UnicodeError):
            if self._connection.in_transaction:
                run("ROLLBACK")
            raise

    def _all_gaps(self, now_ns: int) -> Iterable[tuple[str | None, Gap]]:
        yield from self._gaps[: self._gaps_taken]
        if self._loss.detail:
            yield None, self._loss_gap(now_ns)

    def _loss_gap(self, now_ns: int) -> Gap:
        loss = self._loss
        return Gap(
            kind=GapKind.WRITE_FAILED,
            at_ns=now_ns,
            detail=loss.detail,
            count=loss.exchanges,
            size_bytes=loss.size_bytes,
        )

    def _written(self, now_ns: int) -> None:
        self._gap_count += bool(self._loss.detail)
        self._loss = _Loss()
        del self._gaps[: self._gaps_taken]
        self._facts.clear()
        self._updates.clear()
        self._drop_bodies()
        self._heartbeat_ns = now_ns
        self._failing = ""

    def _drop_bodies(self) -> None:
        self._bodies.clear()
        self._pending_bytes = 0

    def _refused(self, detail: str) -> None:
        first = not self._failing
        self._failing = detail
        if first and self._on_failure is not None:
            self._on_failure(f"{self.file}: {detail}")
        if self._pending_bytes > self._limit_bytes:
            self._give_up()

    def _give_up(self) -> None:
        """Drop what is pending: its exchanges and bytes become a gap, and no later body builds on a dropped one."""
        dropped = {values[0] for statement, values in self._bodies if statement is _UPSERT}
        self._dirty.update(dict.fromkeys(self._entries))  # those still open get their record later
        self._loss.exchanges += len(dropped - self._entries.keys())
        self._loss.size_bytes += self._pending_bytes
        self._loss.detail = self._failing
        self._losses += 1
        self._drop_bodies()
        self._encoder.forget()
        self._recent.clear()


def _body(body: KeptBody | None) -> dict[str, Any] | None:
    if body is None:
        return None
    record: dict[str, Any] = {"digest": body.digest, "size_bytes": body.size_bytes}
    if body.encoding is not None:
        record["encoding"] = body.encoding
    if body.missing_bytes:
        record["missing_bytes"] = body.missing_bytes
    if body.redacted:
        record["redacted"] = body.redacted
    return record


def _reward(flow: Flow) -> float | None:
    """A /run response's top-level `reward`, when it is a finite number (orjson reads no others)."""
    answer = flow.response_json if flow.call is Call.RUN else None
    reward = answer.get("reward") if isinstance(answer, dict) else None
    return float(reward) if isinstance(reward, int | float) and not isinstance(reward, bool) else None


def _release() -> str:
    try:
        return version("gymtap")
    except PackageNotFoundError:
        return "unknown"


def _letters() -> Iterable[str]:
    yield from ascii_lowercase
    yield from (first + second for first in ascii_lowercase for second in ascii_lowercase)


def _claim(directory: Path) -> Path:
    """Make the next free writer's file, which no other process can then have; 0600 in a 0700 directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    entries = list(directory.iterdir())
    if entries and not any(entry.name.endswith(SUFFIX) for entry in entries):
        raise CaptureError(f"{directory}: not a capture, and not empty", "name a new directory")
    for letter in _letters():
        file = directory / (letter + SUFFIX)
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            continue
        return file
    raise CaptureError(f"{directory}: too many writers", "name a new directory")


def _open(file: Path) -> sqlite3.Connection:
    """The file, begun; where that fails nothing is left of it: an empty capture would be the newest."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=2.0, check_same_thread=False)
    try:
        _begin_file(connection, file)
    except sqlite3.Error:
        connection.close()
        with suppress(OSError):
            for left in file.parent.glob(f"{file.name}*"):  # its journal too
                left.unlink()
            file.parent.rmdir()  # not where others write too
        raise
    return connection


def _begin_file(connection: sqlite3.Connection, file: Path) -> None:
    connection.execute("PRAGMA page_size = 8192")  # several compressed bodies of the usual size to a page
    mode = journal_mode(file.parent)
    set_to = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0]
    if set_to.upper() != mode:
        connection.execute("PRAGMA journal_mode = TRUNCATE")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.executescript(f"BEGIN; {TABLES} COMMIT;")
