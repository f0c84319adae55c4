"""Asks to choose one of a few things, by its key or with Enter."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gymtap.proxy.tui.lines import TextLines


class Choice(ModalScreen[str | None]):
    """The key of what was chosen, or None. `options` are keys with what they mean."""

    DEFAULT_CSS = """
    Choice { align: center middle; }
    Choice > Vertical { width: 64; max-width: 95%; height: auto; max-height: 80%; }
    Choice > Vertical { border: round $primary; padding: 0 1; }
    Choice TextLines { height: auto; max-height: 16; min-height: 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "refuse", "Leave it")]

    def __init__(self, title: str, options: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._options = options

    def compose(self) -> ComposeResult:
        """The title and the options."""
        with Vertical():
            yield Static(Text(self._title, "bold"))
            yield TextLines(id="options", follow_targets=True)

    def on_mount(self) -> None:
        """Fill the list."""
        options = self.query_one(TextLines)
        options.styles.height = len(self._options)
        options.put([(Text.assemble((f" {key} ", "bold"), f" {text}"), key) for key, text in self._options])
        options.focus()

    def on_key(self, event: events.Key) -> None:
        """An option's own key chooses it."""
        if event.character and event.character in dict(self._options):
            event.stop()
            self.dismiss(event.character)

    def on_lines_chosen(self, event: TextLines.Chosen) -> None:
        """So does Enter."""
        event.stop()
        self.dismiss(self.query_one(TextLines).target(event.index))

    def action_refuse(self) -> None:
        """Nothing is chosen."""
        self.dismiss(None)
