"""JSON documents of any length, value by value: where a value ends is told without parsing it.

Only one value is ever held, so a HAR of gigabytes needs the memory of its longest entry. What a value holds is left to
a parser; here only brackets, strings, commas and colons are looked at.
"""

import json
import re
from collections.abc import Iterator
from typing import BinaryIO

_BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb"[^ \t\r\n,:\[\]{}\"]++")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}"]', re.DOTALL)
_QUOTE, _OPENS = ord('"'), b"[{"


class StreamError(ValueError):
    """The document is no JSON, or ends before it is whole; `line` counts from 1, `byte` from 0."""

    def __init__(self, why: str, line: int, byte: int) -> None:
        super().__init__(why)
        self.line = line
        self.byte = byte


class Scanner:
    """A position in a document. Whoever is given a member or an element must take its value, or skip it."""

    def __init__(self, content: BinaryIO, chunk_bytes: int = 2**20) -> None:
        self._content = content
        self._chunk_bytes = chunk_bytes
        self._buffer = content.read(max(chunk_bytes, len(_BOM)))
        self._at = len(_BOM) if self._buffer.startswith(_BOM) else 0
        self._dropped_bytes = 0
        self._dropped_lines = 0

    @property
    def line(self) -> int:
        """The line, from 1."""
        return self._dropped_lines + self._buffer.count(b"\n", 0, self._at) + 1

    @property
    def byte(self) -> int:
        """How many bytes lie before it."""
        return self._dropped_bytes + self._at

    def peek(self) -> bytes:
        """The next byte that is no space; empty at the end."""
        while True:
            space = _SPACE.match(self._buffer, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._buffer) or not self._more():
                return self._buffer[self._at : self._at + 1]

    def value(self) -> bytes:
        """The next value, whole."""
        end = self._end()
        found = self._buffer[self._at : self._at + end]
        self._at += end
        return found

    def skip(self) -> None:
        """Leave the next value out, without holding it."""
        if self.peek() in {b"{", b"["}:
            self._nested(hold=False)
        else:
            self._at += self._end()

    def members(self) -> Iterator[str]:
        """The names in an object, each before its value is taken."""
        self._take(b"{")
        if self.peek() == b"}":
            self._take(b"}")
            return
        while True:
            yield self._name()
            if self._take(b",}") == b"}":
                return

    def elements(self) -> Iterator[int]:
        """The numbers of the elements of an array, from 0, each before it is taken."""
        self._take(b"[")
        if self.peek() == b"]":
            self._take(b"]")
            return
        number = 0
        while True:
            yield number
            if self._take(b",]") == b"]":
                return
            number += 1

    def find(self, name: str) -> bool:
        """Go to the value of that name in an object; False, behind the object, when it has none."""
        for found in self.members():
            if found == name:
                return True
            self.skip()
        return False

    def _name(self) -> str:
        if self.peek() != b'"':
            raise self._error("a name in quotes is expected")
        name = self.value()
        self._take(b":")
        try:
            return str(json.loads(name))
        except ValueError:
            raise self._error("a name that is no string") from None

    def _take(self, wanted: bytes) -> bytes:
        found = self.peek()
        if not found or found not in wanted:
            raise self._error(f"{' or '.join(chr(one) for one in wanted)} is expected" if found else "it ends there")
        self._at += 1
        return found

    def _end(self) -> int:
        """How far from here the value ends that begins here."""
        first = self.peek()
        if first in {b"{", b"["}:
            return self._nested(hold=True)
        while True:
            found = (_STRING if first == b'"' else _SCALAR).match(self._buffer, self._at)
            if found and (first == b'"' or found.end() < len(self._buffer)):
                return found.end() - self._at
            if not self._more():
                if found:
                    return found.end() - self._at
                raise self._error("it ends in a string" if first == b'"' else "a value is expected")

    def _nested(self, *, hold: bool) -> int:
        depth = here = 0  # `here` is counted from the value's start, or from what is not looked at yet
        while True:
            begin = self._at + here
            here = len(self._buffer) - self._at
            for found in _STRUCTURE.finditer(self._buffer, begin):
                start = found.start()
                byte = self._buffer[start]
                if byte == _QUOTE:
                    if found.end() == start + 1:  # a string that goes on behind the buffer
                        here = start - self._at
                        break
                    continue
                depth += 1 if byte in _OPENS else -1
                if not depth:
                    here = found.end() - self._at
                    if not hold:
                        self._at += here
                    return here
            if not hold:
                self._at, here = self._at + here, 0
            if not self._more():
                raise self._error("it ends in the middle of a value")

    def _more(self) -> bool:
        """Read on, at least as much again as is held, and let go of what lies behind."""
        self._dropped_lines += self._buffer.count(b"\n", 0, self._at)
        self._dropped_bytes += self._at
        rest = self._buffer[self._at :]
        more = self._content.read(max(self._chunk_bytes, len(rest)))
        self._buffer, self._at = rest + more, 0
        return bool(more)

    def _error(self, why: str) -> StreamError:
        return StreamError(why, self.line, self.byte)
