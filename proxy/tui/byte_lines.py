"""A body's bytes as lines, raw or as hex, read from where they are: a body of hundreds of megabytes is a file, mapped.

Raw lines end where the body's do, or at so many bytes; where that is, is kept as one number a line.
"""

from array import array
from bisect import bisect_right
from mmap import mmap

from rich.text import Text

from gymtap.proxy.tui.lines import Lines
from gymtap.proxy.views.plain import printable

LINE_BYTES = 160
_HEX_BYTES = 16

type Bytes = bytes | mmap


def line_starts(data: Bytes, line_bytes: int = LINE_BYTES) -> array[int]:
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
    """A body as the text that it is."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # textual's own name
        super().__init__(id=id)
        self.data: Bytes = b""
        self._starts = array("Q")

    def put(self, data: Bytes, starts: array[int]) -> None:
        """Show another body; `starts` are from `line_starts`, which takes its time."""
        self.data, self._starts = data, starts
        self.reload()

    def count(self) -> int:
        """How many lines."""
        return len(self._starts)

    def line(self, index: int, width: int) -> Text:  # noqa: ARG002  # it is cut where it is painted
        """That line; what is not UTF-8 is shown as such."""
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(self.data)
        return Text(printable(self.data[self._starts[index] : end].decode("utf-8", "replace").rstrip("\r\n")))

    def find(self, text: str, by: int) -> int | None:
        """The line in which the text occurs next."""
        end = self._starts[self.cursor + 1] if self.cursor + 1 < len(self._starts) else len(self.data)
        start = end - 1 if by > 0 else self._starts[self.cursor] if self._starts else 0
        at = find_bytes(self.data, text, start, by)
        return None if at is None else bisect_right(self._starts, at) - 1


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
