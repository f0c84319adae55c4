"""Where values end, in any document, read in any pieces."""

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.imports.json_stream import Scanner, StreamError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12) | st.just('\\"[{'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just('"]'), inner, max_size=3),
    max_leaves=12,
)
chunks = st.integers(1, 40)


def scanner(text: str, chunk_bytes: int) -> Scanner:
    return Scanner(io.BytesIO(text.encode()), chunk_bytes)


@settings(max_examples=150, deadline=None)
@given(st.lists(values, max_size=4), chunks, st.sampled_from([None, 1]), st.booleans())
def test_the_elements_are_those_of_a_parser(
    listed: list[Any], chunk: int, indent: int | None, ascii_only: bool
) -> None:
    """Whatever they hold, and in whatever pieces they are read; others than the one that is sought are passed."""
    text = json.dumps({"a": listed, "b": {"c": listed}}, indent=indent, ensure_ascii=ascii_only)
    found = scanner(text, chunk)
    assert found.find("b")
    assert found.find("c")
    assert [json.loads(found.value()) for _ in found.elements()] == listed
    assert found.line == text.count("\n", 0, text.rindex("]")) + 1


@settings(max_examples=150, deadline=None)
@given(values, chunks, st.data())
def test_a_document_that_is_cut(value: Any, chunk: int, data: st.DataObject) -> None:
    """What is whole before the cut is found; then the cut is told of, with its place."""
    text = json.dumps([[value], {"a": value}])
    cut = data.draw(st.integers(0, len(text) - 1))
    found = scanner(text[:cut], chunk)
    taken: list[Any] = []
    with pytest.raises(StreamError) as caught:
        taken.extend(json.loads(found.value()) for _ in found.elements())
    assert taken == [[value], {"a": value}][: len(taken)]
    assert caught.value.byte <= len(text[:cut].encode())
    assert caught.value.line == 1


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40) | st.text('[]{}":,\\ a1', max_size=30).map(str.encode), chunks)
def test_any_bytes(content: bytes, chunk: int) -> None:
    """Whatever the bytes are, they are passed or refused, and never looked at for ever."""
    found = Scanner(io.BytesIO(content), chunk)
    try:
        while found.peek():
            found.skip()
        end = found.byte
    except StreamError as error:
        end = error.byte
    assert end <= len(content)


def test_a_long_string_is_read_in_linear_time() -> None:
    """A value of many pieces is not looked through again for each of them."""
    text = json.dumps(["x" * 400_000 + '\\"' * 100_000])
    found = scanner(text, 1)
    assert [json.loads(found.value()) for _ in found.elements()] == json.loads(text)
