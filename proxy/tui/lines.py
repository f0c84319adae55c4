"""A list of any length of which only what is seen is drawn: the one widget beneath every table, tree and text here.

A line is asked for when it is painted, never before, so that a million of them cost what fits on the screen.
"""

from collections.abc import Iterable
from typing import ClassVar

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip


class Lines(ScrollView, can_focus=True):
    """Lines with a cursor. A subclass says how many there are, and what one looks like."""

    DEFAULT_CSS = """
    Lines { height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("g,home", "go(0)", "First", show=False),
        Binding("G,end", "go(-1)", "Last", show=False),
        Binding("ctrl+d", "half(1)", "Half a page down", show=False),
        Binding("ctrl+u", "half(-1)", "Half a page up", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", "A page down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "A page up", show=False),
        Binding("enter", "choose", "Open"),
    ]

    cursor: reactive[int] = reactive(0)

    class Chosen(Message):
        """Enter, or a click on the line that the cursor is on."""

        def __init__(self, lines: "Lines", index: int) -> None:
            super().__init__()
            self.lines = lines
            self.index = index

        @property
        def control(self) -> "Lines":
            """The list that it happened in."""
            return self.lines

    class Moved(Chosen):
        """The cursor is on another line."""

    def count(self) -> int:
        """How many lines there are."""
        return 0

    def line(self, index: int, width: int) -> Text:
        """What a line looks like in that many cells."""
        raise NotImplementedError

    def selectable(self, index: int) -> bool:
        """Whether the cursor may stand on it."""
        return 0 <= index < self.count()

    def reload(self) -> None:
        """Paint again: the lines are others, or as many others."""
        self.virtual_size = Size(0, self.count())
        if self.count() and self.cursor >= self.count():
            self.cursor = self.count() - 1
        self.refresh()

    # Painting

    def render_line(self, y: int) -> Strip:
        """Paint one line of the viewport (textual's line API)."""
        index = y + int(self.scroll_offset.y)
        width = self.scrollable_content_region.width
        if index >= self.count():
            return Strip.blank(width, self.rich_style)
        text = self.line(index, width)
        text.no_wrap = True
        if text.cell_len > width:
            text.truncate(width, overflow="ellipsis")
        if self.has_focus and index == self.cursor and self.selectable(index):
            text = self.cursor_line(text)
        style = self.rich_style + self._cursor_style(index)
        segments = [Segment(part, style + kind if kind else style) for part, kind, _ in text.render(self.app.console)]
        return Strip(segments).adjust_cell_length(width, style)

    def cursor_line(self, text: Text) -> Text:
        """The cursor's line where the list has the focus, a bar: its own colours would be hard to read, reversed."""
        rest = self.scrollable_content_region.width - text.cell_len
        return Text.assemble((text.plain + " " * rest, "reverse"), no_wrap=True)

    def _cursor_style(self, index: int) -> Style:
        """The cursor's line is reversed where the list has the focus, and underlined elsewhere."""
        is_here = index == self.cursor and not self.has_focus and self.selectable(index)
        return Style(underline=True) if is_here else Style.null()

    # Moving

    def watch_cursor(self, before: int, after: int) -> None:
        """Paint the two lines that changed, and keep the cursor in view."""
        for index in (before, after):
            self.refresh(Region(0, index - int(self.scroll_offset.y), self.size.width, 1))
        self.show(after)
        self.post_message(self.Moved(self, after))

    def validate_cursor(self, cursor: int) -> int:
        """Keep it on a line."""
        return max(0, min(cursor, self.count() - 1))

    def on_resize(self) -> None:
        """The cursor stays in view."""
        if self.has_focus:
            self.show(self.cursor)

    def show(self, index: int) -> None:
        """Scroll as little as it takes to have that line in view."""
        top, height = int(self.scroll_offset.y), max(self.scrollable_content_region.height, 1)
        if index < top:
            self.scroll_to(y=index, animate=False, immediate=True)
        elif index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False, immediate=True)

    def action_move(self, by: int) -> None:
        """To the next line that the cursor may stand on."""
        index = self.cursor + by
        while 0 <= index < self.count() and not self.selectable(index):
            index += by
        if self.selectable(index):
            self.cursor = index

    def action_go(self, index: int) -> None:
        """To a line, counted from the end where it is negative."""
        self.cursor = index if index >= 0 else self.count() + index

    def action_half(self, by: int) -> None:
        """By half of what is seen."""
        self.cursor += by * max(self.size.height // 2, 1)

    def action_page(self, by: int) -> None:
        """By what is seen."""
        self.cursor += by * max(self.size.height - 1, 1)

    def action_choose(self) -> None:
        """Tell that the line was chosen."""
        if self.selectable(self.cursor):
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor; one more chooses."""
        index = int(event.y + self.scroll_offset.y)
        self.column_clicked(int(event.x))
        if not self.selectable(index):
            return
        if index == self.cursor and event.chain > 1:
            self.action_choose()
        else:
            self.cursor = index

    def column_clicked(self, x: int) -> None:
        """Where in the line it was; most lists do not mind."""

    def on_focus(self) -> None:
        """The cursor's line looks different."""
        self.refresh()

    def on_blur(self) -> None:
        """The cursor's line looks different."""
        self.refresh()


ANY_CELLS = 10_000
"""A width at which a line is whole: what a search asks for."""


class TextLines(Lines):
    """Paragraphs that are there already, wrapped to the width where they are longer.

    `targets` names what a paragraph stands for; the cursor then stops only at those that have a name.
    """

    def __init__(self, *, id: str | None = None, follow_targets: bool = False) -> None:  # noqa: A002  # textual's own name
        super().__init__(id=id)
        self._paragraphs: list[tuple[Text, str | None]] = []
        self._lines: list[tuple[Text, int]] = []
        self._width = 0
        self._follow_targets = follow_targets
        self._hang = 0

    def put(self, paragraphs: Iterable[Text | tuple[Text, str | None]], *, hang: int = 0) -> None:
        """Other paragraphs. The cursor stays on the target that it was on, else near where it was.

        On the first line it stays on the first line, which is what a list puts first: the top cause, the oldest call.
        `hang` is how many cells a paragraph's further lines are indented.
        """
        self._hang = hang
        on = self.target(self.cursor)
        self._paragraphs = [one if isinstance(one, tuple) else (one, None) for one in paragraphs]
        self._wrap()
        place = next((index for index in range(self.count()) if on is not None and self.target(index) == on), None)
        if place is not None and self.cursor:
            self.cursor = place
        elif not self.selectable(self.cursor):
            self.cursor = next((index for index in range(self.count()) if self.selectable(index)), 0)

    def target(self, index: int) -> str | None:
        """What the line stands for."""
        return self._paragraphs[self._lines[index][1]][1] if 0 <= index < len(self._lines) else None

    def selectable(self, index: int) -> bool:
        """Any line; or those with a target, where these are followed."""
        return super().selectable(index) and (not self._follow_targets or self.target(index) is not None)

    def on_resize(self) -> None:
        """Wrap anew where the width is another."""
        if self.scrollable_content_region.width != self._width:
            self._wrap()

    def _wrap(self) -> None:
        self._width = self.scrollable_content_region.width
        self._lines = [
            (part, number)
            for number, (paragraph, _) in enumerate(self._paragraphs if self._width > 0 else ())
            for part in _wrapped(paragraph, self._width, self._hang, self.app.console)
        ]
        self.reload()

    def count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def line(self, index: int, width: int) -> Text:
        """That line. A scrollbar that has come has made the width another, which nobody tells."""
        if width not in (self._width, ANY_CELLS):
            self._width = width
            self.call_after_refresh(self._wrap)
        return self._lines[index][0].copy()


def _wrapped(paragraph: Text, width: int, hang: int, console: Console) -> Iterable[Text]:
    """A paragraph that says `no_wrap` stays one line, which is cut where it is painted."""
    fits = paragraph.cell_len <= width and "\n" not in paragraph.plain
    if fits or paragraph.no_wrap:
        return [paragraph]
    if hang <= 0 or width < 3 * hang:
        return paragraph.wrap(console, width)
    name, rest = paragraph.divide([hang])
    first, *more = rest.wrap(console, width - hang)
    return [name.append_text(first), *(Text(" " * hang).append_text(part) for part in more)]
