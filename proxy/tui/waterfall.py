"""A row's call tree as a waterfall: one line a call, and when it ran as a bar on the row's own time.

Pure: a tree in, texts out. Calls that retried are one line whose bar shows every attempt.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from gymtap.proxy.store.notes import NO_NOTE, Note
from gymtap.proxy.views.call_tree import CallTree, Node
from gymtap.proxy.views.marks import ID_STYLE, OK_STYLE, OPEN_STYLE, exchange_mark, status_style
from gymtap.proxy.views.plain import printable
from gymtap.proxy.views.words import age_ms, call_name, duration, exchange_status
from gymtap.schemas import Exchange, State

_STATUS_CELLS = 11
_TIME_CELLS = 8
_ID_CELLS = 7
_BAR_LEAST = 8
_TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Branch:
    """One line of the tree: its call, and the guides before it. `heading` is a line of its own instead."""

    node: Node | None
    guide: str = ""
    heading: str = ""


@dataclass(frozen=True)
class Span:
    """The row's time: when it began, and how long it is."""

    started_ns: int
    length_ms: float


def branches(tree: CallTree) -> list[Branch]:
    """All lines, parents first; what was called by something unseen comes last, under a heading."""
    found = [branch for root in tree.roots for branch in _below(root, "", "")]
    if tree.orphans:
        found.append(Branch(None, heading="called by something that was not seen"))
        found += [branch for orphan in tree.orphans for branch in _below(orphan, "", "")]
    return found


def _below(node: Node, guide: str, below: str) -> Iterator[Branch]:
    yield Branch(node, guide)
    for child in node.children:
        last = child is node.children[-1]
        yield from _below(child, below + ("└─" if last else "├─"), below + ("  " if last else "│ "))


def span(exchanges: list[Exchange], now_ns: int) -> Span:
    """From the first exchange's start to the last one's end, or to now where one is open."""
    first = min((exchange.started_ns for exchange in exchanges), default=now_ns)
    ends = [(exchange.started_ns - first) / 1e6 + took(exchange, now_ns) for exchange in exchanges]
    return Span(first, max(max(ends, default=0.0), 0.001))


def took(exchange: Exchange, now_ns: int) -> float:
    """How long it lasted, or has lasted so far (ms)."""
    if exchange.state is State.OPEN:
        return age_ms(exchange.started_ns, now_ns)
    return exchange.duration_ms or 0.0


def branch_line(
    branch: Branch, whole: Span, width: int, now_ns: int, root_cause: str | None, *, note: Note = NO_NOTE
) -> Text:
    """The call on the left, its bar in what is left of the width, the figures on the right."""
    if branch.node is None:
        return Text(branch.heading, "dim")
    exchange = branch.node.exchange
    figures = _STATUS_CELLS + _TIME_CELLS + _ID_CELLS + 3
    bar_cells = max((width - figures) * 2 // 5, _BAR_LEAST) if width > 70 else 0
    call = Text.assemble((branch.guide, "dim"), ("*" if note.marked else "", "bold"), exchange_mark(exchange), " ")
    call.append(call_name(exchange))
    marks = _marks(branch.node, root_cause)
    room = max(width - figures - bar_cells - 1, 12)
    call.truncate(max(room - marks.cell_len, 1), overflow="ellipsis")
    call.append_text(marks)
    if note.comment:
        call.append(f" “{printable(note.comment)}”", "italic")
    call.truncate(room, overflow="ellipsis", pad=True)
    status = Text(exchange_status(exchange), status_style(exchange))
    status.truncate(_STATUS_CELLS, overflow="ellipsis")
    lasted = Text(duration(took(exchange, now_ns)), OPEN_STYLE if exchange.state is State.OPEN else "")
    return Text.assemble(
        call, " ", _bar(branch.node, whole, bar_cells, now_ns), " ",
        " " * (_STATUS_CELLS - status.cell_len), status, " ",
        " " * (_TIME_CELLS - lasted.cell_len), lasted, " ", (exchange.id, ID_STYLE),
    )  # fmt: skip


def _marks(node: Node, root_cause: str | None) -> Text:
    """What is never cut off: that it was tried often, and that it is at fault."""
    marks = Text(f" {_TIMES}{len(node.attempts)}" if len(node.attempts) > 1 else "", OPEN_STYLE)
    is_root = root_cause is not None and any(one.id == root_cause for one in node.attempts)
    return marks.append(" ◀ root" if is_root else "", "bold")


def _bar(node: Node, whole: Span, cells: int, now_ns: int) -> Text:
    bar = [" "] * cells
    for exchange in node.attempts if cells else ():
        start_ms = (exchange.started_ns - whole.started_ns) / 1e6
        first = min(int(start_ms / whole.length_ms * cells), cells - 1)
        last = min(int((start_ms + took(exchange, now_ns)) / whole.length_ms * cells), cells - 1)
        for cell in range(max(first, 0), max(last, first) + 1):
            bar[cell] = "░" if exchange.state is State.OPEN else "▒" if exchange.failed else "█"
    style = status_style(node.exchange) or OK_STYLE
    return Text("".join(bar), style)
