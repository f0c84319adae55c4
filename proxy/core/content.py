"""Content codings (RFC 9110, 8.4.1) undone in the recorded copy, piece by piece, in bounded memory.

A body that cannot be decoded is kept as it came; one that expands beyond reason is cut where it did.
"""

import zlib
from collections.abc import Iterator
from typing import Protocol

import brotli  # type: ignore[import-untyped]  # it ships no types
import zstandard

PIECE_BYTES = 256 * 1024
"""What a decoder gives out at once is at most about this."""

BOMB_BYTES = 64 * 2**20
"""Up to here any expansion is fine; beyond it, one of more than BOMB_RATIO is a bomb."""

BOMB_RATIO = 100

_SLICE_BYTES = 1024


class ContentError(Exception):
    """The content is not what its coding says, or expands beyond reason."""


class _Step(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces; raises ContentError."""


class _Inflate:
    """gzip with any number of members, or deflate, which senders mean in two ways (RFC 9110, 8.4.1.2)."""

    def __init__(self, *, gzip: bool) -> None:
        self._bits = 31 if gzip else 0  # 0: not known before its first two bytes
        self._head = b""
        self._inflater = zlib.decompressobj(31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        if not self._bits:
            data = self._head = self._head + data
            if len(data) < 2:
                return
            self._bits = 15 if data[0] & 15 == 8 and int.from_bytes(data[:2]) % 31 == 0 else -15  # RFC 1950, 2.2
            self._inflater = zlib.decompressobj(self._bits)
        while data:
            if self._inflater.eof:
                if self._bits != 31:
                    return  # what follows a deflate stream is nobody's
                self._inflater = zlib.decompressobj(self._bits)
            try:
                piece = self._inflater.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise ContentError(str(error)) from error
            if piece:
                yield piece
            data = self._inflater.unconsumed_tail or self._inflater.unused_data


class _Sliced:
    """A decoder that cannot bound its output is given so little at once that it is bounded."""

    def __init__(self, coding: str) -> None:
        if coding == "zstd":
            decoder = zstandard.ZstdDecompressor(max_window_size=2**27)
            self._decode = decoder.decompressobj(read_across_frames=True).decompress
        else:
            self._decode = brotli.Decompressor().process

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _SLICE_BYTES):
            try:
                piece = self._decode(data[start : start + _SLICE_BYTES])
            except Exception as error:  # brotli's error has no public base in all its versions
                raise ContentError(str(error)) from error
            if piece:
                yield piece


def _step(coding: str) -> _Step | None:
    if coding in ("gzip", "x-gzip"):
        return _Inflate(gzip=True)
    if coding == "deflate":
        return _Inflate(gzip=False)
    return _Sliced(coding) if coding in ("br", "zstd") else None


class Decoder:
    """Undoes a Content-Encoding. `feed` yields pieces and raises ContentError."""

    def __init__(self, steps: list[_Step]) -> None:
        self._steps = steps
        self._in_bytes = 0
        self._out_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces of what was fed."""
        self._in_bytes += len(data)
        for piece in self._through(data, 0):
            self._out_bytes += len(piece)
            if self._out_bytes > BOMB_BYTES and self._out_bytes > BOMB_RATIO * self._in_bytes:
                raise ContentError(f"{self._in_bytes} bytes expand to more than {self._out_bytes}")
            yield piece

    def _through(self, data: bytes, number: int) -> Iterator[bytes]:
        if number == len(self._steps):
            yield data
            return
        for piece in self._steps[number].feed(data):
            yield from self._through(piece, number + 1)


def decoder(content_encoding: str | None) -> Decoder | None:
    """For a Content-Encoding's value; None when there is nothing to undo, or something unknown in it."""
    codings = [coding.strip().lower() for coding in (content_encoding or "").split(",")]
    steps = [_step(coding) for coding in reversed(codings) if coding not in ("", "identity")]
    known = [step for step in steps if step is not None]
    return Decoder(known) if known and len(known) == len(steps) else None
