"""Cells in columns: the one layout of every table and tree, with a heading, and nothing behind the last cell.

One column gives way when the width does not suffice, and shows an ellipsis there; the others are never cut
while it still has room. Lines without columns may stand between, over the whole width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GAP = "  "


@dataclass(frozen=True)
class Column:
    """`right`: figures stand to the right. `least`: it gives way, down to so many cells; None never does."""

    heading: str
    right: bool = False
    least: int | None = None


@dataclass(frozen=True)
class Across:
    """A text over the whole width, wrapped, behind a guide that is repeated on each of its lines."""

    text: Text
    guide: str = ""


type Line = Sequence[Text] | Across


@dataclass(frozen=True)
class Columns:
    """`lines` have one cell per column, or are `Across`."""

    columns: Sequence[Column]
    lines: Sequence[Line]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        yield self._line([Text(column.heading, "dim") for column in self.columns], widths)
        for line in self.lines:
            if isinstance(line, Across):
                yield from _wrapped(line, console, options.max_width)
            else:
                yield self._line(line, widths)

    def _widths(self, available: int) -> list[int]:
        cells = [line for line in self.lines if not isinstance(line, Across)]
        widths = [
            max(len(column.heading), *(line[number].cell_len for line in cells), 0)
            for number, column in enumerate(self.columns)
        ]
        missing = sum(widths) + len(_GAP) * (len(widths) - 1) - available
        for number, column in enumerate(self.columns):
            if column.least is not None and missing > 0:
                kept = max(widths[number] - missing, min(column.least, widths[number]))
                missing -= widths[number] - kept
                widths[number] = kept
        return widths

    def _line(self, cells: Sequence[Text], widths: list[int]) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        for number, (cell, column, width) in enumerate(zip(cells, self.columns, widths, strict=True)):
            fitted = cell.copy()
            fitted.truncate(width, overflow="ellipsis")
            padding = Text(" " * (width - fitted.cell_len))
            line.append(_GAP if number else "")
            for part in (padding, fitted) if column.right else (fitted, padding):
                line.append_text(part)
        line.rstrip()
        return line


def _wrapped(across: Across, console: Console, available: int) -> Iterator[Text]:
    room = max(available - len(across.guide), 1)
    for part in across.text.wrap(console, room):
        part.rstrip()
        yield Text.assemble((across.guide, "dim"), part, no_wrap=True)
