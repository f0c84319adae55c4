"""The first screen: how the run is, why rows fail, what hangs, what is missing. Enter on any of it shows those rows."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from gymtap.proxy.core.filter import quoted
from gymtap.proxy.tui.feed import Counted, Pulse, top_causes
from gymtap.proxy.tui.in_flight import alarm_lines
from gymtap.proxy.tui.lines import TextLines
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.row_list import RowList
from gymtap.proxy.tui.strip import Columns, columns, room
from gymtap.proxy.tui.strip_list import Strips
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE, OPEN_STYLE
from gymtap.proxy.views.plain import one_line
from gymtap.proxy.views.words import age_ms, counted, duration, gap_line
from gymtap.schemas import Exchange, RowState

_CAUSES_SHOWN = 200
_GAPS_SHOWN = 20
_EVERY_S = 0.5

type _Targeted = tuple[Text, str | None]


@dataclass(frozen=True)
class _Sum:
    """What the whole list comes to: it takes a moment, so it is made in a thread."""

    states: dict[RowState, int]
    reward: float | None
    causes: list[Counted]
    layers: Counter[str]
    undiagnosed: int
    strip: Columns


class Overview(Page):
    """What is wrong with the run, without a key pressed."""

    DEFAULT_CSS = """
    Overview #run { height: 1; padding: 0 1; }
    Overview #panes { layout: grid; grid-size: 1 3; grid-rows: 2fr 1fr 1fr; height: 1fr; }
    Overview.-wide #panes { grid-size: 2 2; grid-rows: 2fr 1fr; }
    Overview.-wide #causes { column-span: 2; }
    Overview TextLines { border-top: solid $primary-darken-2; border-title-style: bold; padding: 0 1; }
    Overview TextLines:focus { border-top: solid $accent; }
    """
    AUTO_FOCUS = "#causes"
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012  # as textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,right", "app.rows", "All rows"),
        Binding("i", "app.in_flight", "In flight"),
        Binding("d", "app.doctor", "Doctor"),
        Binding("C", "app.captures", "Captures"),
        Binding("question_mark", "app.help", "Help", key_display="?"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._seen: tuple[object, ...] = ()
        self._summed_at = 0.0
        self._waits = False

    def body(self) -> ComposeResult:
        """The run, then three lists."""
        yield Static("reading …", id="run")
        yield Strips(id="strips")
        with Container(id="panes"):
            yield self._list("causes", "top causes")
            yield self._list("layers", "failed rows by layer")
            yield self._list("flight", "in flight, by boundary")

    def _list(self, name: str, title: str) -> TextLines:
        found = TextLines(id=name, follow_targets=True)
        found.border_title = title
        return found

    def changed(self) -> None:
        """Sum up again, not more often than can be read."""
        super().changed()
        self._flight(self.tui.feed.pulse)
        rows = self.tui.rows
        seen = (rows.version, self.size.width, self.tui.feed.pulse.alarms)
        if seen == self._seen or self._waits or not (rows.lines or rows.complete):
            return
        wait_s = self._summed_at + _EVERY_S - time.monotonic()
        if wait_s > 0:
            self._waits = True
            self.set_timer(wait_s, self._waited)
            return
        self._seen, self._summed_at = seen, time.monotonic()
        self._sum_up(room(self.size.width - 2))

    def _waited(self) -> None:
        self._waits = False
        self.beat()

    def on_resize(self) -> None:
        """The strip is as wide as the screen."""
        self.beat()

    @work(thread=True, exclusive=True, exit_on_error=False, group="sum")
    def _sum_up(self, width: int) -> None:
        found = sum_up(self.tui.rows, width)
        self.app.call_from_thread(self._show, found)

    def _show(self, found: "_Sum") -> None:
        self.query_one("#run", Static).update(_states(found))
        self.query_one(Strips).put(found.strip)
        raised = self.tui.feed.pulse.alarms
        causes = _causes(found, complete=self.tui.rows.complete and not raised)
        self.query_one("#causes", TextLines).put([*alarm_lines(raised), *causes])
        self.query_one("#layers", TextLines).put(_layers(found.layers))

    def _flight(self, pulse: Pulse) -> None:
        self.query_one("#flight", TextLines).put([*_flying(pulse.in_flight, time.time_ns()), *_gaps(pulse)])

    def on_lines_chosen(self, event: TextLines.Chosen) -> None:
        """Show the rows that the line is about."""
        lines = event.lines
        wanted = lines.wanted if isinstance(lines, Strips) else None
        if isinstance(lines, TextLines):
            wanted = lines.target(event.index)
        if wanted is not None:
            self.tui.show_rows(wanted)


def sum_up(rows: RowList, width: int) -> _Sum:
    """Go through all rows once."""
    states = dict.fromkeys(RowState, 0)
    rewards, undiagnosed = [], 0
    layers: Counter[str] = Counter()
    for line, diagnosis in zip(rows.lines, rows.diagnoses, strict=False):  # rows come meanwhile
        states[line.state] += 1
        if line.state is RowState.FAILED:
            undiagnosed += diagnosis is None
            layers.update([str(diagnosis.layer)] if diagnosis is not None else ())
        if line.reward is not None:
            rewards.append(line.reward)
    mean = sum(rewards) / len(rewards) if rewards else None
    strip = columns(rows.lines, min(width, len(rows.lines)))
    return _Sum(states, mean, top_causes(rows), layers, undiagnosed, strip)


def _states(found: _Sum) -> Text:
    states = found.states
    line = Text.assemble(
        (f"✗ {states[RowState.FAILED]:,} failed", FAILED_STYLE if states[RowState.FAILED] else "dim"),
        "   ",
        (f"… {states[RowState.RUNNING]:,} running", OPEN_STYLE if states[RowState.RUNNING] else "dim"),
        "   ",
        (f"✓ {states[RowState.DONE]:,} done", OK_STYLE),
    )
    return line.append(f"   mean reward {found.reward:.4g}" if found.reward is not None else "")


def _causes(found: _Sum, *, complete: bool) -> Iterator[_Targeted]:
    for cause in found.causes[:_CAUSES_SHOWN]:
        text = Text.assemble(
            (f"{cause.rows:>7,}", "bold"),
            "  ",
            (f"{cause.example.layer:<21}", FAILED_STYLE),
            one_line(cause.example.cause),
            no_wrap=True,
        )
        yield text, f"cause:{quoted(cause.example.fingerprint or '')}"
    if found.undiagnosed:
        yield Text(f"{found.undiagnosed:>7,}  not diagnosed yet", "dim"), "is:undiagnosed"
    elif not found.states[RowState.FAILED] and not found.causes and complete:
        yield Text("no row failed", OK_STYLE), "is:done"


def _layers(layers: Counter[str]) -> Iterator[_Targeted]:
    for layer, count in layers.most_common():
        yield Text.assemble((f"{count:>7,}", "bold"), "  ", (layer, FAILED_STYLE)), f"layer:{layer}"


def _flying(exchanges: Iterable[Exchange], now_ns: int) -> Iterator[_Targeted]:
    groups: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        groups[f"{exchange.call}  {exchange.boundary}"].append(exchange)
    for name, group in sorted(groups.items(), key=lambda item: item[1][0].started_ns):
        oldest = duration(age_ms(group[0].started_ns, now_ns))
        yield (
            Text.assemble((f"{len(group):>7,}", "bold"), f"  {name}  ", (f"oldest {oldest}", OPEN_STYLE)),
            f"open:{group[0].call}",
        )
    if not groups:
        yield Text("nothing is in flight", "dim"), None


def _gaps(pulse: Pulse) -> Iterator[_Targeted]:
    for gap in pulse.gaps[:_GAPS_SHOWN]:
        yield Text.assemble(("! gap: ", FAILED_STYLE), gap_line(gap)), None
    if len(pulse.gaps) > _GAPS_SHOWN:
        yield Text(f"! and {counted(len(pulse.gaps) - _GAPS_SHOWN, 'more gap')}", FAILED_STYLE), None
