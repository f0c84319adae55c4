import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.check.provider_answers import check_answer

USAGE = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}


def chat(message: Any, finish: str = "stop", **more: Any) -> bytes:
    return json.dumps(
        {"object": "chat.completion", "choices": [{"message": message, "finish_reason": finish}], **more}
    ).encode()


def call(arguments: Any, name: str = "f") -> dict[str, Any]:
    return {
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def responses(*output: Any, **more: Any) -> bytes:
    return json.dumps({"object": "response", "output": list(output), **more}).encode()


KEYS = ["choices", "message", "tool_calls", "function", "output", "type", "usage", "content", "error"]
MESSAGE = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "x"}]}


@pytest.mark.parametrize(
    "body",
    [
        chat({"role": "assistant", "content": "4"}, usage=USAGE),
        chat(call('{"city": "sf"}'), "tool_calls"),
        responses(MESSAGE, usage={"input_tokens_details": {}, "output_tokens_details": {}}),
        responses({"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}),
        b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n',
    ],
)
def test_what_gym_parses_has_no_finding(body: bytes) -> None:
    assert check_answer(body) == []


@pytest.mark.parametrize(
    ("body", "rule", "severity", "pointer"),
    [
        (b"", "answer.empty", "error", ""),
        (b"<html>bad gateway</html>", "answer.html", "error", ""),
        (b'{"choices": ', "answer.not_json", "error", ""),
        (b'{"choices": [], "metrics": {"x": NaN}}', "answer.nan", "error", "/metrics/x"),
        (b'{"error": {"message": "no", "code": 502}}', "answer.error_in_200", "error", "/error"),
        (b"{}", "answer.no_choices", "error", "/choices"),
        (b'{"choices": []}', "answer.no_choices", "error", "/choices"),
        (b'{"choices": [{"message": null}]}', "answer.no_message", "error", "/choices/0/message"),
        (chat({"content": None}, usage=USAGE), "answer.content_null", "warning", "/choices/0/message/content"),
        (
            chat({"content": None, "reasoning": "hm"}, "length"),
            "answer.reasoning_only",
            "warning",
            "/choices/0/message/content",
        ),
        (chat(call('{"a": "x')), "answer.arguments", "error", "/choices/0/message/tool_calls/0/function/arguments"),
        (chat(call({"a": 1})), "answer.arguments", "error", "/choices/0/message/tool_calls/0/function/arguments"),
        (responses({"type": "telepathy"}), "answer.item_type", "error", "/output/0/type"),
        (responses(MESSAGE, {"type": "mcp_call"}), "answer.item_type", "warning", "/output/1/type"),
        (responses({"role": "assistant"}), "answer.item_type", "error", "/output/0/type"),
        (responses({"type": "message", "content": None}), "answer.content", "error", "/output/0/content"),
        (b'{"object": "response", "output": null}', "answer.output", "error", "/output"),
        (responses(usage={"input_tokens_details": None}), "answer.usage", "warning", "/usage/input_tokens_details"),
        (b'data: {"error": {"message": "Input is too long"}}\n\n', "answer.error_in_stream", "error", ""),
        (b'data: {"choices": []}\n\n', "answer.stream_cut", "error", ""),
        (b': PROCESSING\n\ndata:{"choices": []}\n\n', "answer.stream_cut", "error", ""),
    ],
)
def test_each_thing_that_gym_cannot_parse_is_named(body: bytes, rule: str, severity: str, pointer: str) -> None:
    assert [(found.rule, found.severity, found.pointer) for found in check_answer(body)] == [(rule, severity, pointer)]


@pytest.mark.parametrize("begin", [b"data: ", b"data:", b": PROCESSING\n\ndata: ", b"id: 1\ndata: "])
def test_a_whole_stream_is_no_broken_json(begin: bytes) -> None:
    """However it begins: a router keeps it alive with comments, and not everyone writes the space."""
    assert check_answer(begin + b'{"choices": []}\n\ndata: [DONE]\n\n') == []


def test_what_only_some_versions_choke_on_is_an_error_once_it_was_followed_by_a_500() -> None:
    (before,) = check_answer(responses({"type": "web_search_call"}))
    (after,) = check_answer(responses({"type": "web_search_call"}), became=500)
    assert (before.severity, after.severity) == ("warning", "error")


@given(st.binary(max_size=80) | st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(KEYS),
        inner, max_size=4),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_body_is_too_odd_for_it(body: bytes) -> None:
    assert all(found.message for found in check_answer(body))
