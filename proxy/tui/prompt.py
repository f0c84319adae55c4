"""Asks for one line of text at the foot of the screen; Esc says no."""

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gymtap.proxy.core.errors import GymtapError


class Line(Input):
    """One line that is edited as one types, however fast.

    textual acts upon a key that is bound only when the letters after it have been taken: `^u` took them away again.
    """

    async def on_key(self, event: events.Key) -> None:
        """Act at once."""
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            event.stop()
            event.prevent_default()
            await self.run_action(binding.action)


class Prompt(ModalScreen[str | None]):
    """The text that was entered, or None. `check` raises GymtapError for what cannot be taken; the text stays then."""

    DEFAULT_CSS = """
    Prompt { align: left bottom; background: transparent; }
    Prompt > Vertical { height: auto; width: 100%; background: $panel; }
    Prompt Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "refuse", "Leave it", priority=True)]

    def __init__(self, label: str, value: str = "", check: Callable[[str], object] | None = None) -> None:
        super().__init__()
        self._label = label
        self._value = value
        self._check = check

    def compose(self) -> ComposeResult:
        """The label, what is wrong, the line."""
        with Vertical():
            yield Static(self._label, id="label", markup=False)
            yield Line(self._value, id="text", select_on_focus=False, compact=True)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say at once what is wrong."""
        self.query_one("#label", Static).update(self._wrong(event.value) or self._label)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take it, if it can be taken."""
        if not self._wrong(event.value):
            self.dismiss(event.value)

    def _wrong(self, value: str) -> str:
        if self._check is None:
            return ""
        try:
            self._check(value)
        except GymtapError as error:
            return f"✗ {error}"
        return ""

    def action_refuse(self) -> None:
        """Nothing is entered."""
        self.dismiss(None)
