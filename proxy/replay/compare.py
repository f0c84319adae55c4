"""Compares two JSON bodies and leaves out what is different each time: ids, times, usage.

Ids are not dropped but renamed in the order in which they first occur, so two bodies that link the same
things by other names are equal, and a link to the wrong thing is a difference. Renaming keeps the shape, so
a difference found between the renamed bodies is shown with the values that really crossed the wire.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from gymtap.proxy.core.pointer import pointer as pointer_of
from gymtap.proxy.replay.patch import MISSING, read, same, shown

_ID = re.compile(
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"  # UUID
    r"|\b(?:chatcmpl-tool|chatcmpl|cmpl|resp|msg|fc|rs|call|toolu|resources-session|agent-session)[-_]"
    r"(?=[A-Za-z]*\d)[A-Za-z0-9]{8,}\b"  # what providers and Gym call their things
    r"|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{32}\b"  # a bare uuid4().hex
)
_ID_CHARS_MIN = 11
_LONG_WORD = re.compile(r"[A-Za-z0-9_-]{11,}")  # ids are long words: looking for these first is several times faster
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_PORT = re.compile(r"\b((?:127\.0\.0\.1|localhost)['\"]?(?::|, (?:port=)?))\d{2,5}\b")
_STREAM = re.compile(r"(?:data|event|id|retry):|:")
_TIME_KEYS = frozenset({"created", "timestamp", "latency", "elapsed"})
_TIME_KEY = re.compile(r"_(?:at|ms|ns|timestamp|latency)$")
_VOLATILE_KEYS = frozenset({"usage", "system_fingerprint"})


@dataclass(frozen=True)
class Difference:
    """One place where two bodies differ. A side that has nothing there is MISSING."""

    pointer: str
    before: Any
    after: Any

    def __str__(self) -> str:
        before, after = around(self.before, self.after)
        return f"{self.pointer or '(the whole body)'}: {before} -> {after}"


def parse(body: bytes | None) -> Any:
    """A body as JSON where it is JSON, an event stream as the list of its events, else as text; MISSING for None."""
    if body is None:
        return MISSING
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode(errors="replace")
    return [_event(line) for line in text.splitlines() if line.strip()] if _STREAM.match(text) else text


def _event(line: str) -> Any:
    """A stream's line: the JSON of its data, or the line."""
    data = line.removeprefix("data:").strip()
    try:
        return json.loads(data) if line.startswith("data:") else line
    except (ValueError, RecursionError):
        return data


_IGNORED = "<ignored>"


class _Names:
    """Gives ids the names `<id 1>`, `<id 2>`, … in the order in which they come."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def rename(self, text: str) -> str:
        return _LONG_WORD.sub(self._within, text) if len(text) >= _ID_CHARS_MIN else text

    def _within(self, word: re.Match[str]) -> str:
        return _ID.sub(self._name, word[0])

    def _name(self, match: re.Match[str]) -> str:
        return self._names.setdefault(match[0], f"<id {len(self._names) + 1}>")


def without_ids(value: Any, ignore: frozenset[str] = frozenset()) -> Any:
    """A copy with ids renamed in order of occurrence, and the keys in `ignore` blanked; for requests."""
    return _renamed(value, _Names(), ignore)


def without_volatile(value: Any, ignore: frozenset[str] = frozenset()) -> Any:
    """A copy with ids renamed and times, usage and the keys in `ignore` blanked; for whole bodies."""
    return _blanked(value, _Names(), _VOLATILE_KEYS | ignore)


def stable_text(text: str) -> str:
    """Text without what is different each time: ids, times, memory addresses, loopback ports."""
    return _plain(_Names().rename(text))


def differences(before: Any, after: Any, ignore: frozenset[str] = frozenset()) -> list[Difference]:
    """Every place where two bodies differ in what is not volatile, in document order."""
    return _differences(before, after, without_volatile(before, ignore), without_volatile(after, ignore))


def request_differences(before: Any, after: Any, ignore: frozenset[str] = frozenset()) -> list[Difference]:
    """Every place where two requests differ in more than the names of ids and the keys in `ignore`, in order."""
    return _differences(before, after, without_ids(before, ignore), without_ids(after, ignore))


def around(before: Any, after: Any, limit: int = 80) -> tuple[str, str]:
    """Two values as bounded lines, cut so that the place where two long texts part is seen."""
    if not (isinstance(before, str) and isinstance(after, str)):
        return shown(before, limit), shown(after, limit)
    shared = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    shared = min(len(before), len(after)) if shared is None else shared
    start = max(0, shared - limit // 3) if max(len(before), len(after)) > limit else 0
    return _window(before, start, limit), _window(after, start, limit)


def _window(text: str, start: int, limit: int) -> str:
    return shown(("…" if start else "") + text[start : start + limit], limit + 2)


def _differences(before: Any, after: Any, stable_before: Any, stable_after: Any) -> list[Difference]:
    pointers = _walk(stable_before, stable_after, ())
    return [Difference(pointer, read(before, pointer), read(after, pointer)) for pointer in pointers]


def _walk(before: Any, after: Any, at: tuple[str | int, ...]) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _walk(before.get(key, MISSING), after.get(key, MISSING), (*at, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index, (old, new) in enumerate(zip_longest(before, after, fillvalue=MISSING)):
            yield from _walk(old, new, (*at, index))
    elif not same(before, after):
        yield pointer_of(at)


def _renamed(value: Any, names: _Names, ignore: frozenset[str]) -> Any:
    if isinstance(value, str):
        return names.rename(value)
    if isinstance(value, list):
        return [_renamed(item, names, ignore) for item in value]
    if isinstance(value, dict):
        return {key: _IGNORED if key in ignore else _renamed(item, names, ignore) for key, item in value.items()}
    return value


def _blanked(value: Any, names: _Names, ignore: frozenset[str]) -> Any:
    if isinstance(value, str):
        return _plain(names.rename(value))
    if isinstance(value, list):
        return [_blanked(item, names, ignore) for item in value]
    if isinstance(value, dict):
        return {key: _member(key, item, names, ignore) for key, item in value.items()}
    return value


def _member(key: str, value: Any, names: _Names, ignore: frozenset[str]) -> Any:
    if key in ignore:
        return _IGNORED
    if isinstance(value, int | float) and not isinstance(value, bool) and (key in _TIME_KEYS or _TIME_KEY.search(key)):
        return "<time>"
    blanked = _blanked(value, names, ignore)
    return "<id>" if key == "id" and isinstance(value, str) and blanked == value else blanked


def _plain(text: str) -> str:
    return _PORT.sub(r"\1<port>", _ADDRESS.sub("<address>", _TIME.sub("<time>", text)))
