"""All keys of the view that it was asked on, and the filter language; what one types narrows it."""

from collections.abc import Iterator
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from gymtap.proxy.core.filter import FIELDS
from gymtap.proxy.tui.lines import TextLines
from gymtap.proxy.tui.page import Page

_KEY_CELLS = 16
_NOT_OURS = ("scroll_", "page_up", "page_down", "page_left", "page_right", "screen.", "help_quit", "show_")


def keys(screen: Screen[Any]) -> Iterator[tuple[str, str]]:
    """Every key that does something there, with what it does."""
    told: dict[str, list[str]] = {}
    view_first = sorted(screen.active_bindings.values(), key=lambda one: (one.node is not screen, _everywhere(one)))
    for active in view_first:
        binding = active.binding
        if binding.description and active.enabled and not binding.action.startswith(_NOT_OURS):
            told.setdefault(binding.description, []).append(key_name(binding.key))
    for description, names in told.items():
        yield " ".join(dict.fromkeys(names)), description


def _everywhere(active: ActiveBinding) -> bool:
    """Whether every view has it, so that it comes last."""
    return active.binding.action in {one.action for one in Page.BINDINGS if isinstance(one, Binding)}


_NAMES = {
    "slash": "/",
    "question_mark": "?",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "colon": ":",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "shift+tab": "Shift-Tab",
}


def key_name(key: str) -> str:
    """A key as it is written: `/`, `^p`, `PgDn`."""
    named = _NAMES.get(key, key.replace("ctrl+", "^"))
    return named.capitalize() if len(named) > 1 and named.isalpha() and named.islower() else named


class Help(ModalScreen[None]):
    """A list over the view; Esc closes it."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > Vertical { width: 76; max-width: 96%; height: 90%; border: round $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Close", priority=True),
        Binding("down", "scroll(1)", "Down", show=False, priority=True),
        Binding("up", "scroll(-1)", "Up", show=False, priority=True),
    ]

    def __init__(self, about: Screen[Any]) -> None:
        super().__init__()
        self._lines = [
            *(Text.assemble((name.ljust(_KEY_CELLS), "bold"), text) for name, text in keys(about)),
            Text(""),
            Text("the filter language: terms in a row must all hold; - turns one round; a comma means or", "dim"),
            Text('~word or "some words" looks for text; dur hops reward status … also take > >= < <= = !=', "dim"),
            *(Text.assemble((f"{name}:".ljust(_KEY_CELLS), "bold"), text) for name, text in FIELDS.items()),
        ]

    def compose(self) -> ComposeResult:
        """What to look for, and the keys."""
        with Vertical():
            yield Input(placeholder="type to narrow; Esc closes", compact=True)
            yield TextLines()

    def on_mount(self) -> None:
        """All of it."""
        self.query_one(TextLines).put(self._lines)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Only what has the text."""
        wanted = event.value.lower()
        self.query_one(TextLines).put([line for line in self._lines if wanted in line.plain.lower()])

    def action_scroll(self, by: int) -> None:
        """Move through the list while typing."""
        self.query_one(TextLines).action_move(by)
