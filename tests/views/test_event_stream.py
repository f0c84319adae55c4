import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.views.body_view import draw_body
from gymtap.proxy.views.event_stream import read_stream


def _stream(*events: Any) -> bytes:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n"


def _chunk(**delta: Any) -> dict[str, Any]:
    return {"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def test_chat_chunks_become_one_message() -> None:
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    stream = _stream(
        _chunk(role="assistant", content="It "),
        _chunk(content="is cold"),
        _chunk(tool_calls=[call]),
        _chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"city":'}}]),
        _chunk(tool_calls=[{"index": 0, "function": {"arguments": '"Oslo"}'}}]),
        {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"id": "c1", "choices": [], "usage": {"total_tokens": 3}},
    )
    body = read_stream(stream)
    assert body is not None
    assert body["usage"] == {"total_tokens": 3}
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert body["choices"][0]["message"]["content"] == "It is cold"
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"Oslo"}'


def test_a_streamed_answer_is_drawn_as_a_conversation_and_whole_as_it_came() -> None:
    stream = _stream(_chunk(role="assistant", content="It "), _chunk(content="is cold"))
    assert draw_body(stream).lines[0].plain == "assistant │ It is cold"
    assert draw_body(stream).cuts.told() == "not shown: the stream's events one by one"
    assert draw_body(stream, full=True).lines[0].plain.startswith("data: {")


def test_the_responses_api_s_last_event_is_the_response() -> None:
    response = {"id": "r1", "output": [{"type": "message", "role": "assistant", "content": "cold"}]}
    started = {"type": "response.created", "response": {"id": "r1", "output": []}}
    delta = {"type": "response.output_text.delta", "delta": "co"}
    assert read_stream(_stream(started, delta, {"type": "response.completed", "response": response})) == response
    cut = read_stream(_stream(started, delta))
    assert cut is not None
    assert cut["output"][0]["content"] == "co"


def test_what_is_no_stream_that_we_know_is_left_alone() -> None:
    assert read_stream(b'{"choices": []}') is None
    assert read_stream(b"data: hello\n\n") is None
    assert draw_body(b"data: hello\n\n").lines[0].plain == "data: hello"


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "index", "delta", "tool_calls", "function", "name", "content", "role", "response", "output"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.lists(_JSON, max_size=5), st.integers(0, 200))
def test_any_stream_cut_anywhere_can_be_read(events: list[Any], end: int) -> None:
    read_stream(_stream(*events)[:end])
    draw_body(_stream(*events)[:end])
