"""Draws one body: parsed where it can be, bounded unless it is asked for whole, and never as raw terminal codes.

A drawing says what it left out and how to see it. Text that is JSON is laid out; bytes that are not text are
shown as hex.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from rich.highlighter import JSONHighlighter
from rich.text import Text

from gymtap.proxy.views.conversation import Turn, conversation
from gymtap.proxy.views.event_stream import read_stream
from gymtap.proxy.views.plain import clipped, one_line, printable
from gymtap.proxy.views.words import counted, size

MAX_STRING_CHARS = 400
"""A longer string is cut in a bounded drawing."""
MAX_ITEMS = 20
"""A longer list is cut in a bounded drawing."""
MAX_LINES = 60
"""A longer drawing is cut, unless it is asked for whole."""
_FLAT_MAX_CHARS = 72
_ROLE_MAX_CHARS = 16
_HEX_ROW_BYTES = 16
_HEX_MAX_BYTES = 256


@dataclass
class Cuts:
    """What a bounded drawing left out."""

    strings: int = 0
    items: int = 0
    lines: int = 0
    nulls: int = 0
    hidden_bytes: int = 0
    rest: bool = False
    events: bool = False

    def told(self) -> str:
        """`cut: 2 strings, 40 lines`, or nothing."""
        counts = ((self.strings, "long string"), (self.items, "item"), (self.lines, "line"), (self.nulls, "null field"))
        parts = [counted(count, noun) for count, noun in counts if count]
        parts += [size(self.hidden_bytes)] if self.hidden_bytes else []
        parts += ["the rest of a very large body"] if self.rest else []
        parts += ["the stream's events one by one"] if self.events else []
        return f"not shown: {', '.join(parts)}" if parts else ""


@dataclass
class Drawing:
    """Lines of a body and what was left out of them."""

    lines: list[Text] = field(default_factory=list)
    cuts: Cuts = field(default_factory=Cuts)


def draw_body(data: bytes, *, full: bool = False, whole: bool = True) -> Drawing:
    """Draw a recorded body. `full` leaves nothing out. Not `whole`: `data` is only its beginning."""
    drawing = Drawing(cuts=Cuts(rest=not whole))
    data = data if whole else _up_to_a_character(data)
    for line in _lines(data, full, drawing.cuts):
        if not full and len(drawing.lines) >= MAX_LINES:
            drawing.cuts.lines += 1
        else:
            drawing.lines.append(line)
    return drawing


def _up_to_a_character(data: bytes) -> bytes:
    """Without the beginning of a UTF-8 character that was cut in two."""
    for missing in range(1, 4):
        if data[-missing : -missing + 1 or None] >= b"\xc0":
            return data[:-missing]
    return data


def _lines(data: bytes, full: bool, cuts: Cuts) -> Iterator[Text]:
    try:
        value = _value(data, full, cuts)
        turns, rest = ([], value) if full else conversation(value)
        rest = rest if full else _bounded(rest, cuts)
    except (orjson.JSONDecodeError, RecursionError):
        yield from _plain(data, full, cuts)
        return
    yield from _spoken(turns, cuts)
    if turns and isinstance(rest, dict):
        rest = _without_nulls(rest, cuts)
    if rest or not turns:
        yield from json_lines(rest)


def _value(data: bytes, full: bool, cuts: Cuts) -> Any:
    """The body as JSON; a stream as the body that it would have been, unless all of it is wanted."""
    streamed = None if full else read_stream(data)
    cuts.events = streamed is not None
    return orjson.loads(data) if streamed is None else streamed


def json_lines(value: Any) -> Iterator[Text]:
    """JSON laid out with two spaces, what fits on a line on one line; highlighted, safe for a terminal."""
    laid_out = Text(printable(_laid_out(value, "")))
    JSONHighlighter().highlight(laid_out)
    yield from laid_out.split("\n")


def _laid_out(value: Any, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= _FLAT_MAX_CHARS or not isinstance(value, dict | list) or not value:
        return flat
    deeper = f"{indent}  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {_laid_out(item, deeper)}" for key, item in value.items()]
    else:
        items = [_laid_out(item, deeper) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(items) + f"\n{indent}{closing}"


def _spoken(turns: list[Turn], cuts: Cuts) -> Iterator[Text]:
    """Turns as `role │ text`, the roles in a column of their own."""
    roles = [clipped(one_line(turn.role), _ROLE_MAX_CHARS) for turn in turns]
    width = max((len(role) for role in roles), default=0)
    for role, turn in zip(roles, turns, strict=True):
        for number, line in enumerate(printable(_clip(turn.text, cuts)).split("\n")):
            yield Text.assemble(((role if number == 0 else "").rjust(width), "bold"), (" │ ", "dim"), line)


def _clip(text: str, cuts: Cuts) -> str:
    if len(text) <= MAX_STRING_CHARS:
        return text
    cuts.strings += 1
    return f"{clipped(text, MAX_STRING_CHARS)} (+{len(text) - MAX_STRING_CHARS + 1:,} characters)"


def _without_nulls(value: dict[str, Any], cuts: Cuts) -> dict[str, Any]:
    """A conversation's other fields; the API sends dozens of nulls with it."""
    kept = {
        key: _without_nulls(item, cuts) if isinstance(item, dict) else item
        for key, item in value.items()
        if item is not None
    }
    cuts.nulls += len(value) - len(kept)
    return kept


def _bounded(value: Any, cuts: Cuts) -> Any:
    if isinstance(value, str):
        return _clip(value, cuts)
    if isinstance(value, dict):
        return {key: _bounded(item, cuts) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    shown = [_bounded(item, cuts) for item in value[:MAX_ITEMS]]
    if len(value) > MAX_ITEMS:
        cuts.items += len(value) - MAX_ITEMS
        shown.append(f"… {counted(len(value) - MAX_ITEMS, 'more item')}")
    return shown


def _plain(data: bytes, full: bool, cuts: Cuts) -> Iterator[Text]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        yield from _hex(data, full, cuts)
        return
    for line in printable(text).rstrip("\n").split("\n"):
        yield Text(line if full else _clip(line, cuts))


def _hex(data: bytes, full: bool, cuts: Cuts) -> Iterator[Text]:
    shown = data if full else data[:_HEX_MAX_BYTES]
    cuts.hidden_bytes += len(data) - len(shown)
    for start in range(0, len(shown), _HEX_ROW_BYTES):
        row = shown[start : start + _HEX_ROW_BYTES]
        plain = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield Text.assemble((f"{start:08x}  ", "dim"), row.hex(" ").ljust(_HEX_ROW_BYTES * 3 + 1), (plain, "dim"))
