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
    body = json.dumps({**RESPONSE, "output": [{"type": "web_search_call"}]}).encode()
    (before,), (after,) = check_answer(body), check_answer(body, became=500)
    assert (before.severity, after.severity) == ("warning", "error")


RESPONSE = {
    "id": "r", "object": "response", "created_at": 1.5, "model": "m", "parallel_tool_calls": True,
    "tool_choice": "auto", "tools": [],
}  # fmt: skip
TEXT = {"type": "output_text", "text": "x", "annotations": []}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def completion(**more: Any) -> dict[str, Any]:
    """A Chat Completion that Gym 0.7 takes, but for what is said otherwise."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}


def chose(message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "x", **(message or {})}
    return completion(choices=[{"index": 0, "message": said, "finish_reason": "stop", **more}])


def put_out(**item: Any) -> dict[str, Any]:
    return {**RESPONSE, "output": [item]}


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (completion(id=None), "/id"),
        (completion(object="chat.completion.chunk"), "/object"),
        (completion(created="2024-01-01"), "/created"),
        (completion(service_tier="on_demand"), "/service_tier"),
        (completion(usage={"total_tokens": 2}), "/usage/completion_tokens"),
        (completion(usage={**USAGE, "completion_tokens": 1.5}), "/usage/completion_tokens"),
        (chose(finish_reason="eos"), "/choices/0/finish_reason"),
        (chose(finish_reason=None), "/choices/0/finish_reason"),
        (chose(index=None), "/choices/0/index"),
        (chose({"role": "model"}), "/choices/0/message/role"),
        (chose({"tool_calls": {}}), "/choices/0/message/tool_calls"),
        (chose({"tool_calls": [{**CALL, "type": "tool_use"}]}), "/choices/0/message/tool_calls/0/type"),
        (chose({"tool_calls": [{**CALL, "id": None}]}), "/choices/0/message/tool_calls/0/id"),
        (chose({"reasoning_content": "hm"}), "/choices/0/message/reasoning_content"),
        ({**RESPONSE, "output": [], "tools": None}, "/tools"),
        ({**RESPONSE, "output": [], "status": "done"}, "/status"),
        ({**RESPONSE, "output": [], "incomplete_details": {"reason": "length"}}, "/incomplete_details/reason"),
        ({**RESPONSE, "output": [], "usage": {"input_tokens": 1}}, "/usage/input_tokens_details"),
        (put_out(type="message", content=[TEXT]), "/output/0/id"),
        (put_out(type="message", id="m", content=[TEXT], status=None), "/output/0/status"),
        (put_out(type="message", id="m", content=[{**TEXT, "annotations": None}]), "/output/0/content/0/annotations"),
        (put_out(type="reasoning", id="r", summary=None), "/output/0/summary"),
        (put_out(type="reasoning", id="r", summary=["x"]), "/output/0/summary/0"),
        (put_out(type="message", id="m", content="x"), "/output/0/content"),
    ],
)
def test_what_a_real_gym_answers_500_to_is_named_and_blamed_once_it_did(value: dict[str, Any], pointer: str) -> None:
    """Each was sent to nemo-gym 0.7.0's own model server, which answered 500 (the last, and reasoning, to some)."""
    found = check_answer(json.dumps(value).encode(), became=500)
    assert pointer in [one.pointer for one in found if one.severity == "error"]
    by_itself = check_answer(json.dumps(value).encode(), became=200)
    assert not [one for one in by_itself if one.severity == "error"]


@pytest.mark.parametrize(
    "value",
    [
        completion(usage=None, service_tier=None, system_fingerprint="fp_ollama", prompt_filter_results=[]),
        completion(created=1.0, usage={**USAGE, "prompt_tokens_details": None, "reasoning_tokens": 0}),
        chose({"tool_calls": None, "refusal": None, "annotations": [], "function_call": None}),
        chose({"content": None, "tool_calls": [{**CALL, "index": -1}]}, finish_reason="tool_calls", matched_stop=2),
        chose(logprobs={}, index="0", stop_reason=None),
        put_out(type="message", id="m", content=[{**TEXT, "logprobs": None}]),
        put_out(type="function_call", name="f", call_id="c", arguments="{}", status=None, namespace=None),
        put_out(type="reasoning", id="r", summary=[], content=[{"type": "reasoning_text", "text": "x"}], status=None),
    ],
)
def test_what_a_real_gym_takes_is_blamed_for_no_500(value: dict[str, Any]) -> None:
    """Answers like those of SGLang, TensorRT-LLM, Ollama, llama.cpp, Azure; nemo-gym 0.7.0 took each."""
    assert check_answer(json.dumps(value).encode(), became=500) == []


def test_a_stream_is_blamed_once_a_model_server_ended_over_it() -> None:
    body = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n'
    assert [one.rule for one in check_answer(body, became=500)] == ["answer.stream"]


@given(st.binary(max_size=80) | st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(KEYS),
        inner, max_size=4),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_body_is_too_odd_for_it(body: bytes) -> None:
    assert all(found.message for found in check_answer(body))
