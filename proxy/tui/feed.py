"""What runs beside the screen: reads rows as they come, and diagnoses those that failed.

Rows that hang are diagnosed as well, again and again while they do, and never for more than a small share of the time.
Both are plain loops for a thread each, with a capture of their own. They never touch a widget: they change the row
list and put down a pulse, which the screen looks at ten times a second, however much has happened in between.
"""

import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.core.in_flight import QUIET_MS, Alarm, alarms, waits
from gymtap.proxy.store import Capture, Identity, RowLine
from gymtap.proxy.store.lately import lately
from gymtap.proxy.store.listed import as_row, open_at
from gymtap.proxy.tui.row_list import RowList
from gymtap.schemas import Diagnosis, Exchange, Gap, Layer, RowState

POLL_S = 0.25
"""How often a live capture is asked for changes."""

_RATE_S = 5
_FIRST_ROWS = 2_000
_QUIET_S = 0.3  # after a key, the diagnoses wait so long: they would slow the next key down
_TOLD_EVERY_S = 0.25
_ALARMS_EVERY_S = 2.0
_HANGING_EVERY_S = 5.0
_HANGING_SHARE = 20  # after a round of diagnoses of rows that hang, so many times its length passes before the next


@dataclass(frozen=True)
class Alarms:
    """What `gymtap inflight` warns of, and the labels of the rows that hang: in an alarm, or waiting for long."""

    raised: tuple[Alarm, ...] = ()
    hanging: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pulse:
    """How the run is, at one moment. `rate` is exchanges that began per second, over the last seconds."""

    exchanges: int = 0
    live: bool = False
    rate: float = 0.0
    in_flight: tuple[Exchange, ...] = ()
    gaps: tuple[Gap, ...] = ()
    alarms: tuple[Alarm, ...] = ()


@dataclass
class Feed:
    """What the threads share with the screen. `problem` is told once, and the thread that had it has ended."""

    path: Path
    rows: RowList
    stop: Event = field(default_factory=Event)
    changed: Event = field(default_factory=Event)
    pulse: Pulse = field(default_factory=Pulse)
    last_key: float = 0.0
    problem: str = ""
    undiagnosed: int = 0
    _told: float = 0.0
    _alarms: Alarms = field(default_factory=Alarms)
    _looked: float = -math.inf
    _hung: float = -math.inf

    def read(self) -> None:
        """The rows that are there, then what changes, for as long as the capture is written."""
        try:
            self._read(Capture(self.path))
        except GymtapError as error:
            self.problem = str(error)

    def _read(self, capture: Capture) -> None:
        _, cursor = capture.row_lines_since(None)
        for piece in capture.row_lines(_FIRST_ROWS):
            self.rows.put(piece)
            break  # there is something to see at once
        self.pulse = _pulse(capture)
        self.rows.open_at = open_at(self.pulse.in_flight)
        for piece in capture.row_lines():
            self.rows.put(piece)
            self.changed.set()
            if self.stop.is_set():
                return
        self._feel(capture)
        self.rows.complete = True
        self.rows.version += 1
        self.changed.set()
        while not self.stop.is_set():
            self._feel(capture)
            lines, cursor = capture.row_lines_since(cursor)
            if lines:
                self.rows.put(lines)
                self.changed.set()
            elif not self.pulse.live:
                return
            self.stop.wait(POLL_S)

    def _feel(self, capture: Capture) -> None:
        """How the run is now; alarms are looked for less often, for it takes longer."""
        pulse = _pulse(capture)
        if pulse.live != self.pulse.live or time.monotonic() - self._looked > _ALARMS_EVERY_S:
            self._alarms = _look(capture)
            self._looked = time.monotonic()
        self.pulse = replace(pulse, alarms=self._alarms.raised)
        self.rows.open_at = open_at(pulse.in_flight)

    def diagnose(self) -> None:
        """Diagnose every failed row, once for all that failed alike."""
        try:
            self._diagnose(Capture(self.path))
        except GymtapError as error:
            self.problem = str(error)

    def _diagnose(self, capture: Capture) -> None:
        known: dict[int, Diagnosis] = {}
        while not self.stop.is_set():
            self.changed.clear()
            if self.rows.complete:
                live = self.pulse.live
                self._work(capture, self._wanted(), known)
                self._diagnose_hanging(capture, live=live)
                if not live and not self.changed.is_set():
                    return
            self.changed.wait(1.0)

    def _wanted(self) -> dict[Identity, int]:
        """The failed rows without a diagnosis, with their positions."""
        known = self.rows.diagnoses
        return {
            line.identity: at
            for at, line in enumerate(self.rows.lines)
            if line.state is RowState.FAILED and known[at] is None
        }

    def _work(self, capture: Capture, wanted: dict[Identity, int], known: dict[int, Diagnosis]) -> None:
        self.undiagnosed = left = len(wanted)
        if not wanted:
            return
        from gymtap.proxy.diagnose.listing import diagnosing

        found: dict[int, Diagnosis | None] = {}
        lines = {identity: self.rows.lines[at] for identity, at in wanted.items()}
        for identity, diagnosis in diagnosing(capture, lines, known, self._breathe):
            if self.stop.is_set():
                return
            found[wanted[identity]] = diagnosis
            if time.monotonic() - self._told > _TOLD_EVERY_S:
                left -= len(found)
                self._tell(found, left)
                found = {}
        self._tell(found, 0)

    def _diagnose_hanging(self, capture: Capture, *, live: bool) -> None:
        """What hangs and why, as far as that can be told; a row that goes on has no cause any more."""
        if live and time.monotonic() < self._hung:
            return
        began, labels = time.monotonic(), self._alarms.hanging
        found: dict[int, Diagnosis | None] = {}
        for at, line in enumerate(self.rows.lines):
            if line.state is RowState.RUNNING and (line.label in labels or self.rows.diagnoses[at] is not None):
                self._breathe()
                if self.stop.is_set():
                    return
                found[at] = _cause_of(capture, line) if line.label in labels else None
        if found:
            lines = self.rows.lines
            self.rows.diagnosed({at: one for at, one in found.items() if lines[at].state is RowState.RUNNING})
        self._hung = time.monotonic() + max(_HANGING_EVERY_S, _HANGING_SHARE * (time.monotonic() - began))

    def _tell(self, found: dict[int, Diagnosis | None], undiagnosed: int) -> None:
        self.undiagnosed = undiagnosed
        self._told = time.monotonic()
        if found:
            self.rows.diagnosed(found)

    def _breathe(self) -> None:
        """Let the keys go first."""
        while not self.stop.is_set() and time.monotonic() - self.last_key < _QUIET_S:
            self.stop.wait(0.05)


def _pulse(capture: Capture) -> Pulse:
    now_ns = time.time_ns()
    live = capture.live()
    return Pulse(
        exchanges=capture.count(),
        live=live,
        rate=capture.count(now_ns - _RATE_S * 1_000_000_000) / _RATE_S if live else 0.0,
        in_flight=tuple(capture.open_exchanges()),
        gaps=capture.gaps(),
    )


def _look(capture: Capture) -> Alarms:
    """What is wrong now, or was when the tap ended."""
    _, opened, recent, at_ns = lately(capture, time.time_ns())
    raised = tuple(alarms(opened, recent, at_ns))
    waiting = {wait.row for wait in waits(opened, recent, at_ns) if wait.row is not None and wait.age_ms >= QUIET_MS}
    return Alarms(raised, frozenset(waiting.union(*(alarm.rows for alarm in raised))))


def _cause_of(capture: Capture, line: RowLine) -> Diagnosis | None:
    """Why it hangs; None where nothing is to blame yet."""
    from gymtap.proxy.diagnose.capture import diagnose_row

    found = diagnose_row(capture, as_row(line), now_ns=time.time_ns())
    return None if found.layer is Layer.NONE else found


@dataclass(frozen=True)
class Counted:
    """Rows with one cause: how many, and one diagnosis of them."""

    rows: int
    example: Diagnosis


def top_causes(rows: RowList) -> list[Counted]:
    """The causes of what was diagnosed so far, the most frequent first."""
    found = [diagnosis for diagnosis in rows.diagnoses if diagnosis is not None]
    examples = {id(diagnosis): diagnosis for diagnosis in found}
    counts: Counter[str | None] = Counter()
    first: dict[str | None, Diagnosis] = {}
    for number, count in Counter(map(id, found)).items():
        diagnosis = examples[number]
        counts[diagnosis.fingerprint] += count
        first.setdefault(diagnosis.fingerprint, diagnosis)
    return [Counted(count, first[fingerprint]) for fingerprint, count in counts.most_common()]
