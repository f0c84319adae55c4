"""Cells in columns: the one layout of every table and tree, with a heading, and nothing behind the last cell.

Where the width does not suffice, some columns give way, down to their least, and show an ellipsis there; before they
would have to go below it, columns that can be spared are left out. Only then is a line cut. Lines without columns may
stand between, over the whole width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GAP = "  "


@dataclass(frozen=True)
class Column:
    """`right`: figures stand to the right. `least`: it gives way, down to so many cells; None never does.

    `spare`: it can be left out, the highest first; 0 never is.
    """

    heading: str
    right: bool = False
    least: int | None = None
    spare: int = 0


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

    def _widths(self, available: int) -> dict[int, int]:
        """The columns that are shown, by number, and how wide each is."""
        cells = [line for line in self.lines if not isinstance(line, Across)]
        widths = {
            number: max(len(column.heading), *(line[number].cell_len for line in cells), 0)
            for number, column in enumerate(self.columns)
        }
        self._leave_out(widths, available)
        missing = _total(widths.values()) - available
        for number, width in widths.items():
            given = min(width - self._least(number, widths), max(missing, 0))
            missing -= given
            widths[number] = width - given
        return widths

    def _least(self, number: int, widths: Mapping[int, int]) -> int:
        least = self.columns[number].least
        return widths[number] if least is None else min(least, widths[number])

    def _leave_out(self, widths: dict[int, int], available: int) -> None:
        spare = [number for number, column in enumerate(self.columns) if column.spare]
        for number in sorted(spare, key=lambda number: -self.columns[number].spare):
            if _total(self._least(other, widths) for other in widths) <= available:
                return
            del widths[number]

    def _line(self, cells: Sequence[Text], widths: Mapping[int, int]) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        for place, (number, width) in enumerate(widths.items()):
            fitted = cells[number].copy()
            fitted.truncate(width, overflow="ellipsis")
            padding = Text(" " * (width - fitted.cell_len))
            line.append(_GAP if place else "")
            for part in (padding, fitted) if self.columns[number].right else (fitted, padding):
                line.append_text(part)
        line.rstrip()
        return line


def _total(widths: Iterable[int]) -> int:
    """The width of a line, with what is between its columns."""
    return sum(width + len(_GAP) for width in widths) - len(_GAP)


def _wrapped(across: Across, console: Console, available: int) -> Iterator[Text]:
    room = max(available - len(across.guide), 1)
    for part in across.text.wrap(console, room):
        part.rstrip()
        yield Text.assemble((across.guide, "dim"), part, no_wrap=True)
