from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.views.conversation import conversation

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "input",
                    "messages",
                    "output",
                    "choices",
                    "message",
                    "role",
                    "content",
                    "type",
                    "tool_calls",
                    "response",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def _said(body: Any) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in conversation(body)[0]]


def test_chat_completions_are_read_as_turns() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Oslo?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "cold"},
    ]
    assert _said({"messages": messages}) == [
        ("user", "Oslo?"),
        ("assistant", '→ get_weather({"city": "Oslo"})'),
        ("tool", "cold"),
    ]
    assert _said({"choices": [{"index": 0, "message": messages[1]}]}) == [
        ("assistant", '→ get_weather({"city": "Oslo"})')
    ]


def test_the_responses_api_is_read_as_turns() -> None:
    body = {
        "input": [
            {"role": "user", "content": "Oslo?", "type": "message"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "look it up"}]},
            {"type": "function_call", "name": "get_weather", "arguments": "{}", "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "cold"},
        ],
        "model": "m",
    }
    turns, rest = conversation(body)
    assert [(turn.role, turn.text) for turn in turns] == [
        ("user", "Oslo?"),
        ("reasoning", "look it up"),
        ("assistant", "→ get_weather({})"),
        ("tool", "cold"),
    ]
    assert rest == {"model": "m"}


def test_a_row_gives_its_question_and_its_answer() -> None:
    body = {
        "responses_create_params": {"input": "Oslo?", "temperature": 1},
        "response": {"output": [{"type": "message", "role": "assistant", "content": [{"text": "cold"}]}]},
        "reward": 1.0,
    }
    turns, rest = conversation(body)
    assert [(turn.role, turn.text) for turn in turns] == [("user", "Oslo?"), ("assistant", "cold")]
    assert rest == {"responses_create_params": {"temperature": 1}, "reward": 1.0}


def test_a_list_with_something_unknown_in_it_is_left_whole() -> None:
    body = {"input": [{"role": "user", "content": "hi"}, {"type": "from_the_future"}]}
    assert conversation(body) == ([], body)


@given(_JSON)
def test_reading_never_fails_and_takes_away_only_what_it_tells(body: Any) -> None:
    turns, rest = conversation(body)
    assert turns or rest == body
