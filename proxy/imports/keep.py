"""From recordings to a capture: what others recorded goes over the tape in the order of time, through all addons.

Everything is read before the capture is made, so a file that cannot be read leaves nothing half done; that holds
all bodies in memory. What a tap recorded itself is kept as it is, under its own ids unless they are taken.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gymtap.addons.contracts import Contracts
from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.events import Answered, Ended, Event, Opened, RequestData, RequestDone, ResponseData, Tape
from gymtap.proxy.core.recorded import Kept, Recorded, Recording
from gymtap.proxy.imports.formats import read
from gymtap.proxy.imports.transport import STILL_OPEN
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import Capture, CaptureWriter, is_capture
from gymtap.proxy.tap import load_addons
from gymtap.schemas import Server

_SECOND_NS = 1_000_000_000
_TURN_BYTES = 16 * 2**20
_COMMIT_EXCHANGES = 200


@dataclass
class Imported:
    """What was imported into `path`; `left_out` says what was not, one line each."""

    path: Path
    files: int = 0
    exchanges: int = 0
    left_out: list[str] = field(default_factory=list)


def import_files(files: Sequence[Path], capture: Path) -> Imported:
    """Read the files into a capture, a new one or one that is there.

    Raises UsageError for a file that cannot be read, before anything is made; CaptureError where none can be kept.
    """
    recordings = [recording for file in files for recording in read(file)]
    imported = Imported(capture, files=len(files), left_out=[line for one in recordings for line in one.left_out])
    recorded = _dated(recordings)
    taken = {exchange.id for exchange in Capture(capture).exchanges()} if is_capture(capture) else set()
    command = ("gymtap", "import", *(str(file) for file in files))
    if not recorded or any(recording.kept for recording in recordings):
        imported.exchanges += _keep(CaptureWriter.create(capture, command=command), recordings, taken)
    if recorded:
        imported.exchanges += _record(CaptureWriter.create(capture, command=command), recorded, taken)
    return imported


# --- times -----------------------------------------------------------------------------------------------------


def _dated(recordings: Sequence[Recording]) -> list[Recorded]:
    """All exchanges by time; a recording without dates begins when its file was written, or after those before it."""
    found: list[Recorded] = []
    after_ns = 0
    for number, recording in enumerate(recordings):
        last_ns = max((one.ended_ns or one.started_ns for one in recording.recorded), default=0)
        shift_ns = 0 if recording.dated else max(recording.file.stat().st_mtime_ns, after_ns)
        for one in recording.recorded:
            moved = _moved(_closed(one, last_ns), shift_ns)
            found.append(_keyed(moved, number))
            after_ns = max(after_ns, (moved.ended_ns or moved.started_ns) + _SECOND_NS)
    return sorted(found, key=lambda one: one.started_ns)


def _closed(one: Recorded, last_ns: int) -> Recorded:
    """What had no end when the recording had: open until then."""
    error = STILL_OPEN if one.error is None and (one.status is None or one.ended_ns is None) else one.error
    return replace(one, error=error, ended_ns=max(last_ns, one.started_ns) if one.ended_ns is None else one.ended_ns)


def _moved(one: Recorded, by_ns: int) -> Recorded:
    def later(at_ns: int | None) -> int | None:
        return None if at_ns is None else at_ns + by_ns

    return replace(
        one,
        started_ns=one.started_ns + by_ns,
        request_done_ns=later(one.request_done_ns),
        first_byte_ns=later(one.first_byte_ns),
        ended_ns=later(one.ended_ns),
    )


def _keyed(one: Recorded, recording: int) -> Recorded:
    """Names hold within one recording only."""
    return replace(
        one,
        key=None if one.key is None else f"{recording}/{one.key}",
        parent=None if one.parent is None else f"{recording}/{one.parent}",
    )


# --- over the tape ---------------------------------------------------------------------------------------------


def _record(writer: CaptureWriter, recorded: Sequence[Recorded], taken: set[str]) -> int:
    tape = Tape(limit_bytes=2**63)
    recorder = Recorder(tape, writer, _offline(load_addons(writer, writer.redactor), writer))
    first = _first_free(writer.prefix, taken)
    held_bytes = 0
    for event in _events(recorded, first, writer.prefix):
        tape.put(event)
        held_bytes += len(event.data) if isinstance(event, RequestData | ResponseData) else 0
        if held_bytes > _TURN_BYTES:
            recorder.drain()
            held_bytes = 0
    recorder.close()
    return len(recorded)


def _offline(addons: Iterable[Addon], writer: CaptureWriter) -> list[Addon]:
    """The addons, of which none asks a server anything: what answers at its address today may be another."""
    return [Contracts(Setup(writer), _unasked) if isinstance(addon, Contracts) else addon for addon in addons]


def _unasked(server: Server) -> bytes:
    raise OSError(f"{server.name} is known from an import and is not asked")


def _events(recorded: Sequence[Recorded], first: int, prefix: str) -> Iterator[Event]:
    """The life of all exchanges, by time; at one moment, openings come first, and inner ends before outer ones."""
    numbers = {one.key: number for number, one in enumerate(recorded, first) if one.key is not None}
    timed: list[tuple[int, int, int, int, int]] = []
    for index, one in enumerate(recorded):
        for step, at_ns in enumerate(_moments(one)):
            ends = step == _END
            timed.append((at_ns, ends, -index if ends else index, step, index))
    for at_ns, _, _, step, index in sorted(timed):
        one = recorded[index]
        parent = numbers.get(one.parent) if one.parent is not None else None
        yield from _step(one, first + index, at_ns, step, None if parent is None else f"{prefix}{parent}")


_OPEN, _DONE, _ANSWER, _END = range(4)


def _moments(one: Recorded) -> tuple[int, int, int, int]:
    """When it opened, was whole, was answered and ended: never before the step before, never after the end."""
    end_ns = max(one.started_ns, one.ended_ns if one.ended_ns is not None else one.started_ns)
    done_ns = min(end_ns, max(one.started_ns, one.request_done_ns or one.started_ns))
    answer_ns = min(end_ns, max(done_ns, one.first_byte_ns if one.first_byte_ns is not None else end_ns))
    return one.started_ns, done_ns, answer_ns, end_ns


def _step(one: Recorded, number: int, at_ns: int, step: int, parent: str | None) -> Iterator[Event]:
    if step == _OPEN:
        yield Opened(
            number,
            one.server,
            at_ns,
            at_ns,
            one.client,
            one.method,
            one.target,
            one.http_version,
            one.request_headers,
            parent,
            decoded=not one.coded,
        )
    elif step == _DONE:
        if one.request_body:
            yield RequestData(number, one.request_body)
        yield RequestDone(number, at_ns)
    elif step == _ANSWER and one.status is not None:
        yield Answered(number, at_ns, one.status, one.reason, one.response_headers, decoded=not one.coded)
        if one.response_body:
            yield ResponseData(number, one.response_body)
    elif step == _END:
        yield Ended(number, at_ns, one.error)


# --- as it is --------------------------------------------------------------------------------------------------


def _keep(writer: CaptureWriter, recordings: Sequence[Recording], taken: set[str]) -> int:
    count = 0
    for recording in recordings:
        names = _names(recording.kept, writer.prefix, taken)
        for one in recording.kept:
            _add(writer, one, names)
            count += 1
            if count % _COMMIT_EXCHANGES == 0:
                writer.commit()
        for gap in recording.gaps:
            writer.gap(gap.model_copy(update={"exchange": names.get(gap.exchange or "", gap.exchange)}))
    writer.close()
    return count


def _add(writer: CaptureWriter, one: Kept, names: Mapping[str, str]) -> None:
    if one.server is not None:
        writer.listening(one.server)
    id, parent = names[one.exchange.id], one.exchange.parent  # noqa: A001 - the noun's own field name
    exchange = one.exchange.model_copy(update={"id": id, "parent": names.get(parent, parent) if parent else None})
    writer.add(exchange, one.request_body, one.response_body)
    for finding in one.findings:
        writer.finding(finding.model_copy(update={"exchange": id}))


def _names(kept: Sequence[Kept], prefix: str, taken: set[str]) -> dict[str, str]:
    """What the ids of one recording are called here: the same, unless one of them is taken; `taken` grows by them."""
    ids = [one.exchange.id for one in kept]
    if taken.isdisjoint(ids):
        names = {id: id for id in ids}  # noqa: A001 - the noun's own field name
    else:
        first = _first_free(prefix, taken)
        names = {id: f"{prefix}{number}" for number, id in enumerate(ids, first)}  # noqa: A001 - the same
    taken.update(names.values())
    return names


def _first_free(prefix: str, taken: Iterable[str]) -> int:
    """The first number from which on no id with that prefix is taken."""
    ends = (id.removeprefix(prefix) for id in taken if id.startswith(prefix))  # noqa: A001 - the noun's own field name
    return max((int(end) for end in ends if end.isdigit()), default=0) + 1
