"""The tap: tape, engine, addons, recorder and writer put together, and taken apart in order.

Addons come from the entry-point group `gymtap.addons`, our own included. Identity reads what crossed the wire
and redaction takes the secrets out, so these two are first whatever else is installed.
"""

import asyncio
import gc
import ssl
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import TracebackType
from typing import Self

from gymtap.addons.redact import Redact
from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.errors import CaptureError, GymtapError, UsageError
from gymtap.proxy.core.events import Tape
from gymtap.proxy.core.redaction import Redactor
from gymtap.proxy.engine import Causality, Engine, Listener
from gymtap.proxy.engine.open_files import raise_open_files_limit
from gymtap.proxy.engine.paths import Paths
from gymtap.proxy.engine.tls import tls_context
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import Capture, CaptureWriter, captures_root, fresh
from gymtap.schemas import Gap, GapKind, Server

ADDON_GROUP = "gymtap.addons"
GAPS_EXIT_CODE = 5
"""The exit status of a command whose own work succeeded while its capture has gaps."""
QUEUE_BYTES = 256 * 2**20
"""How much body data may wait for the recorder before it is dropped and counted."""
NEW_OBJECTS = 20_000
"""How many new objects Python's collector of cycles waits for. An exchange makes hundreds, which are gone when it is
over without being collected; at the usual 700 most were looked at, some thrice, before that."""
_REDACT = "redact"
_FIRST = ("identity", _REDACT)
_WATCH_S = 0.1


@dataclass(frozen=True)
class TapSettings:
    """`capture` None is a new one under the captures root; `command` is what the capture says was run.

    `strict`: let nothing pass any more once something could not be recorded. `keep_cookies`: keep session
    cookies whole, so that a replay can use them. `upstream_ca`: a PEM file trusted beside the system's. `without`:
    addons to leave out, by their entry points' names.
    """

    capture: Path | None = None
    command: tuple[str, ...] = ()
    strict: bool = False
    keep_cookies: bool = False
    upstream_ca: Path | None = None
    queue_bytes: int = QUEUE_BYTES
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """What another engine shares: one tape, exchanges numbered together, servers announced, the tap's own connections.

    Safe from any thread.
    """

    tape: Tape
    next_number: Callable[[], int]
    listening: Callable[[Server], None]
    paths: Paths


class Tap:
    """A running tap: `async with Tap(settings) as tap: await tap.listen(server)`.

    On leaving, every boundary is closed, what is on the tape is recorded, and the capture is closed. Entering
    raises CaptureError when no capture can be kept there or what is there cannot be read. Making one raises UsageError
    for a CA file that is none, and for an addon that cannot be left out.
    """

    def __init__(self, settings: TapSettings) -> None:
        _check_without(settings.without)
        self._settings = settings
        self.upstream_tls: ssl.SSLContext = tls_context(settings.upstream_ca)
        self.capture: Path = settings.capture or fresh(captures_root(), time.time_ns())
        self._failed = ""
        self._watching: asyncio.Task[None] | None = None
        self._broken = asyncio.Event()

    async def __aenter__(self) -> Self:
        raise_open_files_limit()
        redactor = Redactor(keep_cookies=self._settings.keep_cookies)
        writer = CaptureWriter.create(
            self.capture, command=self._settings.command, redactor=redactor, on_failure=self._write_failed
        )
        self._file = writer.file
        try:
            Capture(self.capture).live()  # what cannot be read together is not written together
        except CaptureError:
            writer.close()
            self._discard()
            raise
        self._tape = Tape(self._settings.queue_bytes)
        self._engine = Engine(self._tape, prefix=writer.prefix)
        self._recorder = Recorder(self._tape, writer, load_addons(writer, redactor, self._settings.without))
        self._recorder.start()
        if self._settings.strict:
            self._watching = asyncio.create_task(self._watch())
        self._thresholds = gc.get_threshold()
        if 0 < self._thresholds[0] < NEW_OBJECTS:  # 0: whoever runs this wants none collected
            gc.set_threshold(NEW_OBJECTS, *self._thresholds[1:])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._engine.close()
        await asyncio.get_running_loop().run_in_executor(None, self._recorder.close)
        gc.set_threshold(*self._thresholds)
        if isinstance(error, GymtapError) and self._engine.next_number() == 1:
            self._discard()

    def _discard(self) -> None:
        """A tap that could not begin leaves no empty capture, which would be the newest."""
        with suppress(OSError):
            self._file.unlink()
            self.capture.rmdir()  # not where others write too

    @property
    def gap_count(self) -> int:
        """How many gaps there are so far."""
        return self._recorder.gap_count

    def source(self) -> Source:
        """For an engine beside the first; close that one before the tap."""
        return Source(self._tape, self._engine.next_number, self._recorder.listening, self._engine.paths)

    async def listen(
        self, server: Server, *, causality: Causality = Causality.OFF, tls: ssl.SSLContext | None = None
    ) -> Listener:
        """Open a boundary; `tls` None is this tap's own trust. Raises ListenError, UsageError."""
        listener = await self._engine.listen(server, causality=causality, tls=tls or self.upstream_tls)
        self._recorder.listening(listener.server)
        return listener

    async def broken(self) -> str:
        """Wait until a strict tap has met something that it could not record, and lets nothing pass; the reason.

        Never returns where the tap is not strict.
        """
        await self._broken.wait()
        return self._failed

    async def _watch(self) -> None:
        while not self._failed and not self.gap_count:  # noqa: ASYNC110 - the count is another thread's
            await asyncio.sleep(_WATCH_S)
        self._failed = self._failed or "something could not be recorded"
        await self._engine.close()
        self._broken.set()

    def _write_failed(self, reason: str) -> None:
        """Called on the recorder's thread."""
        self._failed = reason


def _check_without(without: Iterable[str]) -> None:
    installed = {point.name for point in entry_points(group=ADDON_GROUP)}
    for name in without:
        if name == _REDACT:
            raise UsageError("redaction cannot be left out", "secrets never reach the disk")
        if name not in installed:
            raise UsageError(f"no addon is called {name}", f"installed: {', '.join(sorted(installed))}")


def load_addons(writer: CaptureWriter, redactor: Redactor, without: Container[str] = ()) -> list[Addon]:
    """Every installed addon, identity and redaction first. One that cannot be loaded is a gap, and left out."""
    setup = Setup(writer)
    addons: list[Addon] = []
    for point in _ordered(entry_points(group=ADDON_GROUP)):
        if point.name in without:
            continue
        try:
            factory = point.load()
            addons.append(Redact(setup, redactor) if factory is Redact else factory(setup))
        except Exception as error:  # noqa: BLE001 - an addon may be anyone's; the tap goes on without it
            detail = f"the addon {point.name} cannot be loaded: {type(error).__name__}: {error}"
            writer.gap(Gap(kind=GapKind.ADDON_FAILED, at_ns=time.time_ns(), detail=detail))
    return addons


def _ordered(points: Iterable[EntryPoint]) -> list[EntryPoint]:
    return sorted(
        points, key=lambda point: (_FIRST.index(point.name) if point.name in _FIRST else len(_FIRST), point.name)
    )


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Uvloop's where it is installed (the extra `uvloop`), else the standard one."""
    try:
        import uvloop  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
