"""Rows over time as a strip of columns: how many began, how many of them failed, how long they took.

Pure: row lines in, text out. Heights are relative to the strip's own largest column, which is named beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.text import Text

from gymtap.proxy.core.filter import instant
from gymtap.proxy.store import RowLine
from gymtap.proxy.views.marks import FAILED_STYLE
from gymtap.proxy.views.words import counted, duration
from gymtap.schemas import RowState

_BARS = " ▁▂▃▄▅▆▇█"
NAME_CELLS = 9
_PEAK_CELLS = 12
_UNITS_NS = (1, 10**3, 10**6, 10**9)


@dataclass
class Columns:
    """Per column of time: rows begun, rows failed, the longest of them (ms)."""

    begun: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    longest_ms: list[float] = field(default_factory=list)
    first_ns: int = 0
    step_ns: int = 1

    def edge_ns(self, column: int) -> int:
        """When a column begins (UTC)."""
        return self.first_ns + column * self.step_ns


def columns(lines: Sequence[RowLine], count: int) -> Columns:
    """Divide the rows' starts into `count` equal parts, or a few less: they begin at times that are short to write."""
    if not lines or count <= 0:
        return Columns()
    first = min(line.started_ns for line in lines)
    step = -(-(max(line.started_ns for line in lines) + 1 - first) // count)
    unit = max(unit for unit in _UNITS_NS if unit == 1 or unit * 10 <= step)
    first, step = first // unit * unit, (-(-step // unit) + 1) * unit
    found = Columns([0] * count, [0] * count, [0.0] * count, first, step)
    for line in lines:
        at = (line.started_ns - first) // step
        found.begun[at] += 1
        found.failed[at] += line.state is RowState.FAILED
        if line.duration_ms is not None and line.duration_ms > found.longest_ms[at]:
            found.longest_ms[at] = line.duration_ms
    return found


def drawn(found: Columns) -> list[Text]:
    """Three lines: rows, failures, longest; each with its peak on the right."""
    if not found.begun:
        return [Text("no rows yet", "dim")]
    return [
        _bar("rows", found.begun, f"{max(found.begun):,}", ""),
        _bar("failed", found.failed, f"{max(found.failed):,}", FAILED_STYLE, peak=max(found.begun)),
        _bar("longest", found.longest_ms, duration(max(found.longest_ms)), ""),
    ]


def _bar(name: str, values: Sequence[float], told: str, style: str, peak: float | None = None) -> Text:
    highest = peak or max(values) or 1
    levels = [min(-(-value * (len(_BARS) - 1) // highest), len(_BARS) - 1) if value else 0 for value in values]
    bars = "".join(_BARS[int(level)] for level in levels)
    return Text.assemble((name.ljust(NAME_CELLS), "dim"), (bars, style), (f"  ≤ {told}", "dim"))


def told(found: Columns, column: int) -> str:
    """`20:00:31.51 to 20:00:31.53: 2 rows, 1 failed, the longest 1.8 s`."""
    if not found.begun:
        return ""
    digits = 0 if found.step_ns >= 10**9 else 2 if found.step_ns >= 10**7 else 4
    first, last = (_clock(found.edge_ns(at), digits) for at in (column, column + 1))
    longest = f", the longest {duration(found.longest_ms[column])}" if found.longest_ms[column] else ""
    return f"{first} to {last}: {counted(found.begun[column], 'row')}, {found.failed[column]:,} failed{longest}"


def axis(found: Columns, cells: int) -> Text:
    """When the strips begin and end (UTC)."""
    if not found.begun:
        return Text()
    first, last = (_clock(found.edge_ns(at), 0) for at in (0, len(found.begun)))
    gap = max(min(len(found.begun), cells) - len(first) - len(last), 1)
    return Text(" " * NAME_CELLS + first + " " * gap + f"{last} UTC", "dim")


def _clock(at_ns: int, digits: int) -> str:
    at = datetime.fromtimestamp(at_ns / 1e9, UTC)
    return f"{at:%H:%M:%S}" + (f".{at.microsecond // 10 ** (6 - digits):0{digits}}" if digits else "")


def wanted(found: Columns, column: int, *, failed: bool) -> str:
    """The filter for a column's rows; the last column has the last row, too."""
    began = f"began>={instant(found.edge_ns(column))}"
    last = column + 1 == len(found.begun)
    return ("is:failed " if failed else "") + began + ("" if last else f" began<{instant(found.edge_ns(column + 1))}")


def room(width: int) -> int:
    """How many columns of time fit into that many cells."""
    return max(width - NAME_CELLS - _PEAK_CELLS, 10)
