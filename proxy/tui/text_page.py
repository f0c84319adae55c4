"""A view that is text alone, read beside the screen: a comparison, what checks say, what a replay proved."""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.tui.lines import Lines, TextLines
from gymtap.proxy.tui.page import Page

type Paragraphs = Sequence[Text | tuple[Text, str | None]]


class TextPage(Page):
    """`read` brings the paragraphs; one with a target is an exchange's id, which Enter opens."""

    DEFAULT_CSS = """
    TextPage #heading { height: 1; background: $boost; padding: 0 1; }
    TextPage TextLines { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "app.help", "Help", key_display="?")]

    def __init__(self, heading: str, read: Callable[[], Awaitable[Paragraphs]]) -> None:
        super().__init__()
        self._heading = heading
        self._bring = read

    def body(self) -> ComposeResult:
        """What it is, and the text."""
        yield Static(Text(self._heading, "bold"), id="heading")
        yield TextLines(id="text")

    def on_mount(self) -> None:
        """Begin to read."""
        super().on_mount()
        self.query_one(TextLines).focus()
        self._read()

    @work(exclusive=True, group="read", exit_on_error=False)
    async def _read(self) -> None:
        try:
            self.query_one(TextLines).put(await self._bring())
        except GymtapError as error:
            self.query_one(TextLines).put(told(error))

    def add(self, paragraphs: Paragraphs) -> None:
        """Show these instead."""
        self.query_one(TextLines).put(paragraphs)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Open what the line names."""
        event.stop()
        self.open_target()

    def open_target(self) -> None:
        """Open the exchange that the cursor's line names."""
        if self.target:
            self.tui.show_exchange(self.target)

    @property
    def target(self) -> str | None:
        """What the cursor's line names."""
        lines = self.query_one(TextLines)
        return lines.target(lines.cursor)


def told(error: GymtapError) -> list[Text]:
    """An error as it is shown inside."""
    return [Text(f"✗ {error}", "bold red"), *([Text(f"  {error.hint}", "dim")] if error.hint else [])]
