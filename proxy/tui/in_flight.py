"""What is open now, the oldest first, wherever it hangs; above it the alarms."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from gymtap.proxy.core.filter import quoted
from gymtap.proxy.core.in_flight import Alarm
from gymtap.proxy.tui.lines import Lines, TextLines
from gymtap.proxy.tui.page import Page
from gymtap.proxy.views.marks import FAILED_STYLE, ID_STYLE, OPEN_STYLE
from gymtap.proxy.views.plain import one_line
from gymtap.proxy.views.words import age_ms, call_name, counted, duration
from gymtap.schemas import Exchange

_AGE_CELLS = 10
_ROW_CELLS = 12
_ID_CELLS = 8
_ROWS_NAMED = 5


class InFlight(Page):
    """Alarms and open exchanges; Enter shows the rows of an alarm, and opens an exchange."""

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
        opened = [(open_line(one, now_ns), one.id) for one in pulse.in_flight]
        self.query_one(TextLines).put([*alarm_lines(pulse.alarms), *opened])

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open it, or show its rows."""
        event.stop()
        if isinstance(event.lines, TextLines) and (target := event.lines.target(event.index)):
            if any(target == wanted for _, wanted in alarm_lines(self.tui.feed.pulse.alarms)):
                self.tui.show_rows(target)
            else:
                self.tui.show_exchange(target)


def alarm_lines(raised: Iterable[Alarm]) -> Iterator[tuple[Text, str]]:
    """Each alarm as `gymtap inflight` tells it, with the filter for its rows."""
    for alarm in raised:
        more = ", …" if len(alarm.rows) > _ROWS_NAMED else ""
        rows = f"  rows {', '.join(alarm.rows[:_ROWS_NAMED])}{more}" if alarm.rows else ""
        text = Text(f"! {str(alarm.kind).replace('_', ' ')}: {one_line(alarm.message)}{rows}", FAILED_STYLE)
        yield text, _filter_of(alarm.rows)


def _filter_of(rows: Sequence[str]) -> str:
    return f"row:{','.join(map(quoted, rows))}" if rows else "is:running"


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
