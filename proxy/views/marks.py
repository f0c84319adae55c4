"""Marks and their colours. A mark stands wherever a colour does: nobody has to tell red from green."""

from collections.abc import Mapping
from types import MappingProxyType

from rich.text import Text

from gymtap.schemas import Exchange, Row, RowState, Severity, State

OK_STYLE = "green"
FAILED_STYLE = "bold red"
OPEN_STYLE = "yellow"
ID_STYLE = "cyan"

SEVERITY: Mapping[Severity, tuple[str, str]] = MappingProxyType(
    {Severity.ERROR: ("✗", FAILED_STYLE), Severity.WARNING: ("!", OPEN_STYLE), Severity.NOTE: ("·", "dim")}
)
"""A finding's mark and style, by its severity."""


def exchange_mark(exchange: Exchange) -> Text:
    """✓, ✗ or … for one exchange."""
    if exchange.failed:
        return Text("✗", FAILED_STYLE)
    return Text("…", OPEN_STYLE) if exchange.state is State.OPEN else Text("✓", OK_STYLE)


def row_mark(row: Row) -> Text:
    """✓, ✗ or … for a row."""
    match row.state:
        case RowState.FAILED:
            return Text("✗", FAILED_STYLE)
        case RowState.RUNNING:
            return Text("…", OPEN_STYLE)
        case RowState.DONE:
            return Text("✓", OK_STYLE)


def status_style(exchange: Exchange) -> str:
    """The style of `exchange_status`."""
    if exchange.failed:
        return FAILED_STYLE
    return OPEN_STYLE if exchange.state is State.OPEN else ""
