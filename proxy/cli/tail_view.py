"""Draws an exchange as a line of a stream: columns of fixed widths, for nobody knows what comes next."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.text import Text

from gymtap.proxy.views.marks import ID_STYLE, exchange_mark, status_style
from gymtap.proxy.views.plain import printable
from gymtap.proxy.views.words import call_name, duration, exchange_status
from gymtap.schemas import Exchange

_ROW_WIDTH = 8
_STATUS_WIDTH = 6
_TIME_WIDTH = 8
_ID_WIDTH = 6


def tail_lines(exchange: Exchange, message: str) -> Iterator[Text]:
    """When it began (UTC), its row, how it went; and what it answered when it failed."""
    began = datetime.fromtimestamp(exchange.started_ns / 1e9, UTC).strftime("%H:%M:%S")
    row = exchange.attribution.row
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{began}  ", "dim")
    line.append(printable(row.label if row else "-").ljust(_ROW_WIDTH))
    line.append(f" {exchange_status(exchange)}".rjust(_STATUS_WIDTH + 1), status_style(exchange))
    line.append(f"  {duration(exchange.duration_ms).rjust(_TIME_WIDTH)}  ")
    line.append(exchange.id.ljust(_ID_WIDTH), ID_STYLE)
    line.append(" ")
    line.append_text(exchange_mark(exchange))
    line.append(f" {call_name(exchange)}")
    yield line
    if message:
        yield Text(f"          {message}", "red", no_wrap=True, overflow="ellipsis")
