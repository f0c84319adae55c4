"""The strips of rows over time as a list: a line each, and a moment of time that left and right move."""

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from gymtap.proxy.tui.lines import Lines
from gymtap.proxy.tui.strip import NAME_CELLS, Columns, axis, drawn, room, told, wanted


class Strips(Lines):
    """Rows begun, failed, and the longest of them, over time; beneath, what time it is about."""

    DEFAULT_CSS = """
    Strips { height: 4; padding: 0 1; scrollbar-size-vertical: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h,left", "moment(-1)", "Earlier", show=False),
        Binding("l,right", "moment(1)", "Later", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # textual's own name
        super().__init__(id=id)
        self._columns = Columns()
        self._drawn = drawn(self._columns)
        self.moment = 0

    def put(self, found: Columns) -> None:
        """Other rows; the moment stays in its column."""
        self._columns, self._drawn = found, drawn(found)
        self.moment = min(self.moment, max(len(found.begun) - 1, 0))
        self.reload()

    @property
    def wanted(self) -> str:
        """The filter for the rows that the cursor's line and moment stand for; empty where there are none."""
        return wanted(self._columns, self.moment, failed=self.cursor == 1) if self._columns.begun else ""

    def count(self) -> int:
        """The strips, and the line beneath."""
        return len(self._drawn) + 1

    def selectable(self, index: int) -> bool:
        """The line beneath only says what the others are about."""
        return 0 <= index < len(self._drawn) and bool(self._columns.begun)

    def line(self, index: int, width: int) -> Text:
        """A strip; the moment is seen in it where the list has the focus."""
        if index < len(self._drawn):
            text = self._drawn[index].copy()
            if self.has_focus and self._columns.begun:
                text.stylize("reverse", NAME_CELLS + self.moment, NAME_CELLS + self.moment + 1)
            return text
        return Text(told(self._columns, self.moment), "bold") if self.has_focus else axis(self._columns, room(width))

    def cursor_line(self, text: Text) -> Text:
        """Only its name is reversed: the rest is a picture."""
        text.stylize("reverse", 0, NAME_CELLS - 1)
        return text

    def action_moment(self, by: int) -> None:
        """To an earlier or a later moment."""
        self.moment = max(0, min(self.moment + by, len(self._columns.begun) - 1))
        self.refresh()

    def column_clicked(self, x: int) -> None:
        """The moment that was clicked on."""
        self.moment = max(0, min(x - NAME_CELLS, len(self._columns.begun) - 1))
        self.refresh()
