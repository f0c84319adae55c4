"""Draws a call tree: the calls with their guides on the left, figures in columns on the right.

The columns are laid out here and not by a table, because what a failing call answered goes under it over
the whole width.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from gymtap.proxy.cli.call_tree import CallTree, Node
from gymtap.proxy.cli.words import (
    FAILED_STYLE,
    ID_STYLE,
    OPEN_STYLE,
    age_ms,
    call_name,
    counted,
    doubt,
    duration,
    exchange_mark,
    exchange_status,
    one_line,
    printable,
    row_mark,
    size,
    status_style,
)
from gymtap.schemas import Exchange, Row, RowState, State

_HEADINGS = ("call", "status", "time", "sent", "received", "id")
_GAP = "  "
_TIMES = "\N{MULTIPLICATION SIGN}"
_MIN_CALL_WIDTH = 16


@dataclass(frozen=True)
class _Line:
    """One call: the drawn name, its figures as texts, and what to say beneath it."""

    call: Text
    figures: tuple[Text, ...]
    beneath: tuple[Text, ...]
    guide: str


@dataclass(frozen=True)
class TreeView:
    """`messages` are the one-line messages of failing exchanges by id; `marked` is the exchange that was asked for."""

    tree: CallTree
    messages: Mapping[str, str]
    now_ns: int
    marked: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sections = [list(self._section(self.tree.roots)), list(self._section(self.tree.orphans))]
        widths = _widths([line for lines in sections for line in lines], options.max_width)
        yield _heading(widths)
        yield from _drawn(sections[0], widths, console, options.max_width)
        if sections[1]:
            yield Text("called by something that was not seen", "dim")
            yield from _drawn(sections[1], widths, console, options.max_width)

    def _section(self, nodes: Iterable[Node]) -> Iterator[_Line]:
        for node in nodes:
            yield from self._lines(node, "", "")

    def _lines(self, node: Node, guide: str, below: str) -> Iterator[_Line]:
        yield self._line(node, guide, below + ("│ " if node.children else "  "))
        for child in node.children:
            last = child is node.children[-1]
            yield from self._lines(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    def _line(self, node: Node, guide: str, below: str) -> _Line:
        call = Text.assemble((guide, "dim"), exchange_mark(node.exchange), " ", call_name(node.exchange))
        call.append(_retries(node), OPEN_STYLE)
        if any(exchange.id == self.marked for exchange in node.attempts):
            call.append(" ◀", "bold")
        return _Line(call, self._figures(node), tuple(self._beneath(node)), below)

    def _figures(self, node: Node) -> tuple[Text, ...]:
        exchange = node.exchange
        sent, received = _sizes(exchange)
        took = exchange.duration_ms if exchange.state is not State.OPEN else age_ms(exchange.started_ns, self.now_ns)
        return (
            Text(exchange_status(exchange), status_style(exchange)),
            Text(duration(took), OPEN_STYLE if exchange.state is State.OPEN else ""),
            Text(size(sent), "dim"),
            Text(size(received), "dim"),
            Text(exchange.id, ID_STYLE),
        )

    def _beneath(self, node: Node) -> Iterator[Text]:
        if node.blamed and (message := self.messages.get(node.exchange.id)):
            yield Text(one_line(message), "red")
        if note := doubt(node.exchange.attribution):
            yield Text(f"? {note}", OPEN_STYLE)


def _retries(node: Node) -> str:
    if len(node.attempts) == 1:
        return ""
    runs = [(status, len(list(same))) for status, same in groupby(exchange_status(one) for one in node.attempts)]
    told = ", ".join(status if times == 1 else f"{status} {_TIMES}{times}" for status, times in runs)
    return f" {_TIMES}{len(node.attempts)} ({told})"


def _sizes(exchange: Exchange) -> tuple[int | None, int | None]:
    request = exchange.request.body
    response = exchange.response and exchange.response.body
    return (request.size_bytes if request else None), (response.size_bytes if response else None)


def _widths(lines: list[_Line], available: int) -> list[int]:
    """The columns' widths; the calls' column gives way first, down to what can still be read."""
    columns = list(zip(*(line.figures for line in lines), strict=True)) or [()] * (len(_HEADINGS) - 1)
    figures = [
        max(len(heading), *(text.cell_len for text in column), 0)
        for heading, column in zip(_HEADINGS[1:], columns, strict=True)
    ]
    calls = max((line.call.cell_len for line in lines), default=0)
    left = available - sum(figures) - len(_GAP) * len(figures)
    return [max(min(max(calls, 4), left), _MIN_CALL_WIDTH), *figures]


def _heading(widths: list[int]) -> Text:
    return _assembled([Text(heading, "dim") for heading in _HEADINGS], widths)


def _assembled(cells: list[Text], widths: list[int]) -> Text:
    """Cells side by side: the call to the left, figures to the right, the id to the left."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        fitted = cell.copy()
        fitted.truncate(width, overflow="ellipsis")
        padding = " " * (width - fitted.cell_len)
        to_left = number in {0, len(widths) - 1}
        line.append(_GAP if number else "")
        line.append_text(fitted if to_left else Text(padding))
        line.append_text(Text(padding) if to_left else fitted)
    line.rstrip()
    return line


def _drawn(lines: list[_Line], widths: list[int], console: Console, available: int) -> Iterator[Text]:
    for line in lines:
        yield _assembled([line.call, *line.figures], widths)
        for beneath in line.beneath:
            yield from _hung(beneath, line.guide, console, available)


def _hung(text: Text, guide: str, console: Console, available: int) -> Iterator[Text]:
    """The text under its call, wrapped, with the guides kept on its left."""
    room = max(available - len(guide), _MIN_CALL_WIDTH)
    for part in text.wrap(console, room):
        yield Text.assemble((guide, "dim"), part, no_wrap=True)


def row_heading(row: Row, now_ns: int, own_exchanges: int) -> Text:
    """`row 5.0 ✗ failed after 41 ms · 500 · weather_simple_agent · 6 exchanges, 5 failed`."""
    took = duration(row.duration_ms)
    match row.state:
        case RowState.RUNNING:
            state = f"running for {duration(age_ms(row.started_ns, now_ns))}"
        case RowState.FAILED:
            state = f"failed after {took}"
        case RowState.DONE:
            state = f"done in {took}"
    parts = [str(row.status) if row.status is not None else "", printable(row.key.agent or "")]
    parts += [f"reward {row.reward:g}" if row.reward is not None else ""]
    parts += [counted(own_exchanges, "exchange") + (f", {row.failed_exchanges} failed" if row.failed_exchanges else "")]
    style = FAILED_STYLE if row.state is RowState.FAILED else ""
    told = " · ".join(["", *(part for part in parts if part)])
    return Text.assemble(("row ", "dim"), (row.key.label, "bold"), " ", row_mark(row), " ", (state, style), told)
