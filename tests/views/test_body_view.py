import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.views.body_view import MAX_ITEMS, MAX_LINES, MAX_STRING_CHARS, Drawing, draw_body


def _text(drawing: Drawing) -> str:
    return "\n".join(line.plain for line in drawing.lines)


def test_json_is_laid_out_and_what_fits_on_a_line_is_on_one() -> None:
    body = {"reward": 1.0, "tags": ["a", {}], "why": "x" * 60, "none": []}
    assert _text(draw_body(json.dumps(body).encode())).split("\n") == [
        "{",
        '  "reward": 1.0,',
        '  "tags": ["a", {}],',
        f'  "why": "{"x" * 60}",',
        '  "none": []',
        "}",
    ]


def test_a_long_body_is_bounded_and_says_what_is_missing() -> None:
    body = json.dumps({"text": "x" * 1000, "items": list(range(100)), "more": {str(n): n for n in range(100)}}).encode()
    drawing = draw_body(body)
    assert len(drawing.lines) == MAX_LINES
    assert drawing.cuts.strings == 1
    assert drawing.cuts.items == 100 - MAX_ITEMS
    assert drawing.cuts.told().startswith("not shown: 1 long string, 80 items, ")
    assert f"(+{1000 - MAX_STRING_CHARS + 1} characters)" in _text(drawing)


def test_full_leaves_nothing_out() -> None:
    value = {
        "text": "x" * 5000,
        "items": list(range(500)),
        "none": None,
        "messages": [{"role": "user", "content": "hi"}],
    }
    drawing = draw_body(json.dumps(value).encode(), full=True)
    assert json.loads(_text(drawing)) == value
    assert drawing.cuts.told() == ""


def test_a_conversation_is_readable() -> None:
    messages = [{"role": "user", "content": "Oslo?\nNow?"}, {"role": "assistant", "content": "cold"}]
    drawing = draw_body(json.dumps({"messages": messages, "model": "m", "stop": None}).encode())
    assert _text(drawing).split("\n")[:3] == ["     user │ Oslo?", "          │ Now?", "assistant │ cold"]
    assert '"model": "m"' in _text(drawing)
    assert drawing.cuts.told() == "not shown: 1 null field"


def test_bytes_that_are_not_text_are_hex() -> None:
    drawing = draw_body(bytes(range(256)) * 2)
    assert drawing.lines[0].plain.startswith("00000000  00 01 02")
    assert drawing.cuts.told() == "not shown: 256 B"


@pytest.mark.parametrize("end", range(1, 12))
def test_the_beginning_of_a_large_text_is_text_wherever_it_was_cut(end: int) -> None:
    drawing = draw_body("aé€😀z".encode()[:end], whole=False)
    assert "aé€😀z".startswith(_text(drawing))
    assert drawing.cuts.told() == "not shown: the rest of a very large body"


def test_a_body_deeper_than_the_stack_is_shown_as_text() -> None:
    body = b'{"response":' * 1000 + b"1" + b"}" * 1000
    assert _text(draw_body(body)).startswith('{"response":')


@given(
    st.binary(max_size=400)
    | st.text(st.characters(), max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_can_be_drawn_and_no_control_character_comes_through(data: bytes) -> None:
    for full in (False, True):
        shown = _text(draw_body(data, full=full))
        assert not any(ord(char) < 0x20 and char not in "\n\t" for char in shown)


@given(st.text(max_size=50))
def test_json_strings_cannot_steer_the_terminal(text: str) -> None:
    shown = _text(draw_body(json.dumps({"messages": [{"role": text, "content": text}], "x": text}).encode()))
    assert "\x1b" not in shown
    assert "\x9b" not in shown
