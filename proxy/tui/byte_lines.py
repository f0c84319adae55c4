"""A body's bytes as lines, raw or as hex, read from where they are: a body of hundreds of megabytes is a file, mapped.

Raw lines end where the body's do, or at the screen's width; where that is, is kept as one number a line.
"""

from array import array
from bisect import bisect_right
from mmap import mmap

from rich.text import Text
from textual import work

from gymtap.proxy.tui.lines import ANY_CELLS, Lines
from gymtap.proxy.views.plain import printable

_AT_ONCE_BYTES = 2**20
_HEX_BYTES = 16

type Bytes = bytes | mmap


def line_starts(data: Bytes, line_bytes: int) -> array[int]:
    """Where each line begins: behind every newline, and every `line_bytes` of a longer line."""
    starts = array("Q")
    at, end = 0, len(data)
    while at < end:
        newline = data.find(b"\n", at)
        stop = end if newline < 0 else newline + 1
        starts.extend(range(at, max(stop - 1, at + 1), line_bytes))
        at = stop
    return starts


def find_bytes(data: Bytes, text: str, start: int, by: int) -> int | None:
    """Where the text occurs next as it is written, from `start` on or back; it begins anew at the other end."""
    wanted = text.encode()
    if by > 0:
        at = data.find(wanted, start + 1)
        at = at if at >= 0 else data.find(wanted)
    else:
        at = data.rfind(wanted, 0, start)
        at = at if at >= 0 else data.rfind(wanted)
    return at if at >= 0 else None


class RawLines(Lines):
    """A body as the text that it is, folded at the width of the screen."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # textual's own name
        super().__init__(id=id)
        self.data: Bytes = b""
        self._starts = array("Q")
        self._cells = 0
        self._asked: int | None = None

    def put(self, data: Bytes) -> None:
        """Show another body; of a large one the lines come when a thread has found them."""
        self.data, self._starts, self._cells, self._asked = data, array("Q"), 0, None
        self.reload()
        self._fold()

    def on_resize(self) -> None:
        """Fold anew where the width is another."""
        self._fold()

    def _fold(self) -> None:
        cells = self.scrollable_content_region.width
        if cells <= 0 or cells == self._cells:
            return
        if len(self.data) <= _AT_ONCE_BYTES:
            self._folded(self.data, cells, line_starts(self.data, cells))
        else:
            self._fold_beside(self.data, cells)

    @work(thread=True, exclusive=True, exit_on_error=False, group="fold")
    def _fold_beside(self, data: Bytes, cells: int) -> None:
        self.app.call_from_thread(self._folded, data, cells, line_starts(data, cells))

    def _folded(self, data: Bytes, cells: int, starts: array[int]) -> None:
        """The cursor stays where it was in the body, or goes where it was asked to."""
        if data is not self.data:
            return
        at = self._starts[self.cursor] if self._starts else 0
        if self._asked is not None and (not self._starts or self.cursor == self.line_of(self._asked)):
            at = self._asked
        self._starts, self._cells = starts, cells
        self.reload()
        self.go_to(at)

    def count(self) -> int:
        """How many lines."""
        return len(self._starts)

    def line(self, index: int, width: int) -> Text:
        """That line; what is not UTF-8 is shown as such. A character that is folded is on the line where it begins.

        A scrollbar that has come has made the width another, which nobody tells.
        """
        if width not in (self._cells, ANY_CELLS):
            self.call_after_refresh(self._fold)
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(self.data)
        first, last = _at_character(self.data, self._starts[index]), _at_character(self.data, end)
        return Text(printable(self.data[first:last].decode("utf-8", "replace").rstrip("\r\n")))

    def line_of(self, at: int) -> int:
        """The line that a byte is on."""
        return max(bisect_right(self._starts, at) - 1, 0)

    def find(self, text: str, by: int) -> int | None:
        """The byte at which the text occurs next, as it is written."""
        if not self._starts:
            return find_bytes(self.data, text, -1 if by > 0 else len(self.data), by)
        end = self._starts[self.cursor + 1] if self.cursor + 1 < len(self._starts) else len(self.data)
        return find_bytes(self.data, text, end - 1 if by > 0 else self._starts[self.cursor], by)

    def go_to(self, at: int) -> None:
        """Put the cursor on the line of a byte; where that is not known yet, when it is."""
        self._asked = at
        if self._starts:
            self.cursor = self.line_of(at)
            self.call_after_refresh(self.show, self.cursor)


def _at_character(data: Bytes, at: int) -> int:
    """The beginning of the next character, where a place is within one (UTF-8 has at most three further bytes)."""
    for _ in range(3):
        if at < len(data) and data[at] & 0xC0 == 0x80:
            at += 1
    return at


class HexLines(Lines):
    """A body in hex, sixteen bytes a line."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # textual's own name
        super().__init__(id=id)
        self.data: Bytes = b""

    def put(self, data: Bytes) -> None:
        """Show another body."""
        self.data = data
        self.reload()

    def count(self) -> int:
        """How many lines."""
        return -(-len(self.data) // _HEX_BYTES)

    def line(self, index: int, width: int) -> Text:  # noqa: ARG002  # it has one width
        """Offset, bytes, and the ASCII among them."""
        start = index * _HEX_BYTES
        row = self.data[start : start + _HEX_BYTES]
        plain = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        return Text.assemble((f"{start:08x}  ", "dim"), row.hex(" ").ljust(_HEX_BYTES * 3 + 1), (plain, "dim"))

    def find(self, text: str, by: int) -> int | None:
        """The line in which the text occurs next."""
        start = self.cursor * _HEX_BYTES
        at = find_bytes(self.data, text, start + _HEX_BYTES - 1 if by > 0 else start, by)
        return None if at is None else at // _HEX_BYTES
