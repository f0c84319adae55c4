"""Other readings of a body, in which a secret may stand: escapes undone, UTF-16 and UTF-32, an event stream's deltas.

The rules know plain text. A reading is what whoever parses the body would read, as plain text, and it knows where
each byte of it came from, so that what is found in it is taken out of the body itself; nothing is encoded anew.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gymtap.proxy.core.secret_shapes import Span

HIDDEN = (
    r"\\u00(?:2[27DdFf]|3[0-9A-Fa-f]|[4-7][0-9A-Fa-f])|\\x(?:2[27DdFf]|3[0-9A-Fa-f]|[4-7][0-9A-Fa-f])"
    r"|%(?:2[257DdFf]|3[0-9A-Fa-f]|[4-7][0-9A-Fa-f])|&(?:quot|apos|lt|#)|:\\+/"
)
"""What a text that hides letters or quotes matches, in the syntax of Rust's regex engine."""

_ESCAPE = re.compile(
    rb"(?<!\\)(\\++)(?:u00([2-7][0-9A-Fa-f])|x([2-7][0-9A-Fa-f])|/)|%([2-7][0-9A-Fa-f])"
    rb"|&(?:(quot|apos|amp|lt|gt)|#(?:([0-9]{2,3})|[xX]([2-7][0-9A-Fa-f])));"
)
_ENTITIES = {b"quot": b'"', b"apos": b"'", b"amp": b"&", b"lt": b"<", b"gt": b">"}
_QUOTES = (b'"', b"'", b"\\")

_STREAM = re.compile(rb"(?:\xef\xbb\xbf)?\s*data:")
_DELTAS = (
    b'"content":', b'"arguments":', b'"delta":', b'"text":', b'"partial_json":', b'"reasoning":', b'"input":',
    b'"reasoning_content":', b'"thinking":', b'"refusal":', b'"transcript":',
)  # fmt: skip
_WHITE = re.compile(rb"\s|\\n")
_STRING = re.compile(rb' ?"((?:[^"\\\r\n]|\\.)*+)"')
_INDEX = re.compile(rb'"(?:output_|content_)?index": ?([0-9]+)')

_WIDE = ((4, "utf-32-le", (0,)), (4, "utf-32-be", (3,)), (2, "utf-16-le", (0,)), (2, "utf-16-be", (1,)))
_PROBE_BYTES = 64
_HEAD_BYTES = 4096


class _Piece(NamedTuple):
    """Bytes of a reading from `at` on, and where they stand in the body. Of equal length: they are the same bytes."""

    at: int
    start: int
    end: int


class Reading:
    """`data` is the plain text. `codec` says how a replacement is written into the body."""

    def __init__(self, data: bytes, pieces: list[_Piece], codec: str | None = None, width: int = 1) -> None:
        self.data = data
        self._pieces = pieces
        self._starts = [piece.at for piece in pieces]
        self._codec = codec
        self._width = width

    def places(self, spans: Iterable[Span]) -> Iterator[Span]:
        """The spans as they stand in the body; of one that is in several parts, the later ones become nothing."""
        for span in spans:
            text = span.text
            for start, end in self._parts(span):
                yield Span(start, end, text.decode().encode(self._codec) if self._codec else text)
                text = b""

    def _parts(self, span: Span) -> list[tuple[int, int]]:
        parts: list[tuple[int, int]] = []
        for number in range(bisect_right(self._starts, span.start) - 1, len(self._pieces)):
            piece = self._pieces[number]
            if piece.at >= span.end:
                break
            end = self._starts[number + 1] if number + 1 < len(self._pieces) else len(self.data)
            start, stop = piece.start, piece.end
            if (end - piece.at) * self._width == stop - start:
                stop = start + (min(end, span.end) - piece.at) * self._width
                start += max(0, span.start - piece.at) * self._width
            if parts and parts[-1][1] == start:
                parts[-1] = (parts[-1][0], stop)
            elif stop > start:
                parts.append((start, stop))
        return parts


def readings(data: bytes, *, escaped: bool) -> Iterator[Reading]:
    """Those that differ from the bytes as they are; `escaped` says whether HIDDEN matches."""
    for reading in (wide(data), unescaped(data) if escaped else None, joined(data)):
        if reading is not None:
            yield reading


def may_be_read_otherwise(data: bytes) -> bool:
    """Whether it is wide text or an event stream, by its first bytes."""
    return b"\0" in data[:_PROBE_BYTES] or _is_event_stream(data)


def _is_event_stream(data: bytes) -> bool:
    """Whether it is one, or a piece of one."""
    head = data[:_HEAD_BYTES]
    return _STREAM.match(head) is not None or (b"\n" in head and b"\ndata:" in head)


def wide(data: bytes) -> Reading | None:
    """UTF-16 or UTF-32, by where the zeros are; a piece of one may begin within a character."""
    probe = data[: _PROBE_BYTES * 4]
    if b"\0" not in probe[:_PROBE_BYTES] or len(probe) < 8:
        return None
    for width, codec, (lowest,) in _WIDE:
        lanes = [probe[lane::width].count(0) * width * 2 >= len(probe) - width for lane in range(width)]
        if [lane for lane in range(width) if not lanes[lane]] == [lowest]:
            return _narrowed(data, width, codec)
    return None


def _narrowed(data: bytes, width: int, codec: str) -> Reading:
    units = array("H" if width == 2 else "I")
    units.frombytes(data[: len(data) // width * width])
    if codec.endswith("be") != (array("H", b"\0\1")[0] == 1):
        units.byteswap()
    text = bytes([unit if unit < 128 else 63 for unit in units])
    return Reading(text, [_Piece(0, 0, len(text) * width)], codec, width)


def unescaped(data: bytes) -> Reading | None:
    """JSON's, JavaScript's, URLs' and HTML's escapes of printable ASCII undone, at any depth; None without any."""
    texts: list[bytes] = []
    pieces: list[_Piece] = []
    at = position = 0
    for match in _ESCAPE.finditer(data):
        if match.start() > position:
            texts.append(data[position : match.start()])
            pieces.append(_Piece(at, position, match.start()))
            at += match.start() - position
        texts.append(_meant(match))
        pieces.append(_Piece(at, match.start(), match.end()))
        at += len(texts[-1])
        position = match.end()
    if not pieces:
        return None
    texts.append(data[position:])
    pieces.append(_Piece(at, position, len(data)))
    return Reading(b"".join(texts), pieces)


def _meant(match: re.Match[bytes]) -> bytes:
    """What an escape stands for; a quote keeps its backslashes, which say how deep it is."""
    backslashes, unicode, hexadecimal, percent, entity, decimal, hex_entity = match.groups()
    if entity:
        return _ENTITIES[entity]
    if decimal:
        return bytes([int(decimal)]) if 32 <= int(decimal) < 127 else b"?"
    code = unicode or hexadecimal or percent or hex_entity
    if not code:
        return b"/"
    meant = bytes([int(code, 16)])
    return backslashes + meant if backslashes and meant in _QUOTES else meant


def joined(data: bytes) -> Reading | None:
    """The strings that an event stream brings piece by piece, each put together; None when it is no such stream."""
    texts: list[bytes] = []
    pieces: list[_Piece] = []
    at = 0
    for parts in _deltas(data):
        if len(parts) < 2:
            continue
        for start, end in parts:
            texts.append(data[start:end])
            pieces.append(_Piece(at, start, end))
            at += end - start
        texts.append(b"\n")
        pieces.append(_Piece(at, 0, 0))
        at += 1
    return Reading(b"".join(texts), pieces) if pieces else None


def unfinished(data: bytes) -> int:
    """Where the line begins in which the last word of an event stream's last string does; the end for other data."""
    last = max(_deltas(data), key=lambda parts: parts[-1], default=())
    spaced = (start for start, end in reversed(last) if _WHITE.search(data, start, end))
    place = next(spaced, last[0][0] if last else -1)
    return data.rfind(b"\n", 0, place) + 1 if place >= 0 else len(data)


def _deltas(data: bytes) -> list[list[tuple[int, int]]]:
    """Where the parts are of each string that comes in parts."""
    if not _is_event_stream(data):
        return []
    several = data.count(b'index":') > data.count(b'index":0') + data.count(b'index": 0')
    strings: dict[bytes, list[tuple[int, int]]] = {}
    for name in _DELTAS:
        place = data.find(name)
        while place >= 0:
            match = _STRING.match(data, place + len(name))
            if match is not None and match.end(1) > match.start(1):
                key = name + _which(data, place) if several else name
                strings.setdefault(key, []).append(match.span(1))
            place = data.find(name, place + len(name))
    return list(strings.values())


def _which(data: bytes, place: int) -> bytes:
    """The indices in an event's line: which choice, call or item it is about."""
    start = data.rfind(b"\n", 0, place) + 1
    end = data.find(b"\n", place)
    return b",".join(_INDEX.findall(data, start, end if end >= 0 else len(data)))
