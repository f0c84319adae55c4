"""One exchange, in tabs: each is made when it is looked at, and bodies are read beside the screen."""

import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher, Static, Tab, Tabs

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.replay.patch import MISSING
from gymtap.proxy.replay.patch import read as read_place
from gymtap.proxy.store import Capture
from gymtap.proxy.store.notes import Note
from gymtap.proxy.tui import exchange_texts as texts
from gymtap.proxy.tui.byte_lines import HexLines, RawLines
from gymtap.proxy.tui.content import NOT_JSON, Content, Loaded, load
from gymtap.proxy.tui.exporting import Wish
from gymtap.proxy.tui.json_tree import JsonTree
from gymtap.proxy.tui.lines import ANY_CELLS, Lines, TextLines
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.prompt import Prompt
from gymtap.proxy.tui.reader import Reader
from gymtap.proxy.tui.text_page import TextPage
from gymtap.proxy.views.exchange_view import heading
from gymtap.proxy.views.plain import printable
from gymtap.schemas import Diagnosis, Exchange, Finding, ServerKind, State

TABS = ("Request", "Response", "Chat", "Headers", "Timing", "Events", "Raw", "Hex")
_AGAIN_S = 1.0


def read(capture: Capture, name: str) -> tuple[Loaded, list[Finding]]:
    """The exchange, its bodies, and what checks said when it was captured. Raises CaptureError."""
    return load(capture, capture.exchange(name)), list(capture.findings(exchange=name))


class ExchangePage(Page):
    """An exchange that was opened; `diagnosis` is its row's, whose findings on it are pointed at."""

    DEFAULT_CSS = """
    ExchangePage #heading { height: auto; max-height: 4; background: $boost; padding: 0 1; }
    ExchangePage #findings { height: auto; max-height: 2; padding: 0 1; }
    ExchangePage.-tall #findings { max-height: 6; }
    ExchangePage Tabs { height: 2; }
    ExchangePage ContentSwitcher { height: 1fr; padding: 0 1; }
    """
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-short"), (30, "-tall")]  # noqa: RUF012  # as textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h,left", "tab(-1)", "Tab", key_display="h/l"),
        Binding("l,right", "tab(1)", "Tab", show=False),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("n", "again(1)", "Next hit", show=False),
        Binding("N", "again(-1)", "Previous hit", show=False),
        Binding("s", "side", "Request or response, in Raw and Hex", show=False),
        Binding("p", "parent", "Caller"),
        Binding("w", "row", "Row"),
        Binding("y", "copy", "Copy"),
        Binding("v", "pager", "Pager", show=False),
        Binding("o", "editor", "Editor", show=False),
        Binding("r", "replay", "Replay"),
        Binding("e", "edit", "Edit"),
        Binding("V", "validate", "Validate", show=False),
        Binding("equals_sign", "compare", "Compare with the original, or the marked one", key_display="=", show=False),
        Binding("m", "mark", "Mark", show=False),
        Binding("c", "comment", "Comment", show=False),
        Binding("x", "export", "Export", show=False),
        Binding("D", "why", "Why", show=False),
        Binding("i", "app.in_flight", "In flight", show=False),
        Binding("question_mark", "app.help", "Help", key_display="?"),
    ]

    def __init__(self, exchange: str, reader: Reader, diagnosis: Diagnosis | None = None) -> None:
        super().__init__()
        self._exchange = exchange
        self._reader = reader
        self._diagnosis = diagnosis
        self._loaded: Loaded | None = None
        self._findings: list[Finding] = []
        self._filled: set[str] = set()
        self._read_at = 0.0
        self._search = ""
        self._sent = False

    def body(self) -> ComposeResult:
        """What it is, what was found, the tabs."""
        yield Static("", id="heading")
        yield Static("", id="findings")
        yield Tabs(*(Tab(name, id=name.lower()) for name in TABS))
        with ContentSwitcher(initial="response-pane"):
            for name in ("request", "response"):
                yield JsonTree(id=f"{name}-pane")
                yield TextLines(id=f"{name}-text-pane")
            for name in ("chat", "headers", "timing", "events"):
                yield TextLines(id=f"{name}-pane")
            yield RawLines(id="raw-pane")
            yield HexLines(id="hex-pane")

    def changed(self) -> None:
        """An open exchange is read again every second."""
        super().changed()
        is_open = self._loaded is None or self._loaded.exchange.state is State.OPEN
        if is_open and time.monotonic() - self._read_at > _AGAIN_S:
            self._read_at = math.inf  # not again before this one is done, however long it takes
            self._read()

    @work(exclusive=True, group="read", exit_on_error=False)
    async def _read(self) -> None:
        try:
            loaded, found = await self._reader.ask(read, self._exchange)
        except GymtapError as error:
            self.query_one("#heading", Static).update(Text(f"✗ {error}"))
            return
        finally:
            self._read_at = time.monotonic()
        first = self._loaded is None
        self._loaded, self._filled = loaded, set()
        about = self._diagnosis.findings if self._diagnosis else ()
        self._findings = list(dict.fromkeys([*found, *(one for one in about if one.exchange == self._exchange)]))
        self._show(loaded)
        if first:
            self._begin(loaded.exchange)
        else:
            self._fill(self._tab)

    def _show(self, loaded: Loaded) -> None:
        lines = list(heading(loaded.exchange, time.time_ns()))
        if self._reader is self.tui.reader:
            note = self._note
            lines[0].append("  *" if note.marked else "", "bold")
            lines[0].append(f"  “{printable(note.comment)}”" if note.comment else "", "italic")
        else:
            lines[0].append(f"  in {self._reader.path.name}", "italic")
        self.query_one("#heading", Static).update(Text("\n").join(lines))
        self.query_one("#findings", Static).update(Text("\n").join(texts.findings(self._findings)))

    def _begin(self, exchange: Exchange) -> None:
        """Open the side that a finding points into, else the answer, else the request."""
        pointed = self._pointer("request")
        self._sent = exchange.response is None or (pointed is not None and self._pointer("response") is None)
        wanted = "request" if self._sent else "response"
        tabs = self.query_one(Tabs)
        if tabs.active == wanted:
            self._fill(wanted)
        else:
            tabs.active = wanted

    # Tabs

    @property
    def _tab(self) -> str:
        return self.query_one(Tabs).active or "response"

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Fill the tab that is looked at."""
        if self._loaded is not None and event.tab.id:
            self._fill(event.tab.id)

    def action_tab(self, by: int) -> None:
        """To the tab beside it."""
        tabs = self.query_one(Tabs)
        (tabs.action_next_tab if by > 0 else tabs.action_previous_tab)()

    def _fill(self, tab: str) -> None:
        loaded = self._loaded
        if loaded is None:
            return
        if tab in {"request", "response"}:
            self._sent = tab == "request"
        pane = self._pane(tab, loaded)
        if tab not in self._filled:
            self._filled.add(tab)
            self._put(tab, pane, loaded)
        self.query_one(ContentSwitcher).current = pane.id
        pane.focus()

    def _pane(self, tab: str, loaded: Loaded) -> Lines:
        """The widget of a tab: a body that is no JSON is text."""
        if tab in {"request", "response"} and self._side(tab, loaded).value is NOT_JSON:
            return self.query_one(f"#{tab}-text-pane", TextLines)
        return self.query_one(f"#{tab}-pane", Lines)

    def _put(self, tab: str, pane: Lines, loaded: Loaded) -> None:
        if isinstance(pane, JsonTree):
            pane.put(self._side(tab, loaded).value, self._pointer(tab))
        elif isinstance(pane, TextLines):
            pane.put(list(self._text(tab, loaded)))
        else:
            self._put_bytes()

    def _text(self, tab: str, loaded: Loaded) -> Sequence[Text | tuple[Text, str | None]]:
        match tab:
            case "chat":
                return list(texts.chat(loaded))
            case "headers":
                return list(texts.headers(loaded.exchange))
            case "timing":
                return list(texts.timing(loaded.exchange, time.time_ns()))
            case "events":
                response = loaded.response
                if response is None or not response.streamed:
                    return [Text("the response is no stream of events", "dim")]
                return list(texts.events(response))
            case _:
                if tab == "response" and loaded.response is None:
                    is_open = loaded.exchange.state is State.OPEN
                    return [Text("none yet: it is still open" if is_open else "none: the exchange ended without one")]
                return list(texts.flat(self._side(tab, loaded)))

    def _side(self, tab: str, loaded: Loaded) -> Content:
        """A body; of a response that is not there, one with nothing in it."""
        if tab == "request":
            return loaded.request
        return loaded.response or Content(None, b"")

    def _put_bytes(self) -> None:
        if self._loaded is not None:
            side = self._side("request" if self._sent else "response", self._loaded)
            self.query_one(RawLines).put(side.data)
            self.query_one(HexLines).put(side.data)
            self._filled |= {"raw", "hex"}

    def action_side(self) -> None:
        """Show the other body in Raw and Hex."""
        self._sent = not self._sent
        self._put_bytes()
        self.say(f"raw and hex show the {'request' if self._sent else 'response'}")

    def _pointer(self, tab: str) -> str | None:
        """The place of the first finding that is in that body, or else that is missing there."""
        value = NOT_JSON if self._loaded is None else self._side(tab, self._loaded).value
        if self._loaded is None or value is NOT_JSON:
            return None
        places = [one.pointer for one in self._findings if one.pointer and one.pointer.startswith("/")]
        missing = places[0] if places and _lacking(self._loaded.exchange) == tab else None
        return next((place for place in places if read_place(value, place) is not MISSING), missing)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """An event of a stream opens; nothing else does."""
        event.stop()
        lines = event.lines
        if self._tab == "events" and isinstance(lines, TextLines) and (number := lines.target(event.index)):
            self._open_event(int(number))

    def _open_event(self, number: int) -> None:
        response = self._loaded.response if self._loaded else None
        if response is not None:
            lines = list(texts.event(response, number))

            async def read() -> list[Text]:
                return lines

            self.tui.push_screen(TextPage(f"event {number:,} of {self._exchange}", read))

    # Searching

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def action_search(self) -> None:
        """Ask what to look for in what is shown."""
        text = await self.app.push_screen_wait(Prompt("search here for", self._search))
        if text:
            self._search = text
            self.action_again(1)

    def action_again(self, by: int) -> None:
        """To the next place."""
        if self._search:
            self._look(self._searched(), self._search, by)

    def _searched(self) -> Lines:
        """What is shown; for a body that is too large for its tab, where all of it is: Raw."""
        tab = self._tab
        if tab in {"request", "response"} and self._loaded is not None and self._side(tab, self._loaded).large:
            self._sent = tab == "request"
            self._put_bytes()
            self.query_one(Tabs).active = "raw"
            return self.query_one(RawLines)
        return self.query_one(f"#{self.query_one(ContentSwitcher).current}", Lines)

    @work(thread=True, exclusive=True, exit_on_error=False, group="search")
    def _look(self, pane: Lines, text: str, by: int) -> None:
        found = find(pane, text, by)
        self.app.call_from_thread(self._go, pane, found)

    def _go(self, pane: Lines, found: Any) -> None:
        if found is None:
            self.say(f"{self._search!r} is not here")
        elif isinstance(pane, JsonTree):
            pane.open_pointer(found)
        elif isinstance(pane, RawLines):
            pane.go_to(found)
        else:
            pane.cursor = found

    # Actions

    def action_parent(self) -> None:
        """Open the exchange that caused this one."""
        parent = self._loaded.exchange.parent if self._loaded else None
        if parent is None:
            self.say("what caused it was not seen")
        else:
            self.tui.show_exchange(parent, self._diagnosis, self._reader.path)

    def action_row(self) -> None:
        """Open its row."""
        if self._loaded is not None and self._is_here():
            self.tui.show_row_of(self._loaded.exchange)

    def action_why(self) -> None:
        """Open its row at the diagnosis."""
        if self._loaded is not None and self._is_here():
            self.tui.show_row_of(self._loaded.exchange, why=True)

    def _is_here(self) -> bool:
        """Whether it is in the capture whose rows are shown; where it is, is said otherwise."""
        is_here = self._reader is self.tui.reader
        if not is_here:
            self.say(f"it is in another capture: gymtap tui {self._reader.path}")
        return is_here

    def action_copy(self) -> None:
        """Copy it in one of several forms."""
        self.tui.copy_exchange(self._exchange, self._reader)

    def action_pager(self) -> None:
        """Read the body in $PAGER."""
        if self._loaded is not None:
            self.tui.open_outside(self._side("request" if self._sent else "response", self._loaded), pager=True)

    def action_editor(self) -> None:
        """Read the body in $EDITOR."""
        if self._loaded is not None:
            self.tui.open_outside(self._side("request" if self._sent else "response", self._loaded), pager=False)

    def action_replay(self) -> None:
        """Send it again."""
        exchange = self._loaded.exchange if self._loaded else None
        is_stubbed = exchange is not None and exchange.kind in {ServerKind.PROVIDER, ServerKind.JUDGE}
        row = exchange.attribution.row if exchange is not None and is_stubbed else None
        self.tui.replay(self._exchange, answered_by=row, reader=self._reader)

    def action_edit(self) -> None:
        """Change it, and send it."""
        self.tui.replay(self._exchange, edit=True, reader=self._reader)

    def action_validate(self) -> None:
        """Check what was sent and answered."""
        self.tui.validate_exchange(self._exchange, self._reader)

    def action_compare(self) -> None:
        """Compare it with the one that is marked, or with its original."""
        self.tui.compare(self._exchange, self._reader)

    def action_export(self) -> None:
        """Write it to a file."""
        self.tui.export(Wish(self._exchange, ids=(self._exchange,)), self._reader)

    # Notes

    @property
    def _note(self) -> Note:
        return self.tui.rows.notes.of_exchange(self._exchange)

    def action_mark(self) -> None:
        """Mark it, or take its mark away."""
        if self._is_here():
            self._put_note(self._note.model_copy(update={"marked": not self._note.marked}))

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def action_comment(self) -> None:
        """Ask for a comment on it."""
        if self._is_here():
            text = await self.app.push_screen_wait(Prompt(f"comment on {self._exchange}", self._note.comment))
            if text is not None:
                self._put_note(self._note.model_copy(update={"comment": text.strip()}))

    def _put_note(self, note: Note) -> None:
        self.tui.put_note(self._exchange, "", note)
        if self._loaded is not None:
            self._show(self._loaded)


def _lacking(exchange: Exchange) -> str | None:
    """Which body lacks a place that is in neither: what a 4xx refused, or an answer that was none; else unknown."""
    if exchange.response is None or exchange.response.status >= 500:
        return None
    return "request" if exchange.response.status >= 400 else "response"


def find(pane: Lines, text: str, by: int) -> Any:
    """Where the text occurs next: a pointer in a tree, else a line's number; None when nowhere."""
    if isinstance(pane, JsonTree):
        return pane.find(text.lower(), by)
    if isinstance(pane, RawLines | HexLines):
        return pane.find(text, by)
    count = pane.count()
    places = ((pane.cursor + by * step) % count for step in range(1, count + 1)) if count else iter(())
    return next((place for place in places if text.lower() in pane.line(place, ANY_CELLS).plain.lower()), None)
