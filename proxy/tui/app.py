"""The app: owns the capture's reader and feed, goes from view to view, and does what several views offer.

A view is pushed over the one it came from, so that Esc always leads back. Whatever reads the capture is awaited or runs
in a thread; a problem is told in the UI and never ends it.
"""

import gc
import time
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import App
from textual.binding import Binding, BindingType

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.store import RowLine
from gymtap.proxy.tui.exchange_page import ExchangePage
from gymtap.proxy.tui.feed import Feed
from gymtap.proxy.tui.help import Help
from gymtap.proxy.tui.notes import Notes
from gymtap.proxy.tui.overview import Overview
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.reader import Reader
from gymtap.proxy.tui.row_list import RowList
from gymtap.proxy.tui.row_page import RowPage, read_diagnosis, read_row
from gymtap.proxy.tui.rows_page import RowsPage
from gymtap.schemas import Diagnosis, Exchange

_BEAT_S = 0.1


class GymtapTui(App[None]):
    """The terminal UI on one capture (a directory, or a bundle's file), live or finished."""

    TITLE = "gymtap"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("colon,ctrl+p", "command_palette", "Commands", key_display=":", show=False),
        Binding("question_mark", "help", "Help", key_display="?", show=False),
        Binding("ctrl+q", "quit", "Quit", show=False),
        Binding("Q", "quit", "Quit", show=False),
    ]

    def __init__(self, path: Path) -> None:
        super().__init__()
        notes = Notes(path)
        self.rows = RowList(notes)
        self.feed = Feed(path, self.rows)
        self.reader = Reader(path)
        self._beaten: tuple[object, ...] = ()
        self._told = ""

    # Running

    def on_mount(self) -> None:
        """Show what there is while it is read."""
        self.push_screen(Overview())
        self._read_rows()
        self._diagnose()
        self.set_interval(_BEAT_S, self._beat)
        if self.rows.notes.problem:
            self._tell_problem(self.rows.notes.problem)

    def on_unmount(self) -> None:
        """End the threads."""
        self.feed.stop.set()
        self.feed.changed.set()
        self.reader.close()

    @work(thread=True, exit_on_error=False, group="feed")
    def _read_rows(self) -> None:
        """Without the collector of cycles, which would look at every row again and again while they come."""
        gc.disable()
        try:
            self.feed.read()
        finally:
            gc.enable()

    @work(thread=True, exit_on_error=False, group="diagnose")
    def _diagnose(self) -> None:
        self.feed.diagnose()

    def _beat(self) -> None:
        """Tell the view that something changed, at most so often, however much has."""
        feed = self.feed
        if self.rows.complete and not gc.isenabled():
            gc.freeze()  # what was read stays; the collector need not look at it
            gc.enable()
        now = (self.rows.version, feed.pulse, feed.undiagnosed, feed.pulse.live and int(time.monotonic()))
        if now != self._beaten and isinstance(self.screen, Page):
            self._beaten = now
            self.screen.changed()
        if feed.problem and feed.problem != self._told:
            self._told = feed.problem
            self._tell_problem(feed.problem)

    def _tell_problem(self, text: str) -> None:
        self.notify(text, severity="error", timeout=10, markup=False)

    async def on_event(self, event: events.Event) -> None:
        """Note when keys are pressed: the diagnoses give way to them."""
        if isinstance(event, events.Key):
            self.feed.last_key = time.monotonic()
        await super().on_event(event)

    # Going

    def action_back(self) -> None:
        """To the view before; from the first one, nowhere."""
        if len(self.screen_stack) > 2:
            self.pop_screen()

    def action_rows(self) -> None:
        """To all rows."""
        self.show_rows("")

    def show_rows(self, wanted: str) -> None:
        """To the rows that pass a filter."""
        self.push_screen(RowsPage(wanted))

    def show_row(self, line: RowLine, *, why: bool = False) -> None:
        """To a row; `why` begins at its diagnosis."""
        self.push_screen(RowPage(line, why=why))

    def show_exchange(self, exchange: str, diagnosis: Diagnosis | None = None) -> None:
        """To an exchange; the diagnosis is its row's, where it is known."""
        self.push_screen(ExchangePage(exchange, diagnosis))

    def show_row_beside(self, line: RowLine, by: int) -> None:
        """From a row to the one after it in the list, or before."""
        at = self.rows.position(line.identity)
        positions = self.rows.view.positions or range(len(self.rows.lines))
        place = positions.index(at) + by if at is not None and at in positions else -1
        if 0 <= place < len(positions):
            self.switch_screen(RowPage(self.rows.lines[positions[place]]))
        else:
            self.notify("no more rows", timeout=3)

    def show_row_of(self, exchange: Exchange, *, why: bool = False) -> None:
        """To the row of an exchange."""
        key = exchange.attribution.row
        at = None
        if key is not None:
            at = self.rows.position((key.run, key.task, key.rollout, key.attempt, key.rollout_id, key.agent))
        if at is None:
            self.notify(f"{exchange.id} belongs to no row that is known", timeout=3)
        else:
            self.show_row(self.rows.lines[at], why=why)

    @work(exclusive=True, group="root")
    async def show_root(self, line: RowLine) -> None:
        """To the exchange at fault in a row."""
        try:
            seen = await self.reader.ask(read_row, line.key)
            diagnosis = await self.reader.ask(read_diagnosis, seen.row)
        except GymtapError as error:
            self._tell_problem(str(error))
            return
        if diagnosis.exchange is None:
            self.notify(f"no exchange of row {line.label} is at fault", timeout=3)
        else:
            self.show_exchange(diagnosis.exchange, diagnosis)

    def action_help(self) -> None:
        """All keys of this view, and the filter language."""
        self.push_screen(Help(self.screen))

    def save_notes(self) -> None:
        """Write the sidecar, beside the screen."""
        self._save_notes()

    @work(thread=True, exclusive=True, exit_on_error=False, group="notes")
    def _save_notes(self) -> None:
        try:
            self.rows.notes.save()
        except OSError as error:
            self.call_from_thread(self._tell_problem, f"the note could not be kept: {error}")
