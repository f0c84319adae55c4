"""Draws a call tree: the calls with their guides on the left, figures in columns on the right.

What a failing call answered goes under it, over the whole width, with the guides kept on its left.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from types import MappingProxyType

from rich.text import Text

from gymtap.proxy.views.call_tree import CallTree, Node
from gymtap.proxy.views.columns import Across, Column, Columns, Line
from gymtap.proxy.views.marks import FAILED_STYLE, ID_STYLE, OPEN_STYLE, SEVERITY, exchange_mark, row_mark, status_style
from gymtap.proxy.views.plain import one_line, printable
from gymtap.proxy.views.words import age_ms, call_name, counted, doubt, duration, exchange_status, size
from gymtap.schemas import ROWLESS_CALLS, Exchange, Finding, Row, RowState, Severity, State

_COLUMNS = (
    Column("call", least=32),
    Column("status", right=True),
    Column("time", right=True, spare=1),
    Column("sent", right=True, spare=3),
    Column("received", right=True, spare=2),
    Column("id"),
)
_FINDINGS_TOLD = 3
_TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class TreeView:
    """`messages` are the one-line messages of failing exchanges by id; `marked` is the exchange that was asked for."""

    tree: CallTree
    messages: Mapping[str, str]
    now_ns: int
    marked: str | None = None
    findings: Mapping[str, Sequence[Finding]] = MappingProxyType({})

    def drawn(self) -> Columns:
        """The tree, then what belongs to the row without a known caller."""
        lines = list(self._section(self.tree.roots))
        if self.tree.orphans:
            heading = Across(Text("called by something that was not seen", "dim"))
            lines += chain([heading], self._section(self.tree.orphans))
        return Columns(_COLUMNS, lines)

    def _section(self, nodes: Iterable[Node]) -> Iterator[Line]:
        for node in nodes:
            yield from self._lines(node, "", "")

    def _lines(self, node: Node, guide: str, below: str) -> Iterator[Line]:
        yield [self._call(node, guide), *self._figures(node)]
        for text in self._beneath(node):
            yield Across(text, below + ("│ " if node.children else "  "))
        for child in node.children:
            last = child is node.children[-1]
            yield from self._lines(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    def _call(self, node: Node, guide: str) -> Text:
        call = Text.assemble((guide, "dim"), exchange_mark(node.exchange), " ", call_name(node.exchange))
        call.append(_retries(node), OPEN_STYLE)
        if any(exchange.id == self.marked for exchange in node.attempts):
            call.append(" ◀", "bold")
        return call

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
        yield from _findings([one for exchange in node.attempts for one in self.findings.get(exchange.id, ())])
        if node.exchange.call not in ROWLESS_CALLS and (note := doubt(node.exchange.attribution)):
            yield Text(f"? {note}", OPEN_STYLE)


def _findings(found: Sequence[Finding]) -> Iterator[Text]:
    """The gravest findings; notes are for `gymtap show`."""
    told = [one for severity in (Severity.ERROR, Severity.WARNING) for one in found if one.severity is severity]
    for one in told[:_FINDINGS_TOLD]:
        mark, style = SEVERITY[one.severity]
        yield Text.assemble((f"{mark} ", style), (one.rule, "bold"), f"  {one_line(one.message)}")
    if len(told) > _FINDINGS_TOLD:
        yield Text(f"  … and {counted(len(told) - _FINDINGS_TOLD, 'finding')} more: gymtap show", "dim")


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


def row_heading(row: Row, now_ns: int, own_exchanges: int) -> Text:
    """`row 5.0 ✗ failed after 41 ms · 500 · weather_simple_agent · 6 exchanges, 5 failed`."""
    match row.state:
        case RowState.RUNNING:
            state = f"running for {duration(age_ms(row.started_ns, now_ns))}"
        case RowState.FAILED:
            state = "failed" + (f" after {duration(row.duration_ms)}" if row.duration_ms is not None else "")
        case RowState.DONE:
            state = "done" + (f" in {duration(row.duration_ms)}" if row.duration_ms is not None else "")
    parts = [str(row.status) if row.status is not None else "", printable(row.key.agent or "")]
    parts += [f"reward {row.reward:g}" if row.reward is not None else ""]
    parts += [counted(own_exchanges, "exchange") + (f", {row.failed_exchanges} failed" if row.failed_exchanges else "")]
    style = FAILED_STYLE if row.state is RowState.FAILED else ""
    told = " · ".join(["", *(part for part in parts if part)])
    return Text.assemble(("row ", "dim"), (row.key.label, "bold"), " ", row_mark(row), " ", (state, style), told)
