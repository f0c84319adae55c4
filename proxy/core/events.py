"""What an engine says about traffic, as it happens, and the bounded tape that carries it to the recorder.

Engines write events from the event loop; the recorder's thread drains them. The tape is bounded by
bytes, not by count: beyond its limit body data is dropped, never delayed, and the drop is counted on
the exchange that lost it. Heads and ends are small and always kept, so every exchange has a record.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gymtap.schemas import Server, TransportError

type RawHeaders = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A request's head arrived. `number` is unique per tap, from 1; `parent` is what the causality header said.

    `decoded`: its body comes with the content coding undone already, as recordings of other tools hold it.
    """

    number: int
    server: Server
    started_ns: int  # UTC, since the epoch
    started_mono_ns: int
    client: str
    method: str
    target: str
    http_version: str
    headers: RawHeaders
    parent: str | None = None
    decoded: bool = False


@dataclass(frozen=True, slots=True)
class RequestData:
    """A piece of the request's body, transfer coding undone."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RequestDone:
    """The request is whole."""

    number: int
    mono_ns: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A final response's head arrived (1xx responses pass unrecorded). `decoded` as in `Opened`."""

    number: int
    mono_ns: int
    status: int
    reason: str
    headers: RawHeaders
    decoded: bool = False


@dataclass(frozen=True, slots=True)
class ResponseData:
    """A piece of the response's body, transfer coding undone."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The exchange is over; `error` is None when the response is whole."""

    number: int
    mono_ns: int
    error: TransportError | None = None


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Bytes passed that the engine could not read as HTTP/1.1, or a protocol it does not record."""

    server: Server
    at_ns: int
    detail: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """Body bytes of an exchange that the tape had no room for."""

    number: int
    request_bytes: int
    response_bytes: int


_BODY_DATA = (RequestData, ResponseData)

type Event = Opened | RequestData | RequestDone | Answered | ResponseData | Ended | Unparsed | Dropped


class Tape:
    """A queue of events from one event loop to one recorder thread, bounded by body bytes.

    `put` never blocks and never raises. Appending to and popping from a deque are atomic, and each of the two byte
    counts is written by one side alone, so no lock is needed.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._events: deque[Event] = deque()
        self._limit_bytes = limit_bytes
        self._put_bytes = 0
        self._taken_bytes = 0
        self._dropped: dict[int, list[int]] = {}

    def put(self, event: Event) -> None:
        """Append; body data beyond the limit is dropped and counted."""
        if isinstance(event, _BODY_DATA):
            size = len(event.data)
            if self._put_bytes - self._taken_bytes + size > self._limit_bytes:
                lost = self._dropped.setdefault(event.number, [0, 0])
                lost[isinstance(event, ResponseData)] += size
                return
            self._put_bytes += size
        elif isinstance(event, Ended) and event.number in self._dropped:
            self._events.append(Dropped(event.number, *self._dropped.pop(event.number)))
        self._events.append(event)

    def drain(self) -> Iterator[Event]:
        """Take what is there now, in order; each event makes room when it is taken, and not before."""
        for _ in range(len(self._events)):
            event = self._events.popleft()
            if isinstance(event, _BODY_DATA):
                self._taken_bytes += len(event.data)
            yield event
