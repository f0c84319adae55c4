"""Ids that link turns."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.attribution import lineage

CALL = "call_9c3f6b77"
RESPONSE = "resp_f3af0248ea094d2c931cf47a74a7f545"


@pytest.mark.parametrize("name", [CALL, RESPONSE, "chatcmpl-tool-2dd035625d534d6b", "toolu_01A09q90qw90lq917835lq9"])
def test_random_ids_are_distinctive(name: str) -> None:
    """An id that can have been made only once links turns."""
    assert lineage.is_distinctive(name)


@pytest.mark.parametrize("name", ["call_0", "functions.get_weather:0", "call_1", "", "get_weather", "call_1796008634"])
def test_counted_ids_are_not(name: str) -> None:
    """An id that every conversation may make links nothing: a counter, a name, a time."""
    assert not lineage.is_distinctive(name)


RESPONSES_MADE = {"id": RESPONSE, "output": [{"type": "function_call", "call_id": CALL, "name": "f"}]}
CHAT_MADE = {"id": "chatcmpl-1", "choices": [{"message": {"tool_calls": [{"id": CALL}]}}]}
ANTHROPIC_MADE = {"id": "msg_1", "content": [{"type": "tool_use", "id": CALL}]}
RESPONSES_USED = {"input": [{"role": "user"}, {"type": "function_call_output", "call_id": CALL}]}
CHAT_USED = {"messages": [{"role": "tool", "tool_call_id": CALL}]}
ANTHROPIC_USED = {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL}]}]}


@pytest.mark.parametrize("made", [RESPONSES_MADE, CHAT_MADE, ANTHROPIC_MADE])
@pytest.mark.parametrize("used", [RESPONSES_USED, CHAT_USED, ANTHROPIC_USED])
def test_made_in_one_api_and_used_in_another(made: object, used: object) -> None:
    """A tool call's id links turns across all three APIs."""
    assert set(lineage.used(used)) <= set(lineage.made(made))
    assert lineage.used(used)


def test_previous_response_is_used() -> None:
    """previous_response_id names the turn before."""
    assert lineage.used({"previous_response_id": RESPONSE}) == lineage.made({"id": RESPONSE})


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["short", CALL, RESPONSE]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                ["id", "output", "choices", "message", "tool_calls", "input", "messages", "content", "call_id"]
            ),
            inner,
        )
    ),
)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(body=json)
def test_any_body_is_read(body: Any) -> None:
    """No JSON, of whatever shape, raises; and what it names are ids that stand in it, no short names."""
    named = {*lineage.made(body), *lineage.used(body)}
    assert named <= {token for one in (CALL, RESPONSE) if one in str(body) for token in lineage.made({"id": one})}
