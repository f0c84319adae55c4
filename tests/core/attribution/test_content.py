"""Conversations compared."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.attribution import content

RESPONSES = {
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "sf?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "cold"},
    ],
}
CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "sf?"},
        {
            "role": "assistant",
            "content": "<think>hm</think>",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "cold"},
    ],
    "temperature": 0.7,
}


def test_conversion_keeps_the_digest() -> None:
    """A Responses request and the chat request that a model server makes of it are one conversation."""
    assert content.prefixes(RESPONSES) == content.prefixes(CHAT)


def test_conversation_begins_with_its_earlier_turns() -> None:
    """A later turn's prefixes have the whole of an earlier one; another conversation's have not."""
    first = {"input": RESPONSES["input"][:1], "instructions": "Be brief."}
    (*_, whole), later = content.prefixes(first) or [], content.prefixes(RESPONSES)
    assert later is not None
    assert whole in later
    assert whole not in (content.prefixes({"input": "la?"}) or [])


def test_nothing_to_compare() -> None:
    """What is no conversation has no digest."""
    assert content.prefixes(None) is content.prefixes({}) is content.prefixes({"input": []}) is None


def test_answers_in_all_apis() -> None:
    """The same text is the same answer in Responses, Chat and Messages."""
    responses = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "cold "}]}]}
    chat = {"choices": [{"message": {"content": "cold"}}]}
    messages = {"type": "message", "content": [{"type": "text", "text": "cold"}]}
    assert content.answer(responses) == content.answer(chat) == content.answer(messages) == "cold"
    assert content.answer({"output": []}) == content.answer("odd") == ""


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                ["input", "messages", "content", "text", "type", "output", "choices", "message", "tool_calls"]
            ),
            inner,
        )
    ),
)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(body=json)
def test_any_body_is_read(body: Any) -> None:
    """No JSON, of whatever shape, raises."""
    assert content.prefixes(body) is None or len(content.prefixes(body) or ()) > 0
    assert isinstance(content.answer(body), str)
