"""The app: owns the capture's reader and feed, goes from view to view, and does what several views offer.

A view is pushed over the one it came from, so that Esc always leads back. Whatever reads the capture is awaited or runs
in a thread; a problem is told in the UI and never ends it.
"""

import asyncio
import dataclasses
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from rich.text import Text
from textual import events, work
from textual.app import App, SuspendNotSupported, SystemCommand
from textual.binding import ActiveBinding, Binding, BindingType
from textual.command import CommandPalette
from textual.screen import ModalScreen, Screen
from textual.worker import Worker, WorkerState, get_current_worker

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.store import Capture, RowLine
from gymtap.proxy.store.notes import Note, Notes
from gymtap.proxy.tui import outside, told_to_end
from gymtap.proxy.tui.byte_lines import Bytes
from gymtap.proxy.tui.choice import Choice
from gymtap.proxy.tui.content import Content
from gymtap.proxy.tui.feed import Feed
from gymtap.proxy.tui.help import Help, key_name
from gymtap.proxy.tui.in_flight import InFlight
from gymtap.proxy.tui.lines import Lines
from gymtap.proxy.tui.overview import Overview
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.prompt import Prompt
from gymtap.proxy.tui.reader import Reader
from gymtap.proxy.tui.row_list import RowList
from gymtap.proxy.tui.row_page import RowPage, read_diagnosis, read_row
from gymtap.proxy.tui.rows_page import RowsPage
from gymtap.proxy.tui.text_page import TextPage
from gymtap.proxy.views.words import counted
from gymtap.schemas import Diagnosis, Exchange, RowKey

if TYPE_CHECKING:
    from gymtap.proxy.replay.original import Place
    from gymtap.proxy.tui.exporting import Wish
    from gymtap.proxy.tui.replaying import Asked

_BEAT_S = 0.1
_WALKS = frozenset(one.action for one in Lines.BINDINGS if isinstance(one, Binding))
_SWITCH_S = 0.001
_STUBS = {"p": "provider", "u": "provider,judge"}
_WAYS = (
    ("p", "the provider's recorded answers, no provider needed"),
    ("u", "the provider's and the judge's recorded answers"),
    ("a", "as it was, to where it went"),
    ("t", "to another target …"),
    ("o", "with any option: hop, edits, stub address, times …"),
)


async def _load(*modules: str) -> None:
    """Import what is slow to load and not needed to open, in a thread: the screen must not stand still meanwhile."""
    for name in modules:
        await asyncio.to_thread(import_module, f"gymtap.proxy.tui.{name}")


def _ways(answered_by: RowKey | None, others: Sequence[RowKey]) -> list[tuple[str, str]]:
    """The ways of a replay, each by its key."""
    if answered_by is not None:
        return [("p", f"its row {answered_by.label}, with the provider's recorded answers"), *_WAYS[2:]]
    many = [("m", f"the {len(others):,} rows that are shown, with any option …")] if len(others) > 1 else []
    return [*_WAYS, *many]


def copied(capture: Capture, name: str, form: str) -> str:
    """An exchange as curl (`c`), Python (`p`), with OpenAI's SDK (`s`) or as JSON. Raises CaptureError, UsageError."""
    from gymtap.proxy.export.lines import exchange_document
    from gymtap.proxy.export.select import Chosen, Wanted
    from gymtap.proxy.export.snippet import curl, openai, python

    (kept,) = Chosen(capture, Wanted(ids=(name,)))
    if form == "o":
        return orjson.dumps(exchange_document(kept), option=orjson.OPT_INDENT_2).decode()
    return {"c": curl, "p": python, "s": openai}[form](kept)


class GymtapTui(App[Path]):
    """The terminal UI on one capture (a directory, or a bundle's file), live or finished.

    `run` returns the capture to go on with, None where the person has left.
    """

    TITLE = "gymtap"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("colon,ctrl+p", "command_palette", "Commands", key_display=":", show=False),
        Binding("question_mark", "help", "Help", key_display="?", show=False),
        Binding("ctrl+q", "quit", "Quit", show=False),
        Binding("ctrl+z", "suspend_process", "Suspend, until `fg`", show=False),
        Binding("Q", "quit", "Quit", show=False),
    ]

    def __init__(self, path: Path) -> None:
        super().__init__()
        notes = Notes(path)
        self.rows = RowList(notes)
        self.feed = Feed(path, self.rows)
        self.reader = Reader(path)
        self._others: dict[Path, Reader] = {}
        self._beaten: tuple[object, ...] = ()
        self._told = ""

    # Running

    async def run_async(self, **named: Any) -> Path | None:
        """Run until a person leaves, or a signal says so; the terminal is then as it was."""
        with told_to_end.heeded(lambda status: self.exit(return_code=status)):
            return await super().run_async(**named)

    def on_mount(self) -> None:
        """Show what there is while it is read."""
        sys.setswitchinterval(_SWITCH_S)  # the threads must not keep a key waiting
        self.push_screen(Overview())
        self._read_rows()
        self._diagnose()
        self.set_interval(_BEAT_S, self._beat)
        if self.rows.notes.problem:
            self._tell_problem(self.rows.notes.problem)

    @property
    def crash(self) -> Exception | None:
        """What nobody foresaw and ended it."""
        return self._exception

    def _fatal_error(self) -> None:
        """End without textual's traceback: whoever ran it tells `crash` when the terminal is itself again."""
        self._close_messages_no_wait()

    def on_unmount(self) -> None:
        """End the threads."""
        self.feed.stop.set()
        self.feed.changed.set()
        for reader in (self.reader, *self._others.values()):
            reader.close()

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
            self.screen.beat()
        if feed.problem and feed.problem != self._told:
            self._told = feed.problem
            self._tell_problem(feed.problem)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What nobody foresaw is told, too, and ends nothing."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            error = event.worker.error
            self._tell_problem(" ".join(f"{type(error).__name__}: {error}".split()))

    def _tell_problem(self, text: str) -> None:
        self.notify(text, severity="error", timeout=10, markup=False)

    async def on_event(self, event: events.Event) -> None:
        """Note when keys are pressed: the diagnoses give way to them."""
        if isinstance(event, events.Key):
            self.feed.last_key = time.monotonic()
        await super().on_event(event)

    # Going

    async def action_back(self) -> None:
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

    def show_exchange(self, exchange: str, diagnosis: Diagnosis | None = None, path: Path | None = None) -> None:
        """To an exchange; the diagnosis is its row's, where it is known. `path` is another capture that it is in."""
        from gymtap.proxy.tui.exchange_page import ExchangePage

        self.push_screen(ExchangePage(exchange, self._reader_of(path), diagnosis))

    def _reader_of(self, path: Path | None) -> Reader:
        """The reader of a capture; one is kept for each that was looked into."""
        if path is None or path.absolute() == self.reader.path.absolute():
            return self.reader
        if path not in self._others:
            self._others[path] = Reader(path)
        return self._others[path]

    def show_row_beside(self, line: RowLine, by: int) -> None:
        """From a row to the one after it in the list, or before."""
        at = self.rows.position(line.identity)
        pages = (page for page in reversed(self.screen_stack) if isinstance(page, RowsPage))
        positions = next((page.positions for page in pages), range(len(self.rows.lines)))
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

    @work(exclusive=True, group="root", exit_on_error=False)
    async def show_root(self, line: RowLine) -> None:
        """To the exchange at fault in a row."""
        try:
            seen = await self.reader.ask(read_row, line)
            diagnosis = await self.reader.ask(read_diagnosis, seen.row)
        except GymtapError as error:
            self._tell_problem(str(error))
            return
        if diagnosis.exchange is None:
            self.notify(f"no exchange of row {line.label} is at fault", timeout=3)
        elif not self._asks:
            self.show_exchange(diagnosis.exchange, diagnosis)

    def action_command_palette(self) -> None:
        """All commands; a view may have come over ones that were open, which textual does not foresee."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette())

    @property
    def _asks(self) -> bool:
        """Whether something is being asked: what comes late must not come between."""
        return isinstance(self.screen, ModalScreen)

    def action_help(self) -> None:
        """All keys of this view, and the filter language."""
        self.push_screen(Help(self.screen))

    # What several views offer

    def action_in_flight(self) -> None:
        """What is open now."""
        self.push_screen(InFlight())

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def copy_exchange(self, name: str, reader: Reader | None = None) -> None:
        """Ask in which form, and put it on the terminal's clipboard (OSC 52)."""
        forms = [
            ("c", "curl"),
            ("p", "Python"),
            ("s", "Python with OpenAI's SDK"),
            ("o", "JSON, the whole exchange"),
            ("i", f"its id, {name}"),
        ]
        form = await self.push_screen_wait(Choice(f"copy {name} as", forms))
        if form is None:
            return
        try:
            text = name if form == "i" else await (reader or self.reader).ask(copied, name, form)
        except GymtapError as error:
            self._tell_problem(str(error))
            return
        self.copy_to_clipboard(text)
        self.notify(f"copied {len(text):,} characters, as far as the terminal allows it", timeout=3, markup=False)

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def export(self, wish: "Wish", reader: Reader | None = None) -> None:
        """Ask in which format and where to, and write it."""
        from gymtap.proxy.tui import exporting

        what = wish.name if wish.ids else counted(len(wish.rows), "row")
        key = await self.push_screen_wait(Choice(f"export {what} as", exporting.ways(wish)))
        if key is None:
            return
        way = exporting.way_of(key)
        label = f"write {what} as {way} to"
        name = await self.push_screen_wait(Prompt(label, exporting.file_name(wish, way), exporting.check))
        if name is not None:
            self._export((reader or self.reader).path, wish, way, exporting.check(name))

    @work(thread=True, exclusive=True, exit_on_error=False, group="export")
    def _export(self, path: Path, wish: "Wish", way: str, file: Path) -> None:
        from gymtap.proxy.tui import exporting

        worker = get_current_worker()
        try:
            told = exporting.export(path, wish, way, file, lambda: not worker.is_cancelled)
        except exporting.Stopped:
            return
        except GymtapError as error:
            self.call_from_thread(self._tell_problem, ": ".join(filter(None, (str(error), error.hint))))
            return
        self.call_from_thread(self.notify, told, timeout=5, markup=False)

    def open_outside(self, content: Content, *, pager: bool) -> None:
        """Show a body in the person's pager or editor; the UI comes back when that ends."""
        program = outside.pager(os.environ) if pager else outside.editor(os.environ)
        self._outside(program, content.data)

    def _outside(self, program: str, data: Bytes) -> bytes | None:
        try:
            with self.suspend():
                return outside.look(program, data, outside.suffix(data))
        except (GymtapError, SuspendNotSupported) as error:
            self._tell_problem(str(error) or "not possible in this terminal")
            return None

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def compare(self, what: RowKey | str, reader: Reader | None = None) -> None:
        """Put a row or an exchange beside the one that is marked, or beside its original."""
        await _load("comparison")
        from gymtap.proxy.replay.original import Place
        from gymtap.proxy.tui.comparison import other_side

        reader = reader or self.reader
        notes = self.rows.notes if reader is self.reader else Notes(reader.path)
        try:
            other = await reader.ask(other_side, what, notes)
        except GymtapError as error:
            self.notify(": ".join(filter(None, (str(error), error.hint))), timeout=5, markup=False)
            return
        if not self._asks:
            self.show_comparison(other, Place(reader.path, what))

    def action_captures(self) -> None:
        """To what else there is to look at."""
        from gymtap.proxy.tui.captures_page import CapturesPage

        self.push_screen(CapturesPage())

    def action_doctor(self) -> None:
        """Walk the debug order over this capture."""

        def read() -> list[tuple[Text, str | None]]:
            from gymtap.proxy.tui.doctor import examined

            return examined(self.feed.path)

        self.push_screen(TextPage("the debug order, step by step", partial(asyncio.to_thread, read)))

    def show_comparison(self, before: "Place", after: "Place") -> None:
        """To two rows, or exchanges, side by side."""
        from gymtap.proxy.tui.comparison import ComparisonPage

        self.push_screen(ComparisonPage(before, after))

    def validate_exchange(self, name: str, reader: Reader | None = None) -> None:
        """Say what checks find in an exchange."""
        path = (reader or self.reader).path

        def read() -> list[Text]:
            from gymtap.proxy.tui.validation import validation

            return validation(path, name)

        self.push_screen(TextPage(f"what checks say of {name}", partial(asyncio.to_thread, read)))

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def replay(
        self,
        what: RowKey | str,
        start: str | None = None,
        *,
        edit: bool = False,
        answered_by: RowKey | None = None,
        others: Sequence[RowKey] = (),
        reader: Reader | None = None,
    ) -> None:
        """Ask how, and send a row or an exchange again.

        `answered_by` is the row of an exchange that is a provider's or a judge's own: answering that from the capture
        would prove nothing, so it is the row that is sent then. `others` are all the rows that may be meant as well.
        """
        await _load("replaying", "replay_form", "replay_page")
        from gymtap.proxy.replay.options import Options
        from gymtap.proxy.tui.replaying import Asked, aimed, check_target

        reader = reader or self.reader
        asked = Asked((what,), Options(start=start))
        if edit:
            edited = await self._edited(asked, reader)
            if edited is None:
                return
            asked = edited
        way = await self.push_screen_wait(Choice(f"replay {asked.name}", _ways(answered_by, others)))
        options = asked.options
        if way is None:
            return
        if way == "t":
            label = "to: NAME=URL (a server), gym URL (a running Gym's head), or URL (the provider)"
            to = await self.push_screen_wait(Prompt(label, "", check_target))
            if to is None:
                return
            asked = dataclasses.replace(asked, options=aimed(options, to))
        elif way in _STUBS:
            options = dataclasses.replace(options, stub=_STUBS[way])
            asked = dataclasses.replace(asked, what=(answered_by or what,), options=options)
        elif way in {"o", "m"}:
            asked = dataclasses.replace(asked, what=tuple(others)) if way == "m" else asked
            self.replay_with_options(asked, reader)
            return
        self._replay(asked, reader)

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def replay_with_options(self, asked: "Asked", reader: Reader) -> None:
        """Ask for every option, and send it again."""
        from gymtap.proxy.tui.replay_form import ReplayForm

        if (chosen := await self.push_screen_wait(ReplayForm(asked, reader.path))) is not None:
            self._replay(chosen, reader)

    def _replay(self, asked: "Asked", reader: Reader) -> None:
        from gymtap.proxy.tui.replay_page import ReplayPage

        self.push_screen(ReplayPage(asked, reader))

    async def _edited(self, asked: "Asked", reader: Reader) -> "Asked | None":
        """With the body as a person makes it in the editor; None when nothing was changed."""
        from gymtap.proxy.tui.replaying import editable

        try:
            before = await reader.ask(editable, asked)
        except GymtapError as error:
            self._tell_problem(str(error))
            return None
        after = self._outside(outside.editor(os.environ), before.encode("utf-8", "surrogateescape"))
        if after is None or after.decode("utf-8", "replace") == before:
            self.notify("nothing was changed, so nothing is sent", timeout=4)
            return None
        return dataclasses.replace(asked, written=after.decode("utf-8", "replace"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: everything that has a key here, but for walking about, and the quickest filters."""
        told: set[str] = set()
        for active in screen.active_bindings.values():
            binding = active.binding
            walks = binding.action == "command_palette" or (active.node is not screen and binding.action in _WALKS)
            if binding.description and active.enabled and not walks and binding.description not in told:
                told.add(binding.description)
                yield SystemCommand(binding.description, f"key {key_name(binding.key)}", self._doing(active))
        for wanted in ("is:failed", "is:running", "is:marked", "reward<=0"):
            yield SystemCommand(f"rows: {wanted}", "show these rows", partial(self.show_rows, wanted))

    def _doing(self, active: ActiveBinding) -> Callable[[], Awaitable[bool]]:
        return partial(self.run_action, active.binding.action, active.node)

    def put_note(self, exchange: str | None, row: str, note: Note) -> None:
        """Note it of an exchange, or else of the row, and write the sidecar beside the screen."""
        if exchange is None:
            self.rows.notes.put(row, note)
        else:
            self.rows.notes.put_exchange(exchange, note)
        self._save_notes()

    @work(thread=True, exclusive=True, exit_on_error=False, group="notes")
    def _save_notes(self) -> None:
        try:
            self.rows.notes.save()
        except OSError as error:
            self.call_from_thread(self._tell_problem, f"the note could not be kept: {error}")
