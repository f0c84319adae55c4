"""All rows, filtered, sorted and searched. What is slow (filtering many rows, reading bodies) happens in threads.

Rows that come never move the cursor: it stays on its row, wherever that goes. A key waits until what was asked for is
shown, so that it never acts on other rows.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static
from textual.worker import get_current_worker

from gymtap.proxy.core.filter import Filter, parse
from gymtap.proxy.store import Capture
from gymtap.proxy.store.listed import Listed, Order, full_label
from gymtap.proxy.store.notes import Note
from gymtap.proxy.store.search import row_hits
from gymtap.proxy.tui.choice import Choice
from gymtap.proxy.tui.exporting import Wish
from gymtap.proxy.tui.lines import Lines
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.prompt import Prompt
from gymtap.proxy.tui.row_list import View
from gymtap.proxy.tui.rows_table import RowsTable
from gymtap.proxy.views.plain import one_line
from gymtap.proxy.views.words import counted
from gymtap.schemas import RowKey, RowState

_TOLD_EVERY_ROWS = 20
_PATIENCE_S = 5.0
_ORDER_KEYS = dict(zip("srtwmhfl", Order, strict=True))


class RowsPage(Page):
    """The table of rows."""

    DEFAULT_CSS = """
    RowsPage #filter { height: 1; background: $boost; }
    RowsPage #heading { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "filter", "Filter"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("E,n", "next(1)", "Next failing", key_display="n"),
        Binding("N", "next(-1)", "Previous failing", show=False),
        Binding("D", "why", "Why"),
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Turn the order round", show=False),
        Binding("m", "mark", "Mark"),
        Binding("c", "comment", "Comment", show=False),
        Binding("F", "follow", "Follow what comes", show=False),
        Binding("x", "export", "Export what is shown", show=False),
        Binding("y", "copy", "Copy", show=False),
        Binding("r", "replay", "Replay", show=False),
        Binding("e", "edit", "Edit and send", show=False),
        Binding("equals_sign", "compare", "Compare with the original, or the marked row", key_display="=", show=False),
        Binding("i", "app.in_flight", "In flight", show=False),
        Binding("R", "root", "To the root cause", show=False),
        Binding("question_mark", "app.help", "Help", key_display="?"),
    ]

    def __init__(self, wanted: str = "") -> None:
        super().__init__()
        self._filter = parse(wanted)
        self._order = Order.STARTED
        self._backwards = False
        self._seen = -1
        self._choosing = False
        self._shown = asyncio.Event()
        self._following = False
        self._search = ""

    def body(self) -> ComposeResult:
        """What is shown, the columns' names, the rows."""
        yield Static("", id="filter")
        yield Static("", id="heading")
        yield RowsTable(self.tui.rows, id="rows")

    @property
    def table(self) -> RowsTable:
        """The rows."""
        return self.query_one(RowsTable)

    def changed(self) -> None:
        """Rows came, or causes became known: choose again, one choice at a time."""
        super().changed()
        if self.tui.rows.version != self._seen and not self._choosing:
            self._seen, self._choosing = self.tui.rows.version, True
            self._choose(self._filter, self._order, backwards=self._backwards)
        elif self.tui.feed.pulse.live:
            self.table.refresh()

    async def on_key(self, event: events.Key) -> None:
        """Wait for the rows that were asked for; a key but Esc that waited too long is dropped, and that is told."""
        try:
            async with asyncio.timeout(0 if event.key == "escape" else _PATIENCE_S):
                await self._shown.wait()
        except TimeoutError:
            if event.key != "escape":
                event.stop()
                self.say("the rows are still being chosen")

    def on_resize(self) -> None:
        """The columns are as wide as the screen."""
        if self.is_mounted:
            self._tell()

    @property
    def shown_filter(self) -> Filter:
        """What is shown."""
        return self._filter

    @property
    def positions(self) -> Sequence[int]:
        """Where the rows that are shown are in the row list, in the order in which they are shown."""
        return self.table.view.positions

    def show_filter(self, wanted: Filter) -> None:
        """Show other rows."""
        self._filter = wanted
        self._choose_anew()

    def _choose_anew(self) -> None:
        self._seen = -1
        self._shown.clear()
        self.changed()

    @work(thread=True, exit_on_error=False, group="choose")
    def _choose(self, wanted: Filter, order: Order, *, backwards: bool) -> None:
        rows, table = self.tui.rows, self.table
        at = table.at(table.cursor)
        view = rows.choose(wanted, order, backwards=backwards)
        place = _place(view, at)
        self.app.call_from_thread(self._show, view, place)

    def _show(self, view: View, place: int | None) -> None:
        self._choosing = False
        table = self.table
        table.view = view
        table.reload()
        if place is not None and place != table.cursor:
            offset = table.cursor - int(table.scroll_offset.y)
            table.set_reactive(RowsTable.cursor, place)
            table.scroll_to(y=max(place - offset, 0), animate=False, immediate=True)
            table.refresh()
        if self._following:
            self._to_the_end()
        self._tell()
        if self._seen >= 0:
            self._shown.set()
        if self.tui.rows.version != self._seen:
            self.changed()

    def _tell(self) -> None:
        rows, table = self.tui.rows, self.table
        told = Text(f" {len(table.view.positions):,} of {counted(len(rows.lines), 'row')}", "bold", no_wrap=True)
        if self._order is not Order.STARTED or self._backwards:
            told.append(f"   by {self._order}{', backwards' if self._backwards else ''}")
        if self._search:
            told.append(f"   /{self._search}: {self._searched}")
        if self._following:
            told.append("   following", "bold")
        told.append("   filter ", "bold").append(one_line(self._filter.text) or "none: f sets one")
        self.query_one("#filter", Static).update(told)
        self.query_one("#heading", Static).update(table.heading(max(self.size.width, 20)))

    # Choosing

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def action_filter(self) -> None:
        """Ask for another filter."""
        label = "filter, as in: layer:config status:5xx boundary:verify dur>2s ~timeout -is:done"
        text = await self.app.push_screen_wait(Prompt(label, self._filter.text, parse))
        if text is not None:
            self.show_filter(parse(text))

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def action_sort(self) -> None:
        """Ask what to sort by."""
        key = await self.app.push_screen_wait(
            Choice("sort by", [(key, str(order)) for key, order in _ORDER_KEYS.items()])
        )
        if key is not None:
            self._order, self._backwards = _ORDER_KEYS[key], False
            self._choose_anew()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._backwards = not self._backwards
        self._choose_anew()

    def action_follow(self) -> None:
        """Keep the newest rows in view; the cursor stays where it is."""
        self._following = not self._following
        if self._following:
            self._to_the_end()
        self._tell()

    def _to_the_end(self) -> None:
        """Scroll when the list knows how long it is."""
        self.table.call_after_refresh(self.table.scroll_end, animate=False, immediate=True)

    # Moving

    @property
    def current(self) -> Listed | None:
        """The row that the cursor is on."""
        at = self.table.at(self.table.cursor)
        return None if at is None else self.tui.rows.listed(at)

    def action_next(self, by: int) -> None:
        """To the next row that a search found; without a search, that failed."""
        table, rows = self.table, self.tui.rows
        hits, positions = table.hits, table.view.positions

        def wanted(at: int) -> bool:
            return at in hits if self._search else rows.lines[at].state is RowState.FAILED

        place = _next(positions.__getitem__, len(positions), table.cursor, by, wanted)
        if place is None:
            self.say("nothing more was found" if self._search else "no more failing rows")
        else:
            table.cursor = place

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open the row."""
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the row that the cursor is on."""
        if (row := self.current) is not None:
            self.tui.show_row(row.line)

    def action_why(self) -> None:
        """Open the row at its diagnosis."""
        if (row := self.current) is not None:
            self.tui.show_row(row.line, why=True)

    def action_root(self) -> None:
        """Open the exchange at fault."""
        if (row := self.current) is not None:
            self.tui.show_root(row.line)

    # Notes

    def action_mark(self) -> None:
        """Mark the row, or take its mark away."""
        if (row := self.current) is not None:
            self._note(row, row.note.model_copy(update={"marked": not row.marked}))

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def action_comment(self) -> None:
        """Ask for a comment on the row."""
        if (row := self.current) is not None:
            text = await self.app.push_screen_wait(Prompt(f"comment on row {row.label}", row.note.comment))
            if text is not None:
                self._note(row, row.note.model_copy(update={"comment": text.strip()}))

    def _note(self, row: Listed, note: Note) -> None:
        self.tui.put_note(None, full_label(row.line), note)
        if self._filter.tests:
            self._seen = -1
            self.changed()
        self.table.refresh()

    # Searching

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def action_search(self) -> None:
        """Ask what to look for in the bodies of the rows that are shown."""
        text = await self.app.push_screen_wait(Prompt("search the bodies of these rows for", self._search))
        if text is not None:
            self._search, self._searched, self.table.hits = text, "…", {}
            self._tell()
            self.table.refresh()
            if text:
                self._look_for(text, list(self.positions))

    @work(thread=True, exclusive=True, exit_on_error=False, group="search")
    def _look_for(self, text: str, positions: list[int]) -> None:
        worker = get_current_worker()
        capture = Capture(self.tui.feed.path)
        hits: dict[int, list[str]] = {}
        for number, at in enumerate(positions):
            if worker.is_cancelled:
                return
            if found := row_hits(capture, self.tui.rows.lines[at].key, text):
                hits[at] = found
            if number % _TOLD_EVERY_ROWS == 0 or found:
                self.app.call_from_thread(self._found, dict(hits), number + 1, len(positions))
        self.app.call_from_thread(self._found, hits, len(positions), len(positions))

    def _found(self, hits: dict[int, list[str]], done: int, total: int) -> None:
        self.table.hits = hits
        self._searched = f"{counted(len(hits), 'row')}" + (
            "" if done == total else f", {done:,} of {total:,} looked into"
        )
        self._tell()
        self.table.refresh()

    _searched = ""

    # Actions

    def action_export(self) -> None:
        """Write the rows that are shown, or their exchanges, to a file."""
        self.tui.export(Wish(self.tui.feed.path.name, rows=self._keys()))

    def _keys(self) -> tuple[RowKey, ...]:
        """The rows that are shown."""
        return tuple(self.tui.rows.lines[at].key for at in self.positions)

    def action_copy(self) -> None:
        """Copy the row's /run."""
        if (row := self.current) is not None and row.line.root is not None:
            self.tui.copy_exchange(row.line.root)

    def action_replay(self) -> None:
        """Send the row again."""
        if (row := self.current) is not None:
            self.tui.replay(row.line.key, others=self._keys())

    def action_edit(self) -> None:
        """Change what the row's /run sends, and send it."""
        if (row := self.current) is not None:
            self.tui.replay(row.line.key, edit=True)

    def action_compare(self) -> None:
        """Compare the row with the one that is marked, or with its original."""
        if (row := self.current) is not None:
            self.tui.compare(row.line.key)


def _place(view: View, at: int | None) -> int | None:
    """Where a position is shown in a view."""
    if at is None:
        return None
    try:
        return view.positions.index(at)
    except ValueError:
        return None


def _next(at: Callable[[int], int], count: int, start: int, by: int, wanted: Callable[[int], bool]) -> int | None:
    """The next place from `start`, beginning anew at the other end, whose position is wanted."""
    places = ((start + by * step) % count for step in range(1, count + 1)) if count else iter(())
    return next((place for place in places if wanted(at(place))), None)
