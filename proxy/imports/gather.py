"""First pass: every file is read into the spool, and what must be known of all exchanges at once is remembered.

That is when each happened, and who caused whom: a few hundred bytes of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Foreign, Kept, LeftOut, Recording
from gymtap.proxy.imports.formats import read
from gymtap.proxy.imports.over_tape import Waiting
from gymtap.proxy.imports.spool import Spool
from gymtap.proxy.imports.transport import STILL_OPEN
from gymtap.schemas import Gap, GapKind

_SECOND_NS = 1_000_000_000
_TOLD = 3


@dataclass
class Section:
    """One recording that a tap made: where each of its exchanges waits, by its id."""

    kept: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


@dataclass
class _File:
    """What was found in one file."""

    path: Path
    count: int = 0
    left_out: list[LeftOut] = field(default_factory=list)
    others: int = 0
    missing: int | None = 0

    def leave_out(self, one: LeftOut) -> None:
        """Remember the first ones in words, all of them in numbers."""
        if len(self.left_out) < _TOLD:
            self.left_out.append(one)
        else:
            self.others += 1
        self.missing = None if one.count is None or self.missing is None else self.missing + one.count

    @property
    def said(self) -> list[str]:
        """What was left out, one line each."""
        more = [f"{self.path}: {self.others} more like these"] if self.others else []
        return [one.text for one in self.left_out] + more


@dataclass
class Gathered:
    """All files. `left_out` is what was not taken, one line each; of what is missing for it there are `gaps`."""

    spool: Spool
    waiting: list[Waiting] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    _recordings: int = 0
    _after_ns: int = 0
    _last_ns: int = 0

    def take(self, path: Path) -> None:
        """Read one file. Raises UsageError where nothing in it can be read."""
        file = _File(path)
        try:
            for recording in read(path):
                self._take_recording(recording, file)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from None
        if not file.count and file.missing != 0:
            raise UsageError(file.left_out[0].text, file.left_out[0].hint)
        self.left_out += file.said
        if file.missing != 0:
            detail = f"could not be imported: {'; '.join(file.said)}"
            at_ns = self._last_ns or path.stat().st_mtime_ns
            self.gaps.append(Gap(kind=GapKind.UNPARSED, at_ns=at_ns, detail=detail, count=file.missing))

    def _take_recording(self, recording: Recording, file: _File) -> None:
        """A recording without dates begins when its file was written, or after those before it."""
        first, number = len(self.waiting), self._recordings
        self._recordings += 1
        shift_ns = 0 if recording.dated else max(recording.file.stat().st_mtime_ns, self._after_ns)
        section = Section()
        for item in recording.items:
            match item:
                case Foreign():
                    self.waiting.append(self._waiting(item, number, shift_ns))
                    self._last_ns = item.started_ns + shift_ns
                    file.count += 1
                case Kept():
                    file.count += self._keep(item, section, file)
                case Gap():
                    section.gaps.append(item)
                case LeftOut():
                    file.leave_out(item)
        if section.kept or section.gaps:
            self.sections.append(section)
        self._close(self.waiting[first:])

    def _keep(self, kept: Kept, section: Section, file: _File) -> bool:
        name = kept.exchange.id
        if name in section.kept:
            file.leave_out(LeftOut(f"{file.path}: {name} is there already: each exchange stands once in a recording"))
            return False
        if not 0 <= kept.exchange.started_ns < 2**63:
            file.leave_out(LeftOut(f"{file.path}: {name} began at no time: {kept.exchange.started_ns} ns"))
            return False
        section.kept[name] = self.spool.put(kept)
        self._last_ns = kept.exchange.started_ns
        return True

    def _waiting(self, one: Foreign, recording: int, by_ns: int) -> Waiting:
        def later(at_ns: int | None) -> int | None:
            return None if at_ns is None else at_ns + by_ns

        return Waiting(
            started_ns=one.started_ns + by_ns,
            done_ns=later(one.request_done_ns),
            first_ns=later(one.first_byte_ns),
            ended_ns=later(one.ended_ns),
            error=STILL_OPEN if one.error is None and one.status is None else one.error,
            key=None if one.key is None else f"{recording}/{one.key}",
            parent=None if one.parent is None else f"{recording}/{one.parent}",
            head=self.spool.put(replace(one, request_body=b"", response_body=b"")),
            request=self.spool.put(one.request_body),
            response=self.spool.put(one.response_body),
        )

    def _close(self, waiting: Sequence[Waiting]) -> None:
        """What had no end when its recording had: open until then."""
        if not waiting:
            return
        last_ns = max(one.ended_ns or one.started_ns for one in waiting)
        for one in waiting:
            if one.ended_ns is None:
                one.ended_ns, one.error = max(last_ns, one.started_ns), one.error or STILL_OPEN
        self._after_ns = max(self._after_ns, last_ns + _SECOND_NS)
