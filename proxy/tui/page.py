"""What every screen is: a line on the run above, the view, the keys below; and told when something changed."""

from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Footer, Static
from textual.worker import Worker

from gymtap.proxy.tui.status_bar import status_line

if TYPE_CHECKING:
    from gymtap.proxy.tui.app import GymtapTui


class Page(Screen[None]):
    """One view of the capture. `title_text` is where one is."""

    DEFAULT_CSS = """
    Page > #status { height: 1; background: $panel; color: $foreground; }
    Page > #place { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", show=False),
        Binding("tab", "app.focus_next", "Next pane", show=False),
        Binding("shift+tab", "app.focus_previous", "Previous pane", show=False),
    ]

    @property
    def tui(self) -> "GymtapTui":
        """The app, by its own type."""
        return cast("GymtapTui", self.app)

    def compose(self) -> ComposeResult:
        """The frame."""
        yield Static("", id="status")
        yield from self.body()
        yield Footer(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        """The view itself."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Draw what is known."""
        self.changed()

    def on_screen_resume(self) -> None:
        """Something may have happened meanwhile."""
        self.beat()

    def beat(self) -> None:
        """Something changed; a view that is still being made finds that out by itself."""
        if self.is_mounted:
            with suppress(NoMatches):  # a view that is being taken down has lost parts already
                self.changed()

    def changed(self) -> None:
        """Rows, causes or the run's state are others: called at most ten times a second."""
        self.query_one("#status", Static).update(status_line(self.tui.feed, self.size.width))

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What nobody foresaw is told by the app."""
        self.tui.on_worker_state_changed(event)

    def say(self, text: Text | str) -> None:
        """A short message over the view."""
        self.notify(text if isinstance(text, str) else text.plain, timeout=3, markup=False)
