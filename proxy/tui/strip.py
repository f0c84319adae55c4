"""Rows over time as a strip of columns: how many began, how many of them failed, how long they took.

Pure: row lines in, text out. Heights are relative to the strip's own largest column, which is named beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from gymtap.proxy.store import RowLine
from gymtap.proxy.views.marks import FAILED_STYLE
from gymtap.proxy.views.words import duration
from gymtap.schemas import RowState

_BARS = " ▁▂▃▄▅▆▇█"
_NAME_CELLS = 9
_PEAK_CELLS = 12


@dataclass
class Columns:
    """Per column of time: rows begun, rows failed, the longest of them (ms)."""

    begun: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    longest_ms: list[float] = field(default_factory=list)
    span_ms: float = 0.0


def columns(lines: Sequence[RowLine], count: int) -> Columns:
    """Divide the rows' starts into `count` equal parts."""
    if not lines or count <= 0:
        return Columns()
    first = min(line.started_ns for line in lines)
    span_ns = max(max(line.started_ns for line in lines) - first, 1)
    found = Columns([0] * count, [0] * count, [0.0] * count, span_ns / 1e6)
    for line in lines:
        at = min((line.started_ns - first) * count // span_ns, count - 1)
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
    return Text.assemble((name.ljust(_NAME_CELLS), "dim"), (bars, style), (f"  ≤ {told}", "dim"))


def room(width: int) -> int:
    """How many columns of time fit into that many cells."""
    return max(width - _NAME_CELLS - _PEAK_CELLS, 10)
