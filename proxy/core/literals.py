"""Reads literals as they are found in error bodies: JSON strings, Python bytes reprs, JSON or Python values.

Every reader takes a prefix of a literal as well as a whole one, because logs and sidecars cut bodies in the middle
of an escape: it returns what is surely there and whether the literal was closed. Nothing is ever evaluated.
"""

import re
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 100
"""Values nested deeper than this are not read; error bodies are shallow."""

_JSON_STRING = re.compile(r'"([^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*)("?)', re.DOTALL)
_BYTES_REPR = {
    quote: re.compile(rf"b{quote}([^{quote}\\]*(?:\\(?:x[0-9a-fA-F]{{2}}|[^x])[^{quote}\\]*)*)({quote}?)", re.DOTALL)
    for quote in "'\""
}
_PYTHON_STRING = {
    quote: re.compile(
        rf"{quote}([^{quote}\\]*(?:\\(?:x[0-9a-fA-F]{{2}}|u[0-9a-fA-F]{{4}}|[^xu])[^{quote}\\]*)*)({quote}?)", re.DOTALL
    )
    for quote in "'\""
}
_BYTES_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[\s\S])")
_TEXT_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\s\S])")
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_WORD = re.compile(r"-?[A-Za-z]+")
_WORDS: dict[str, Any] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
    "NaN": float("nan"),
    "nan": float("nan"),
    "Infinity": float("inf"),
    "inf": float("inf"),
    "-Infinity": float("-inf"),
    "-inf": float("-inf"),
}
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Literal[T]:
    """A literal that was read: its value, where it ended, and whether it was closed there (False: the text was cut)."""

    value: T
    end: int
    closed: bool


class NotALiteral(ValueError):  # noqa: N818 - it is an answer to a question, not an accident
    """What stands here is no literal."""


def json_string(text: str, start: int = 0) -> Literal[str] | None:
    """The JSON string at `start`; None when no quote stands there. A cut escape at the end is dropped."""
    match = _JSON_STRING.match(text, start)
    if match is None:
        return None
    return Literal(_unescape(match[1]), match.end(), bool(match[2]))


def bytes_repr(text: str, start: int = 0) -> Literal[bytes] | None:
    r"""The bytes that `repr` wrote at `start` (`b'..'` or `b".."`); None when none stands there.

    A cut escape (`\`, `\x`, `\x4`) at the end is dropped, so that what is returned is a prefix of the original.
    """
    pattern = _BYTES_REPR.get(text[start + 1 : start + 2]) if text[start : start + 1] == "b" else None
    match = pattern.match(text, start) if pattern else None
    if match is None:
        return None
    raw = match[1].encode("utf-8", "surrogatepass")
    return Literal(_BYTES_ESCAPE.sub(_byte, raw), match.end(), bool(match[2]))


def value(text: str, start: int = 0) -> Literal[Any]:
    """The JSON or Python value at `start` (dict, list, tuple, string, number, constant); cut ones as far as they go.

    Raises NotALiteral when something else stands there, or when it is nested deeper than MAX_DEPTH.
    """
    return _value(text, _skip(text, start), 0)


def _byte(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    if len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    return _SIMPLE_BYTES.get(escape, escape if escape in {b"\\", b"'", b'"'} else match[0])


_SIMPLE_BYTES = {key.encode(): replacement.encode() for key, replacement in _SIMPLE.items()}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _TEXT_ESCAPE.sub(_char, text)
    # Two escaped surrogates are one character; what cannot be paired is kept, and replaced where it is shown.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _SURROGATE.search(plain) else plain


_SURROGATE = re.compile("[\ud800-\udfff]")


def _char(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _SIMPLE.get(escape, escape if escape in {"\\", "'", '"', "/"} else match[0])


def _skip(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _value(text: str, start: int, depth: int) -> Literal[Any]:
    if depth > MAX_DEPTH:
        raise NotALiteral("nested too deep")
    first = text[start : start + 1]
    if first == "{":
        return _mapping(text, start + 1, depth)
    if first in {"[", "("}:
        return _sequence(text, start + 1, "]" if first == "[" else ")", depth)
    return _scalar(text, start)


def _scalar(text: str, start: int) -> Literal[Any]:
    first = text[start : start + 1]
    if first in {"'", '"'}:
        match = _PYTHON_STRING[first].match(text, start)
        if match is None:
            raise NotALiteral(first)
        return Literal(_unescape(match[1]), match.end(), bool(match[2]))
    if (found := bytes_repr(text, start)) is not None:
        return Literal(found.value.decode("utf-8", "replace"), found.end, found.closed)
    if match := _NUMBER.match(text, start):
        number = float(match[0]) if match[1] or match[2] or len(match[0]) > 4_000 else int(match[0])
        return Literal(number, match.end(), True)
    word = _WORD.match(text, start)
    if word is None or word[0] not in _WORDS:
        raise NotALiteral(text[start : start + 20])
    return Literal(_WORDS[word[0]], word.end(), True)


def _sequence(text: str, start: int, closing: str, depth: int) -> Literal[list[Any]]:
    items: list[Any] = []
    at = _skip(text, start)
    while at < len(text):
        if text[at] == closing:
            return Literal(items, at + 1, closed=True)
        item = _value(text, at, depth + 1)
        items.append(item.value)
        at = _skip(text, item.end)
        if not item.closed or at >= len(text):
            break
        at = _after_comma(text, at, closing)
    return Literal(items, len(text), closed=False)


def _mapping(text: str, start: int, depth: int) -> Literal[dict[str, Any]]:
    found: dict[str, Any] = {}
    at = _skip(text, start)
    while at < len(text):
        if text[at] == "}":
            return Literal(found, at + 1, closed=True)
        key = _scalar(text, at)
        at = _skip(text, key.end)
        if not key.closed or at >= len(text):
            break
        if text[at] != ":":
            raise NotALiteral(text[at : at + 20])
        at = _skip(text, at + 1)
        if at >= len(text):
            break
        item = _value(text, at, depth + 1)
        found[str(key.value)] = item.value
        at = _skip(text, item.end)
        if not item.closed or at >= len(text):
            break
        at = _after_comma(text, at, "}")
    return Literal(found, len(text), closed=False)


def _after_comma(text: str, at: int, closing: str) -> int:
    if text[at] == ",":
        return _skip(text, at + 1)
    if text[at] == closing:
        return at
    raise NotALiteral(text[at : at + 20])
