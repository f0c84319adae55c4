"""From the tape to the capture: one thread that assembles flows, lets addons see them, and writes.

It commits at most about 50 ms after an event. Redaction cannot be forgotten: where no redacting addon is
given, or any addon raised over a flow, the recorder redacts the flow itself before it is written.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gymtap.addons.redact import Redact
from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.content import ContentError, Decoder, decoder
from gymtap.proxy.core.events import (
    Answered,
    Dropped,
    Ended,
    Event,
    Opened,
    RawHeaders,
    RequestData,
    RequestDone,
    ResponseData,
    Tape,
    Unparsed,
)
from gymtap.proxy.core.flow import INSPECT_MAX_BYTES, Flow
from gymtap.proxy.store.bodies import SEGMENT_BYTES, KeptBody
from gymtap.proxy.store.writer import CaptureWriter
from gymtap.schemas import Gap, GapKind, Headers, Server

DRAIN_SECONDS = 0.02
"""How long an event waits at most before it is looked at."""

HELD_LIMIT_BYTES = 256 * 2**20
"""How much content of open exchanges is held for addons; a body that would exceed it is treated as a long one."""

COMMIT_SECONDS = 0.05
"""How long what was looked at waits at most before it is committed, however much there is."""

_HOOKS = ("listening", "opened", "requested", "ended", "stopped")


@dataclass(slots=True)
class _Memory:
    """The content held of all exchanges that have not ended."""

    held_bytes: int = 0


class _Assembly:
    """A body as it comes: held whole up to INSPECT_MAX_BYTES, beyond that redacted and written on the way."""

    def __init__(
        self, writer: CaptureWriter, exchange: str, side: str, encoding: str | None, memory: "_Memory"
    ) -> None:
        self._writer = writer
        self._memory = memory
        self._exchange = exchange
        self._side = side
        self._encoding = encoding
        self._decoder: Decoder | None = decoder(encoding) if encoding else None
        self._decoded = self._decoder is not None
        self._raw: list[bytes] = []  # until something could be decoded
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._stream: _Stream | None = None
        self._draft: _Stream | None = None  # of a body that is held whole but comes slowly
        self._drafted = 0  # pieces
        self.size_bytes = 0
        self.missing_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take a piece as it crossed the wire."""
        self.size_bytes += len(data)
        if self._decoder is None:
            if self._decoded:
                self.missing_bytes += len(data)
            else:
                self._add(data)
            return
        self._decode(self._decoder, data)

    def whole(self) -> bytes | None:
        """The content, decoded; None when it is too long to hold."""
        if self._stream is not None:
            return None
        if self._decoded and self._raw and not self._pieces:
            self._decoded = False
            self._pieces = self._raw
        self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def release(self) -> None:
        """Count its content as no longer held."""
        self._memory.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def draft(self) -> None:
        """Put on disk what came so far: a tap that is killed leaves what a slow body had brought."""
        if self._stream is not None:
            self._stream.settle()
            return
        if self._draft is None:
            self._draft = _Stream(self._writer, self._exchange, self._side)
        for piece in self._pieces[self._drafted :]:
            self._draft.write(piece)
        self._drafted = len(self._pieces)
        self._draft.settle()

    def keep(self, content: bytes | None, redacted: int) -> KeptBody | None:
        """Store it: `content` is what addons left of `whole()`. None when there was no body."""
        self._drop_draft()
        if not self.size_bytes and not self.missing_bytes:
            return None
        digest: str | None
        if self._stream is not None:
            digest, redacted = self._stream.end()
        else:
            digest = self._writer.store(content) if content else None
            self._pieces = []
        encoding = self._encoding if self._decoded else None
        return KeptBody(digest, self.size_bytes, encoding, self.missing_bytes, redacted)

    def _decode(self, decoder: Decoder, data: bytes) -> None:
        if not self._pieces and self._stream is None:
            self._raw.append(data)
        try:
            for piece in decoder.feed(data):
                self._add(piece)
                self._raw.clear()
        except ContentError:
            self._decoder = None
            if self._pieces or self._stream is not None:
                self.missing_bytes += len(data)
                return
            self._decoded = False
            raw, self._raw = self._raw, []
            for piece in raw:
                self._add(piece)

    def _add(self, piece: bytes) -> None:
        if self._stream is not None:
            self._stream.write(piece)
            return
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        self._memory.held_bytes += len(piece)
        if self._held_bytes > INSPECT_MAX_BYTES or self._memory.held_bytes > HELD_LIMIT_BYTES:
            self.release()
            self._stream = _Stream(self._writer, self._exchange, self._side)
            for held in self._pieces:
                self._stream.write(held)
            self._pieces = []
            self._drop_draft()

    def _drop_draft(self) -> None:
        if self._draft is not None:
            self._draft.drop()
            self._draft = None


class _Stream:
    """A long body on its way to the disk: redacted, cut into segments, digested."""

    def __init__(self, writer: CaptureWriter, exchange: str, side: str) -> None:
        self._writer = writer
        self._spool = writer.spool(exchange, side)
        self._redactor = writer.redactor.stream()
        self._digest = hashlib.sha256()
        self._size_bytes = 0
        self._segment = bytearray()

    def write(self, piece: bytes) -> None:
        self._clean(self._redactor.feed(piece))

    def settle(self) -> None:
        """Write what is clean by now, in a segment of its own."""
        self._clean(self._redactor.settle())
        self._flush(len(self._segment))

    def drop(self) -> None:
        """Forget what was written."""
        self._writer.spool_drop(self._spool)

    def end(self) -> tuple[str | None, int]:
        """The digest, or None when parts were lost, and how many replacements were made."""
        self._clean(self._redactor.end())
        self._flush(len(self._segment))
        return self._writer.spool_end(self._spool, self._digest.digest(), self._size_bytes), self._redactor.replaced

    def _clean(self, piece: bytes) -> None:
        self._segment += piece
        while len(self._segment) >= SEGMENT_BYTES:
            self._flush(SEGMENT_BYTES)

    def _flush(self, size: int) -> None:
        segment = bytes(self._segment[:size])
        del self._segment[:size]
        if segment:
            self._digest.update(segment)
            self._size_bytes += len(segment)
            self._writer.spool_write(self._spool, segment)


@dataclass(slots=True)
class _Open:
    """An exchange that has not ended."""

    flow: Flow
    mono_ns: int
    request: _Assembly
    response: _Assembly | None = None
    request_body: KeptBody | None = None
    kept: bool = False

    def elapsed_ms(self, mono_ns: int) -> float:
        return (mono_ns - self.mono_ns) / 1e6


class Recorder:
    """Drains a tape into a capture.

    Addons run in the given order, on the recorder's thread. One that raises is skipped for that flow, and
    counted as a gap, one for each addon, hook and exception.
    """

    def __init__(
        self, tape: Tape, writer: CaptureWriter, addons: Sequence[Addon], *, prefix: str | None = None
    ) -> None:
        self._tape = tape
        self._writer = writer
        self._hooks = {hook: _overrides(addons, hook) for hook in _HOOKS}
        self._prefix = writer.prefix if prefix is None else prefix
        self._redact = Redact(Setup(writer), writer.redactor)
        self._redacts = any(isinstance(addon, Redact) for addon in addons)
        self._open: dict[int, _Open] = {}
        self._memory = _Memory()
        self._growing: set[_Assembly] = set()
        self._servers: dict[str, Server] = {}
        self._heard: dict[str, tuple[Server, Server]] = {}
        self._announced: list[Server] = []
        self._failures: dict[tuple[str, str, str], int] = {}
        self._wake = threading.Event()
        self._turn = threading.Condition()
        self._asked = 0
        self._answered = 0
        self._closing = False
        self._committed = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="gymtap-recorder", daemon=True)

    @property
    def gap_count(self) -> int:
        """How many gaps there are so far."""
        return self._writer.gap_count

    def start(self) -> None:
        """Begin to drain."""
        self._thread.start()

    def listening(self, server: Server) -> None:
        """Say that a boundary was opened; safe from any thread."""
        self._announced.append(server)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that is on the tape now is committed; False when it took longer than `timeout` seconds."""
        with self._turn:
            self._asked += 1
            mine = self._asked
            self._wake.set()
            return self._turn.wait_for(lambda: self._answered >= mine, timeout)

    def close(self) -> None:
        """Record what is left, tell the addons, and close the capture. Nothing may be put on the tape after it."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._finish()

    def drain(self) -> int:
        """Record what is on the tape now, and commit; returns how many events there were. For the thread, and tests."""
        while self._announced:
            self._listen(self._announced.pop(0))
        number = 0
        for number, event in enumerate(self._tape.drain(), 1):
            self._record(event)
            if number % 64 == 0 and time.monotonic() - self._committed > COMMIT_SECONDS:
                self._commit()
        self._commit()
        return number

    # Inside

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(DRAIN_SECONDS)
            self._wake.clear()
            self._turn_once()
        self._finish()

    def _turn_once(self) -> None:
        with self._turn:
            asked = self._asked
        self.drain()
        with self._turn:
            self._answered = asked
            self._turn.notify_all()

    def _finish(self) -> None:
        self._turn_once()
        self._tell("stopped")
        self._writer.close()

    def _commit(self) -> None:
        for assembly in self._growing:
            assembly.draft()
        self._growing.clear()
        self._writer.commit()
        self._committed = time.monotonic()
        for server in self._writer.servers:
            if self._servers.get(server.name) != server:
                self._listen(server)

    def _listen(self, said: Server) -> Server:
        """The server with what is known of it by now; addons hear of it when it is new, or its kind is."""
        before = self._heard.get(said.name)
        if before is not None and before[0] is said and before[1] is self._servers[said.name]:
            return before[1]
        server = self._writer.listening(said)
        known = self._servers.get(server.name)
        if known == server:
            server = known
        else:
            self._servers[server.name] = server
            self._tell("listening", server)
        self._heard[said.name] = said, server
        return server

    def _record(self, event: Event) -> None:
        try:
            self._dispatch(event)
        except Exception as error:  # noqa: BLE001  # the thread outlives any event; what it lost is a gap
            self._open.pop(getattr(event, "number", 0), None)  # what is left of it may not be clean
            detail = f"the recorder failed over {type(event).__name__}: {type(error).__name__}"
            self._writer.gap(Gap(kind=GapKind.WRITE_FAILED, at_ns=time.time_ns(), detail=detail, count=1))

    def _dispatch(self, event: Event) -> None:
        match event:
            case RequestData() | ResponseData():
                self._data(event)
            case Opened():
                self._opened(event)
            case RequestDone() if event.number in self._open:
                self._requested(self._open[event.number], event.mono_ns)
            case Answered() if event.number in self._open:
                self._answer(self._open[event.number], event)
            case Dropped() if event.number in self._open:
                self._dropped(self._open[event.number], event)
            case Ended() if event.number in self._open:
                self._ended(self._open.pop(event.number), event)
            case Unparsed():
                detail = self._writer.redactor.text(f"{event.server.name}: {event.detail}")[0]
                self._writer.gap(Gap(kind=GapKind.UNPARSED, at_ns=event.at_ns, detail=detail))
            case _:
                pass  # of an exchange that has ended

    def _opened(self, event: Opened) -> None:
        flow = Flow(
            id=f"{self._prefix}{event.number}",
            server=self._listen(event.server),
            started_ns=event.started_ns,
            method=event.method,
            target=_unicode(event.target),
            request_headers=_headers(event.headers),
            client=event.client,
            http_version=event.http_version,
            causality_parent=event.parent,
        )
        encoding = None if event.decoded else _encoding(flow.request_headers)
        request = _Assembly(self._writer, flow.id, "request", encoding, self._memory)
        self._open[event.number] = _Open(flow, event.started_mono_ns, request)
        self._tell_of("opened", flow)
        self._writer.opened(flow)

    def _data(self, event: RequestData | ResponseData) -> None:
        opened = self._open.get(event.number)
        if opened is None:
            return
        assembly = opened.request if isinstance(event, RequestData) else opened.response
        if assembly is not None:
            assembly.feed(event.data)
            self._growing.add(assembly)

    def _requested(self, opened: _Open, mono_ns: int) -> None:
        flow = opened.flow
        flow.request_done_ms = opened.elapsed_ms(mono_ns)
        self._growing.discard(opened.request)
        flow.request_body = opened.request.whole()
        self._tell_of("requested", flow)
        opened.request_body = opened.request.keep(flow.request_body, flow.request_redacted)
        opened.kept = True
        self._writer.requested(flow, opened.request_body)

    def _answer(self, opened: _Open, event: Answered) -> None:
        flow = opened.flow
        flow.status, flow.reason = event.status, _unicode(event.reason)
        flow.response_headers = _headers(event.headers)
        flow.first_byte_ms = opened.elapsed_ms(event.mono_ns)
        encoding = None if event.decoded else _encoding(flow.response_headers)
        opened.response = _Assembly(self._writer, flow.id, "response", encoding, self._memory)
        self._writer.answered(flow)

    def _dropped(self, opened: _Open, event: Dropped) -> None:
        opened.request.missing_bytes += event.request_bytes
        opened.request.size_bytes += event.request_bytes
        if opened.response is not None:
            opened.response.missing_bytes += event.response_bytes
            opened.response.size_bytes += event.response_bytes
        gap = Gap(
            kind=GapKind.QUEUE_FULL,
            at_ns=opened.flow.started_ns,
            detail="the recorder could not keep up within its memory",
            count=1,
            size_bytes=event.request_bytes + event.response_bytes,
            exchange=opened.flow.id,
        )
        self._writer.gap(gap)
        if opened.kept and opened.request_body is not None and event.request_bytes:
            opened.request_body = opened.request_body._replace(
                missing_bytes=event.request_bytes, size_bytes=opened.request.size_bytes
            )

    def _ended(self, opened: _Open, event: Ended) -> None:
        flow = opened.flow
        flow.ended_ms = opened.elapsed_ms(event.mono_ns)
        flow.error = event.error
        if not opened.kept:
            self._growing.discard(opened.request)
            flow.request_body = opened.request.whole()
        if opened.response is not None:
            self._growing.discard(opened.response)
            flow.response_body = opened.response.whole()
        self._tell_of("ended", flow)
        if not opened.kept:
            opened.request_body = opened.request.keep(flow.request_body, flow.request_redacted)
        response = opened.response.keep(flow.response_body, flow.response_redacted) if opened.response else None
        self._writer.ended(flow, opened.request_body, response)
        opened.request.release()
        if opened.response is not None:
            opened.response.release()
        flow.drop_json()

    def _tell_of(self, hook: str, flow: Flow) -> None:
        """Let addons see a flow; what they leave of it is clean."""
        if not (self._tell(hook, flow) and self._redacts):
            getattr(self._redact, hook)(flow)

    def _tell(self, hook: str, *what: Flow | Server) -> bool:
        """Whether no addon raised."""
        well = True
        for addon, call in self._hooks[hook]:
            try:
                call(*what)
            except Exception as error:  # noqa: BLE001  # an addon may be anyone's; it must not end the recording
                self._addon_failed(addon, hook, error)
                well = False
        return well

    def _addon_failed(self, addon: Addon, hook: str, error: Exception) -> None:
        failure = (type(addon).__name__, hook, type(error).__name__)
        count = self._failures[failure] = self._failures.get(failure, 0) + 1
        text = self._writer.redactor.text(f"{failure[0]}.{hook} raised {type(error).__name__}: {error}")[0]
        gap = Gap(kind=GapKind.ADDON_FAILED, at_ns=time.time_ns(), detail=" ".join(text.split())[:300], count=count)
        self._writer.recount("/".join(failure), gap)


def _overrides(addons: Iterable[Addon], hook: str) -> list[tuple[Addon, Callable[..., None]]]:
    """What those addons do at a hook that do anything there."""
    calls = [(addon, getattr(addon, hook, None)) for addon in addons]
    nothing = getattr(Addon, hook)
    return [(addon, call) for addon, call in calls if call and getattr(call, "__func__", None) is not nothing]


def _headers(raw: RawHeaders) -> Headers:
    return tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw])


def _unicode(text: str) -> str:
    """Bytes that an engine could not decode (surrogates, PEP 383) are written as they would be in source."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _encoding(headers: Headers) -> str | None:
    values = [value for name, value in headers if name.lower() == "content-encoding"]
    return ", ".join(values) or None
