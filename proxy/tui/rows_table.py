"""The table of rows: as many as there are, painted one by one, with their causes as these become known."""

from collections.abc import Callable
from dataclasses import dataclass
from time import time_ns

from rich.text import Text

from gymtap.proxy.core.filter import parse
from gymtap.proxy.store.listed import Listed
from gymtap.proxy.tui.lines import Lines
from gymtap.proxy.tui.row_list import RowList, View
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE, OPEN_STYLE
from gymtap.proxy.views.plain import clipped, one_line, printable
from gymtap.proxy.views.words import age_ms, duration
from gymtap.schemas import RowState

_MARKS = {
    RowState.FAILED: ("✗", FAILED_STYLE),
    RowState.RUNNING: ("…", OPEN_STYLE),
    RowState.DONE: ("✓", OK_STYLE),
}
_WIDE_CELLS = 110


@dataclass(frozen=True)
class _Cell:
    heading: str
    cells: int
    draw: Callable[[Listed, int], Text]
    right: bool = False


def _row(row: Listed, _: int) -> Text:
    mark, style = _MARKS[row.line.state]
    flag = "*" if row.marked else '"' if row.note.comment else " "
    return Text.assemble((flag, "bold"), (mark, style), " ", (printable(row.label), "bold"))


def _status(row: Listed, _: int) -> Text:
    if row.line.status is None:
        return Text("open", OPEN_STYLE) if row.line.state is RowState.RUNNING else Text("-", "dim")
    return Text(str(row.line.status), FAILED_STYLE if row.line.state is RowState.FAILED else "")


def _time(row: Listed, now_ns: int) -> Text:
    if row.line.state is RowState.RUNNING:
        return Text(duration(age_ms(row.line.started_ns, now_ns)), OPEN_STYLE)
    return Text(duration(row.duration_ms))


def _hops(row: Listed, _: int) -> Text:
    failed = f"{row.failed}✗" if row.failed else ""
    return Text.assemble(
        (failed, FAILED_STYLE if row.line.state is RowState.FAILED else OPEN_STYLE), f" {row.exchanges}"
    )


def _layer(row: Listed, _: int) -> Text:
    if row.diagnosis is None:
        return Text("?" if row.line.state is RowState.FAILED else "", "dim")
    return Text(row.layer or "", "" if row.layer == "none" else FAILED_STYLE)


def _cause(row: Listed, _: int) -> Text:
    told = row.note.comment and f"“{row.note.comment}”"
    return Text.assemble(
        (one_line(told) + " " if told else "", "italic"),
        one_line(row.message or (row.diagnosis.cause if row.diagnosis else "")),
    )


class RowsTable(Lines):
    """The rows of a view. `hits` are positions that a search found."""

    def __init__(self, rows: RowList, *, id: str | None = None) -> None:  # noqa: A002  # textual's own name
        super().__init__(id=id)
        self._rows = rows
        self.view = View(range(0), parse(""))
        self._label_cells = 8
        self._agent_cells = 0
        self.hits: dict[int, list[str]] = {}

    def count(self) -> int:
        """How many rows are shown."""
        return len(self.view.positions)

    def at(self, index: int) -> int | None:
        """The position in the row list."""
        positions = self.view.positions
        return positions[index] if 0 <= index < len(positions) else None

    def line(self, index: int, width: int) -> Text:
        """One row in its columns."""
        at = self.view.positions[index]
        row = self._rows.listed(at)
        self._label_cells = max(self._label_cells, min(len(row.label) + 3, 18))
        now_ns = time_ns()
        line = self._columns(width, lambda cell: cell.draw(row, now_ns))
        if at in self.hits:
            line.append_text(Text.assemble(("⌕ ", "bold"), ", ".join(self.hits[at][:3]), " "))
        return line.append_text(_cause(row, now_ns))

    def heading(self, width: int) -> Text:
        """The columns' names, the one that is sorted by with a mark."""
        return self._columns(width, lambda cell: Text(cell.heading)).append("what went wrong")

    def _cells(self, width: int) -> list[_Cell]:
        cells = [
            _Cell("  row", self._label_cells, _row),
            _Cell("status", 6, _status, right=True),
            _Cell("reward", 6, lambda row, _: Text("" if row.reward is None else f"{row.reward:.4g}"), right=True),
            _Cell("hops", 6, _hops, right=True),
            _Cell("time", 9, _time, right=True),
            _Cell("layer", 20 if width >= _WIDE_CELLS else 16, _layer),
        ]
        if width >= _WIDE_CELLS:
            cells.insert(1, _Cell("agent", 22, lambda row, _: Text(clipped(printable(row.agent or ""), 22))))
        return cells

    def _columns(self, width: int, draw: Callable[[_Cell], Text]) -> Text:
        line = Text()
        for cell in self._cells(width):
            text = draw(cell)
            text.truncate(cell.cells, overflow="ellipsis")
            padding = " " * (cell.cells - text.cell_len)
            for part in (padding, text) if cell.right else (text, padding):
                line.append(part)
            line.append("  ")
        return line
