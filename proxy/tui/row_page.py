"""One row: its calls as a waterfall, and beside it (beneath it, on a narrow screen) the diagnosis in its fixed form."""

import math
import time
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.store import Capture, RowLine
from gymtap.proxy.store.listed import as_row, full_label
from gymtap.proxy.store.notes import Note
from gymtap.proxy.tui.exporting import Wish
from gymtap.proxy.tui.lines import Lines, TextLines
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.prompt import Prompt
from gymtap.proxy.tui.waterfall_list import Waterfall
from gymtap.proxy.views.call_tree import CallTree, call_tree
from gymtap.proxy.views.diagnosis_view import NAME_CELLS, diagnosis_lines, leaf_lines
from gymtap.proxy.views.plain import printable
from gymtap.proxy.views.tree_view import row_heading
from gymtap.schemas import Diagnosis, Exchange, Row, RowState

_AGAIN_S = 1.0


@dataclass(frozen=True)
class Seen:
    """A row as it was read."""

    row: Row
    exchanges: list[Exchange]
    tree: CallTree


def read_row(capture: Capture, line: RowLine) -> Seen:
    """The row as it is now, its exchanges and their tree. Raises CaptureError."""
    row = as_row(next(iter(capture.row_lines_of([line.identity])), line))
    exchanges = list(capture.exchanges(row=row.key))
    return Seen(row, exchanges, call_tree(exchanges, row.root))


def read_diagnosis(capture: Capture, row: Row) -> Diagnosis:
    """Why the row went as it did."""
    from gymtap.proxy.diagnose.capture import diagnose_row

    return diagnose_row(capture, row, now_ns=time.time_ns())


def read_why(capture: Capture, row: Row) -> tuple[Diagnosis, str | None]:
    """Why the row went as it did, and how a sibling that passed went another way."""
    from gymtap.proxy.diagnose.capture import diagnose_beside

    return diagnose_beside(capture, row, now_ns=time.time_ns())


class RowPage(Page):
    """A row that was opened."""

    DEFAULT_CSS = """
    RowPage #heading { height: auto; max-height: 3; background: $boost; padding: 0 1; }
    RowPage #panes { height: 1fr; }
    RowPage.-narrow #why { height: auto; max-height: 50%; }
    RowPage.-wide #panes { layout: grid; grid-size: 2 1; grid-columns: 3fr 2fr; grid-rows: 1fr; }
    RowPage #panes Lines { border-top: solid $primary-darken-2; border-title-style: bold; padding: 0 1; }
    RowPage #panes Lines:focus { border-top: solid $accent; }
    """
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-narrow"), (140, "-wide")]  # noqa: RUF012  # as textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("R", "root", "Root cause"),
        Binding("D", "why", "Why"),
        Binding("E,n", "next(1)", "Next failing", key_display="n"),
        Binding("N", "next(-1)", "Previous failing", show=False),
        Binding("right_square_bracket", "row(1)", "Next row", key_display="]"),
        Binding("left_square_bracket", "row(-1)", "Previous row", key_display="[", show=False),
        Binding("y", "copy", "Copy"),
        Binding("r", "replay", "Replay"),
        Binding("e", "edit", "Edit and send", show=False),
        Binding("V", "validate", "Validate", show=False),
        Binding("equals_sign", "compare", "Compare with the original, or the marked one", key_display="=", show=False),
        Binding("m", "mark", "Mark", show=False),
        Binding("c", "comment", "Comment", show=False),
        Binding("x", "export", "Export", show=False),
        Binding("i", "app.in_flight", "In flight", show=False),
        Binding("question_mark", "app.help", "Help", key_display="?"),
    ]

    def __init__(self, line: RowLine, *, why: bool = False) -> None:
        super().__init__()
        self._line = line
        self._why = why
        self._seen: Seen | None = None
        self._read_at = 0.0
        self.diagnosis: Diagnosis | None = None

    def body(self) -> ComposeResult:
        """The row, its calls, why."""
        yield Static("", id="heading")
        with Container(id="panes"):
            calls = Waterfall(id="calls")
            calls.border_title = "calls"
            yield calls
            why = TextLines(id="why")
            why.border_title = "diagnosis"
            yield why

    @property
    def calls(self) -> Waterfall:
        """The waterfall."""
        return self.query_one(Waterfall)

    def changed(self) -> None:
        """A row that runs is read again every second; the others once."""
        super().changed()
        running = self._seen is None or self._seen.row.state is RowState.RUNNING
        if running and time.monotonic() - self._read_at > _AGAIN_S:
            self._read_at = math.inf  # not again before this one is done, however long it takes
            self._read()

    @work(exclusive=True, group="read", exit_on_error=False)
    async def _read(self) -> None:
        reader = self.tui.reader
        try:
            first = self._seen is None
            self._seen = seen = await reader.ask(read_row, self._line)
            self._show(seen)
            diagnosis, beside = await reader.ask(read_why, seen.row)
        except GymtapError as error:
            self.query_one("#heading", Static).update(Text(f"✗ {error}"))
            return
        finally:
            self._read_at = time.monotonic()
        self.diagnosis = diagnosis
        self._show_why(diagnosis, beside, first=first)

    def _show(self, seen: Seen) -> None:
        heading = row_heading(seen.row, time.time_ns(), len(seen.exchanges))
        note = self.tui.rows.notes.of(full_label(self._line))
        heading.append("  *" if note.marked else "", "bold")
        heading.append(f"  “{printable(note.comment)}”" if note.comment else "", "italic")
        self.query_one("#heading", Static).update(heading)
        self.calls.notes = self.tui.rows.notes
        self.calls.put(seen.tree, seen.exchanges)

    def _show_why(self, diagnosis: Diagnosis, beside: str | None, *, first: bool) -> None:
        lines = [*diagnosis_lines(diagnosis, beside), *leaf_lines(diagnosis.innermost)]
        self.query_one("#why", TextLines).put(lines, hang=NAME_CELLS)
        calls = self.calls
        calls.root_cause = diagnosis.exchange if diagnosis.rule is not None else None
        calls.refresh()
        if first and calls.root_cause is not None:
            calls.go_to(calls.root_cause)
        if first and self._why:
            self.action_why()

    # Moving

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open the call; Enter on the diagnosis goes to the exchange that it blames."""
        event.stop()
        if event.lines is self.calls:
            self.action_open()
        else:
            self.action_root()

    def action_open(self) -> None:
        """Open the exchange that the cursor is on."""
        if (exchange := self.calls.exchange) is not None:
            self.tui.show_exchange(exchange.id, self.diagnosis)

    def action_root(self) -> None:
        """Open the exchange at fault."""
        if self.diagnosis is None or self.diagnosis.exchange is None:
            self.say("no exchange of this row is at fault")
            return
        self.calls.go_to(self.diagnosis.exchange)
        self.tui.show_exchange(self.diagnosis.exchange, self.diagnosis)

    def action_why(self) -> None:
        """To the diagnosis."""
        self.query_one("#why").focus()

    def action_next(self, by: int) -> None:
        """To the next call that failed."""
        if not self.calls.next_failed(by):
            self.say("no call of this row failed")

    def action_row(self, by: int) -> None:
        """Open the row beside it, in the order of the list."""
        self.tui.show_row_beside(self._line, by)

    # Actions

    @property
    def _exchange(self) -> Exchange | None:
        return self.calls.exchange

    def action_copy(self) -> None:
        """Copy the call that the cursor is on."""
        if (exchange := self._exchange) is not None:
            self.tui.copy_exchange(exchange.id)

    @property
    def _call(self) -> str | None:
        """The call that the cursor is on; None for the /run, which stands for the row."""
        exchange = self._exchange
        root = self._seen.row.root if self._seen else None
        return None if exchange is None or exchange.id == root else exchange.id

    def action_replay(self) -> None:
        """Send the row again, from the call that the cursor is on."""
        self.tui.replay(self._line.key, start=self._call)

    def action_edit(self) -> None:
        """Change the call that the cursor is on, and send it."""
        if (exchange := self._exchange) is not None:
            self.tui.replay(self._line.key, start=exchange.id, edit=True)

    def action_validate(self) -> None:
        """Check the call that the cursor is on."""
        if (exchange := self._exchange) is not None:
            self.tui.validate_exchange(exchange.id)

    def action_compare(self) -> None:
        """Compare the call, or from its /run the row, with the one that is marked, or with the original."""
        self.tui.compare(self._call or self._line.key)

    def action_export(self) -> None:
        """Write the row, or its exchanges, to a file."""
        self.tui.export(Wish(f"row-{self._line.label}", rows=(self._line.key,)))

    # Notes

    @property
    def _note(self) -> Note:
        notes = self.tui.rows.notes
        return notes.of_exchange(self._call) if self._call else notes.of(full_label(self._line))

    def action_mark(self) -> None:
        """Mark the call, or from its /run the row; or take the mark away."""
        self._put(self._note.model_copy(update={"marked": not self._note.marked}))

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def action_comment(self) -> None:
        """Ask for a comment on the call, or from its /run on the row."""
        about = self._call or f"row {self._line.label}"
        text = await self.app.push_screen_wait(Prompt(f"comment on {about}", self._note.comment))
        if text is not None:
            self._put(self._note.model_copy(update={"comment": text.strip()}))

    def _put(self, note: Note) -> None:
        self.tui.put_note(self._call, full_label(self._line), note)
        if self._seen is not None:
            self._show(self._seen)
