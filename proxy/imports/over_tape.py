"""Second pass, of what others recorded: over the tape in the order of time, through all addons, like live traffic."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gymtap.addons.contracts import Contracts
from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.events import Answered, Ended, Event, Opened, RequestData, RequestDone, ResponseData, Tape
from gymtap.proxy.core.recorded import Foreign
from gymtap.proxy.imports.spool import Spool
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import CaptureWriter
from gymtap.proxy.tap import load_addons
from gymtap.schemas import Server, TransportError

_TURN_BYTES = 8 * 2**20
_TURN_EVENTS = 1_000
_PIECE_BYTES = 2**20
_OPEN, _DONE, _ANSWER, _END = range(4)


@dataclass(slots=True)
class Waiting:
    """When an exchange happened, who caused it, how it broke, and where in the spool its head and its bodies are."""

    started_ns: int
    done_ns: int | None
    first_ns: int | None
    ended_ns: int | None
    error: TransportError | None
    key: str | None
    parent: str | None
    head: int
    request: int
    response: int

    def moment(self, step: int) -> int:
        """When it opened, was whole, was answered, ended: never before the step before, never after the end."""
        end_ns = max(self.started_ns, self.ended_ns or self.started_ns)
        done_ns = min(end_ns, max(self.started_ns, self.done_ns or self.started_ns))
        if step == _ANSWER:
            return min(end_ns, max(done_ns, self.first_ns if self.first_ns is not None else end_ns))
        return (self.started_ns, done_ns, 0, end_ns)[step]


def record(writer: CaptureWriter, waiting: Sequence[Waiting], spool: Spool, first: int) -> None:
    """Record them all, numbered from `first` in the order of time, and close the capture."""
    tape = Tape(limit_bytes=2**63)
    recorder = Recorder(tape, writer, _offline(load_addons(writer, writer.redactor), writer))
    held_bytes = held = 0
    for event in _events(sorted(waiting, key=lambda one: one.started_ns), spool, first, writer.prefix):
        tape.put(event)
        held += 1
        held_bytes += len(event.data) if isinstance(event, RequestData | ResponseData) else 0
        if held_bytes > _TURN_BYTES or held > _TURN_EVENTS:
            recorder.drain()
            held_bytes = held = 0
    recorder.close()


def _offline(addons: Iterable[Addon], writer: CaptureWriter) -> list[Addon]:
    """The addons, of which none asks a server anything: what answers at its address today may be another."""
    return [Contracts(Setup(writer), _unasked) if isinstance(addon, Contracts) else addon for addon in addons]


def _unasked(server: Server) -> bytes:
    raise OSError(f"{server.name} is known from an import and is not asked")


def _events(waiting: Sequence[Waiting], spool: Spool, first: int, prefix: str) -> Iterator[Event]:
    """The life of all exchanges, which come by start."""
    names = {one.key: f"{prefix}{number}" for number, one in enumerate(waiting, first) if one.key is not None}
    for index, step in _steps(waiting):
        one = waiting[index]
        parent = names.get(one.parent) if one.parent is not None else None
        yield from _step(one, spool, first + index, step, parent)


def _steps(waiting: Sequence[Waiting]) -> Iterator[tuple[int, int]]:
    """What happens next, as index and step. At one moment openings come first, and inner ends before outer ones."""

    def due(index: int, step: int) -> tuple[int, bool, int, int, int]:
        ends = step == _END
        return waiting[index].moment(step), ends, -index if ends else index, step, index

    steps: list[tuple[int, bool, int, int, int]] = []
    for index in range(len(waiting) + 1):
        opening = due(index, _OPEN) if index < len(waiting) else None
        while steps and (opening is None or steps[0] < opening):
            *_, step, other = heapq.heappop(steps)
            yield other, step
            if step != _END:
                heapq.heappush(steps, due(other, step + 1))
        if opening is not None:
            heapq.heappush(steps, opening)


def _step(one: Waiting, spool: Spool, number: int, step: int, parent: str | None) -> Iterator[Event]:
    at_ns = one.moment(step)
    if step == _OPEN:
        yield _opened(spool.get(one.head), number, at_ns, parent)
    elif step == _DONE:
        yield from (RequestData(number, piece) for piece in _pieces(spool.get(one.request)))
        yield RequestDone(number, at_ns)
    elif step == _ANSWER:
        head: Foreign = spool.get(one.head)
        if head.status is not None:
            decoded = not head.coded
            yield Answered(number, at_ns, head.status, head.reason, head.response_headers, decoded=decoded)
            yield from (ResponseData(number, piece) for piece in _pieces(spool.get(one.response)))
    else:
        yield Ended(number, at_ns, one.error)


def _opened(head: Foreign, number: int, at_ns: int, parent: str | None) -> Opened:
    return Opened(
        number,
        head.server,
        at_ns,
        at_ns,
        head.client,
        head.method,
        head.target,
        head.http_version,
        head.request_headers,
        parent,
        decoded=not head.coded,
    )


def _pieces(body: bytes) -> Iterator[bytes]:
    return (body[at : at + _PIECE_BYTES] for at in range(0, len(body), _PIECE_BYTES))
