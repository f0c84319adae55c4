"""Content codings are undone however the bytes arrive, and bombs are not."""

import gzip
import zlib
from functools import partial

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.content import BOMB_BYTES, ContentError, decoder

CODINGS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    "br": partial(brotli.compress, quality=2),
}


def raw_deflate(content: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(content) + compressor.flush()


def undo(coding: str, content: bytes, step: int = 1 << 20) -> bytes:
    undoing = decoder(coding)
    assert undoing is not None
    return b"".join(piece for at in range(0, len(content), step) for piece in undoing.feed(content[at : at + step]))


@given(content=st.binary(max_size=5000), coding=st.sampled_from(sorted(CODINGS)), step=st.integers(1, 600))
def test_any_chunking_gives_the_same_content(content: bytes, coding: str, step: int) -> None:
    assert undo(coding.upper(), CODINGS[coding](content), step) == content


@given(content=st.binary(max_size=3000), step=st.integers(1, 50))
def test_deflate_is_understood_in_both_meanings(content: bytes, step: int) -> None:
    assert undo("deflate", raw_deflate(content), step) == content


def test_codings_are_undone_in_reverse_order() -> None:
    assert undo("gzip, identity, zstd", zstandard.compress(gzip.compress(b"twice"))) == b"twice"


def test_a_gzip_of_several_members_is_one_content() -> None:
    assert undo("gzip", gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"


@pytest.mark.parametrize("encoding", [None, "", "identity", "compress", "gzip, compress"])
def test_what_cannot_be_undone_has_no_decoder(encoding: str | None) -> None:
    assert decoder(encoding) is None


@pytest.mark.parametrize("coding", sorted(CODINGS))
def test_what_is_not_so_coded_is_an_error(coding: str) -> None:
    with pytest.raises(ContentError):
        undo(coding, b"\xff\xfe this is not compressed at all" * 3)


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
def test_a_bomb_is_cut(coding: str) -> None:
    bomb = CODINGS[coding](bytes(BOMB_BYTES + 10_000_000))
    undoing = decoder(coding)
    assert undoing is not None
    sizes: list[int] = []
    with pytest.raises(ContentError, match="expand"):
        sizes.extend(len(piece) for piece in undoing.feed(bomb))
    assert sum(sizes) <= BOMB_BYTES
