"""What is open now, the oldest first, wherever it hangs."""

import time
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from gymtap.proxy.tui.lines import Lines, TextLines
from gymtap.proxy.tui.page import Page
from gymtap.proxy.views.marks import ID_STYLE, OPEN_STYLE
from gymtap.proxy.views.words import age_ms, call_name, counted, duration
from gymtap.schemas import Exchange

_AGE_CELLS = 10
_ROW_CELLS = 12
_ID_CELLS = 8


class InFlight(Page):
    """Open exchanges; Enter opens one."""

    DEFAULT_CSS = """
    InFlight #heading { height: 1; background: $boost; padding: 0 1; }
    InFlight TextLines { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "app.help", "Help", key_display="?")]

    def body(self) -> ComposeResult:
        """How many, and which."""
        yield Static("", id="heading")
        yield TextLines(id="flight", follow_targets=True)

    def changed(self) -> None:
        """Some came, some ended, all are older."""
        super().changed()
        pulse, now_ns = self.tui.feed.pulse, time.time_ns()
        told = f"{counted(len(pulse.in_flight), 'exchange')} in flight" + ("" if pulse.live else ": the tap has ended")
        self.query_one("#heading", Static).update(Text(told, "bold"))
        self.query_one(TextLines).put([(open_line(one, now_ns), one.id) for one in pulse.in_flight])

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open it."""
        event.stop()
        if isinstance(event.lines, TextLines) and (target := event.lines.target(event.index)):
            self.tui.show_exchange(target)


def open_line(exchange: Exchange, now_ns: int) -> Text:
    """Age, id, row, call, boundary."""
    row = exchange.attribution.row
    return Text.assemble(
        (duration(age_ms(exchange.started_ns, now_ns)).rjust(_AGE_CELLS), OPEN_STYLE),
        "  ",
        (exchange.id.ljust(_ID_CELLS), ID_STYLE),
        (row.label if row else "-").ljust(_ROW_CELLS),
        f"{call_name(exchange)}  ",
        (exchange.boundary.replace("->", " → "), "dim"),
        no_wrap=True,
    )
