import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.event_stream import blocks, is_event_stream

FIELD = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize("begin", ["data: {}", "data:{}", "event: x", ": PROCESSING", "\n\nid: 1", "retry: 3"])
def test_a_stream_is_told_by_how_it_begins(begin: str) -> None:
    """So does a router's comment, which keeps a slow stream alive; the space behind the colon may be missing."""
    assert is_event_stream(begin.encode())


@pytest.mark.parametrize("body", [b"", b'{"data": 1}', b"<html>", b"database: down"])
def test_other_bodies_are_no_stream(body: bytes) -> None:
    assert not is_event_stream(body)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@given(told=st.lists(st.tuples(FIELD, st.lists(FIELD, min_size=1))))
def test_what_was_written_is_read(end: str, told: list[tuple[str, list[str]]]) -> None:
    """Whatever ends the lines; an event's data may be of several, and comments are passed over."""
    lines = [[f"event: {kind}", ": a comment", *(f"data: {line}" for line in data), ""] for kind, data in told]
    stream = "".join(line + end for event in lines for line in event)
    assert list(blocks(stream.encode())) == [(kind, "\n".join(data)) for kind, data in told]


@given(st.lists(st.sampled_from([b"data:", b"event:", b" ", b"\n", b"\r", b"x", b"\xff"])).map(b"".join))
def test_anything_is_read(data: bytes) -> None:
    """Of bytes that are no stream, too, no event is made up."""
    assert len(list(blocks(data))) <= data.count(b"data:") + data.count(b"event:")
