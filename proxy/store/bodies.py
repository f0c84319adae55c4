"""Bodies on disk: compressed, and where one repeats an earlier one, only what is new.

A turn of a conversation repeats the whole history before it, usually with something constant behind it
(`tools`, `model`). So a body is stored as: so many bytes of its predecessor's start, something new, so many
bytes of its end. Finding those takes a few memory comparisons, where a zstd dictionary of the predecessor
costs its whole length again. A predecessor is found by hashes of the body's first 1, 2, 4, ... KiB:
the longest start that was seen before wins, which tells one conversation from another that begins alike.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import zstandard

MAX_DEPTH = 32
"""The longest chain of predecessors; after it a body is stored whole."""

SEGMENT_BYTES = 2**20
"""Long bodies are stored in pieces of this size."""

_FIRST_RUNG_BYTES = 1024
_LEVEL = 1
_MAX_BASE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Stored:
    """A body as it goes into the table; `base` is the predecessor's digest, or None when it is whole."""

    digest: bytes
    size_bytes: int
    base: bytes | None
    prefix_bytes: int
    suffix_bytes: int
    data: bytes


class KeptBody(NamedTuple):
    """What an exchange's record says of a body: a `schemas.Body`, of which reading makes one; see there."""

    digest: str | None
    size_bytes: int
    encoding: str | None = None
    missing_bytes: int = 0
    redacted: int = 0


@dataclass(slots=True)
class _Known:
    content: bytes
    depth: int
    rungs: tuple[int, ...]


def _common_prefix(a: bytes, b: bytes) -> int:
    """How many bytes two bodies share at their start: bisection over memory comparisons."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a.startswith(b[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _common_suffix(a: bytes, b: bytes, limit: int) -> int:
    """How many bytes, at most `limit`, two bodies share at their end."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a.startswith(b[len(b) - middle : len(b) - low], len(a) - middle):
            low = middle
        else:
            high = middle - 1
    return low


def ladder(content: bytes) -> tuple[int, ...]:
    """Hashes of the content's first 1, 2, 4, ... KiB: of each the last, and what was added to it.

    They need not withstand anybody: where two that differ are taken for the same, less of a body is shared.
    """
    rungs: list[int] = []
    last, done, rung = 0, 0, _FIRST_RUNG_BYTES
    while rung <= len(content):
        last = hash((last, content[done:rung]))
        rungs.append(last)
        done, rung = rung, rung * 2
    return tuple(rungs)


class BodyEncoder:
    """Compresses bodies, remembering recent ones (at most `memory_bytes` of content) as predecessors."""

    def __init__(self, memory_bytes: int = 32 * 2**20) -> None:
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._memory_bytes = memory_bytes
        self._held_bytes = 0
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._rungs: dict[int, bytes] = {}

    def compress(self, segment: bytes) -> bytes:
        """One piece of a long body, on its own."""
        return self._compressor.compress(segment)

    def encode(self, content: bytes, digest: bytes) -> Stored:
        """A whole body; `digest` is its SHA-256."""
        rungs = ladder(content)
        base = self._predecessor(rungs)
        if base is None:
            self._remember(digest, _Known(content, 0, rungs))
            return Stored(digest, len(content), None, 0, 0, self._compressor.compress(content))
        known = self._known[base]
        prefix = _common_prefix(known.content, content)
        suffix = _common_suffix(known.content, content, min(len(known.content), len(content)) - prefix)
        new = content[prefix : len(content) - suffix]
        self._remember(digest, _Known(content, known.depth + 1, rungs))
        return Stored(digest, len(content), base, prefix, suffix, self._compressor.compress(new))

    def forget(self) -> None:
        """Take no body so far as a predecessor: what was encoded may not have reached the disk."""
        self._known.clear()
        self._rungs.clear()
        self._held_bytes = 0

    def _predecessor(self, rungs: tuple[int, ...]) -> bytes | None:
        for rung in reversed(rungs):
            digest = self._rungs.get(rung)
            known = self._known.get(digest) if digest is not None else None
            if known is not None:
                return digest if known.depth < MAX_DEPTH else None
        return None

    def _remember(self, digest: bytes, known: _Known) -> None:
        if not known.rungs or len(known.content) > _MAX_BASE_BYTES or digest in self._known:
            return
        self._known[digest] = known
        self._held_bytes += len(known.content)
        self._rungs.update(dict.fromkeys(known.rungs, digest))
        while self._held_bytes > self._memory_bytes:
            gone, old = self._known.popitem(last=False)
            self._held_bytes -= len(old.content)
            for rung in old.rungs:
                if self._rungs.get(rung) == gone:
                    del self._rungs[rung]


def splice(base: bytes, prefix_bytes: int, new: bytes, suffix_bytes: int) -> bytes:
    """A body put together from its predecessor and what is new in it."""
    return base[:prefix_bytes] + new + (base[-suffix_bytes:] if suffix_bytes else b"")
