"""Answers of endpoints, most of them as vLLM 0.32 really gave them, and what they mean."""

import json
from pathlib import Path

import pytest

from gymtap.proxy.preflight.answers import MAX_MESSAGE_CHARS, Outcome, read_answer

RECORDED = Path(__file__).parents[3] / "shared" / "vllm" / "error_bodies.json"


def vllm(status: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": {"message": message, "type": "t", "param": None, "code": status}}).encode()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (vllm(400, "Invalid grammar specification: 'triggers'"), Outcome.SCHEMA),
        (vllm(400, "Invalid structural tag specification."), Outcome.SCHEMA),
        (vllm(400, "Grammar error: Unknown type: str"), Outcome.SCHEMA),
        (
            vllm(400, "The provided JSON schema contains features not supported by xgrammar."),
            Outcome.SCHEMA,
        ),
        (
            vllm(400, "1 validation error:\n  {'type': 'dict_type', 'loc': 'body.tools.0.function.parameters'}"),
            Outcome.SCHEMA,
        ),
        (vllm(400, 'tool_choice=function "f" requires --tool-call-parser to be set'), Outcome.PARSER),
        (vllm(400, "This model's maximum context length is 2048 tokens. However"), Outcome.CONTEXT),
        (vllm(400, "tiny is not a multimodal model"), Outcome.REQUEST),
        (vllm(404, "The model `nope` does not exist. Valid aliases: tiny."), Outcome.MODEL),
        (vllm(500, "Internal server error"), Outcome.SERVER),
        ((404, b'{"detail":"Not Found"}'), Outcome.PATH),
        ((401, b'{"error":"Unauthorized"}'), Outcome.AUTH),
        ((403, b"<html>no</html>"), Outcome.AUTH),
        ((429, b""), Outcome.BUSY),
        ((502, b"<html>Bad Gateway</html>"), Outcome.BUSY),
        ((200, b'{"error":{"message":"quota","code":429}}'), Outcome.BUSY),
        ((200, b'{"choices":[]}'), Outcome.INCOMPLETE),
        ((200, b"not json"), Outcome.NOT_CHAT),
        ((200, b"<html>Log in</html>"), Outcome.NOT_CHAT),
        ((200, b""), Outcome.NOT_CHAT),
        ((200, b'data: {"choices":[{"delta":{}}]}\n\n'), Outcome.NOT_CHAT),
        ((200, b'{"data":[]}'), Outcome.NOT_CHAT),
        ((302, b"redirects to /login"), Outcome.PATH),
        ((200, b'{"choices":[{"message":{"content":""},"finish_reason":"length"}]}'), Outcome.ACCEPTED),
        ((200, b'{"choices":[{"message":{"content":null},"finish_reason":"tool_calls"}]}'), Outcome.ACCEPTED),
    ],
)
def test_outcome(answer: tuple[int, bytes], outcome: Outcome) -> None:
    """A schema's refusal is told from what a server is, and from a generation that was cut after its token."""
    assert read_answer(*answer).outcome is outcome


def test_a_message_is_one_bounded_line() -> None:
    answer = read_answer(*vllm(400, "a\n" + "b" * 1000))
    assert "\n" not in answer.message
    assert len(answer.message) == MAX_MESSAGE_CHARS


@pytest.mark.skipif(not RECORDED.is_file(), reason="the recorded vLLM answers are not in this checkout")
def test_recorded_answers_are_told_apart() -> None:
    """No real error is taken for a good answer, no missing flag for a schema, and no model for a path."""
    seen = {}
    for one in json.loads(RECORDED.read_bytes()):
        if (one["status"] or 0) >= 400:
            body = one["body"] if isinstance(one["body"], str) else json.dumps(one["body"])
            seen[one["name"], one["server"]] = read_answer(one["status"], body.encode()).outcome
    assert not {Outcome.ACCEPTED, Outcome.INCOMPLETE, Outcome.TRANSPORT} & set(seen.values())
    assert {outcome for (_, server), outcome in seen.items() if server == "plain_noparser"} == {Outcome.PARSER}
    assert Outcome.MODEL in seen.values()
