"""The unwrapper finds the innermost body of any chain, whole or cut, and never trusts what it reads."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.unwrap import innermost_bytes, unwrap
from gymtap.schemas import LeafKind

MARKER = b'"Hit an exception in '


def as_gym_wraps(body: bytes, server: str = "SimpleAgent___my_agent") -> bytes:
    """A Gym 0.5 to 0.7 server's 500 for an inner server that answered `body`."""
    text = f"Hit an exception in {server} calling an inner server: {body!r}"
    return json.dumps(text, ensure_ascii=False).encode()


def wrapped(body: bytes, times: int) -> bytes:
    for number in range(times):
        body = as_gym_wraps(body, f"Class___server_{number}")
    return body


bodies = st.one_of(
    st.binary(max_size=80),
    st.text(alphabet="'\"\\bx4n{}é\n… ", max_size=40).map(lambda text: text.encode()),
    st.text(max_size=40).map(lambda text: json.dumps({"error": {"message": text}}).encode()),
).filter(
    lambda body: (
        not body.startswith((b"b'", b'b"', b"Response", b"Hit", b'"')) and not body.rstrip().endswith("…".encode())
    )
)


@given(bodies, st.integers(0, 5))
def test_what_gym_wrapped_any_number_of_times_comes_back_byte_for_byte(body: bytes, times: int) -> None:
    assert innermost_bytes(wrapped(body, times)) == (body, False)


@given(bodies, st.integers(1, 5))
def test_each_wrapper_names_its_server_outermost_first(body: bytes, times: int) -> None:
    chain = unwrap(wrapped(body, times)).wrappers[:times]
    assert [wrapper.server for wrapper in chain] == [f"Class___server_{number}" for number in reversed(range(times))]


@given(bodies, st.integers(1, 4), st.data())
def test_a_chain_cut_anywhere_says_so_and_gives_the_prefix(body: bytes, times: int, data: st.DataObject) -> None:
    whole = wrapped(body, times).decode()
    at = data.draw(st.integers(2, len(whole) - 1))
    for mark in ("", "…"):
        recovered, truncated = innermost_bytes(whole[:at] + mark)
        assert truncated
        assert body.startswith(recovered)
        assert unwrap(whole[:at] + mark).truncated


@given(
    st.one_of(st.binary(max_size=300), st.text(max_size=300), st.text(alphabet="'\"\\b{}[]:,error Hit…(", max_size=200))
)
def test_no_input_raises_and_every_answer_can_be_written_as_json(body: bytes | str) -> None:
    unwrap(body).model_dump_json()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists, max_leaves=10))
def test_json_that_is_no_envelope_is_its_own_leaf(found: object) -> None:
    body = json.dumps([found]).encode()
    leaf = unwrap(body).leaf
    assert (leaf.kind, leaf.value) == (LeafKind.JSON, json.loads(body))


@pytest.mark.parametrize(
    "hostile", ['{"a":', "b'", '"\\', "{'", "Hit an exception in ", "data: {\n", "X: ", "{{", '\\"{"']
)
def test_time_grows_with_the_size_not_with_its_square(hostile: str, is_linear: Callable[..., bool]) -> None:
    assert is_linear(unwrap, hostile * 50_000)


PROVIDER = {"error": {"message": "no such model", "type": "NotFoundError", "param": None, "code": 404}}
PYDANTIC = "1 validation error for Answer\nreward\n  Field required [type=missing, input_value={}]"
LITELLM = {"error": {"message": f"litellm.BadRequestError: OpenAIException - {json.dumps(PROVIDER)}", "code": "400"}}
ANTHROPIC = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
VALIDATION = '{"detail":[{"type":"missing","loc":["body","expected_answer"],"msg":"Field required","input":{}}]}'
TYPED = '{"result":null,"failure":{"failure_reason":"seed died","terminal":true,"failure_kind":"session_lost"}}'
OPENROUTER = '{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":%s}}}'
STREAM = 'data: {"choices":[]}\n\ndata: {"error":{"message":"engine died","code":500}}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("body", "kind", "message", "code"),
    [
        (json.dumps(PROVIDER), "provider_error", "no such model", "404"),
        ('{"object":"error","message":"too long","code":400}', "provider_error", "too long", "400"),
        ('{"error":"backend is down"}', "provider_error", "backend is down", None),
        ('{"statusCode":429,"message":"Slow down."}', "provider_error", "Slow down.", None),
        (ANTHROPIC, "provider_error", "Overloaded", "overloaded_error"),
        ('{"status":404,"title":"Not Found","detail":"No function x"}', "provider_error", "No function x", "404"),
        ('[{"error":{"code":429,"message":"Exhausted."}}]', "provider_error", "Exhausted.", "429"),
        ('{"fault":{"faultstring":"Quota violation"}}', "provider_error", "Quota violation", None),
        ('{"message":"Input is too long."}', "json", "Input is too long.", None),
        ('{"content":[{"type":"text","text":"no such tool"}],"isError":true}', "json", "no such tool", None),
        (OPENROUTER % '"rate-limited upstream"', "provider_error", "rate-limited upstream", "429"),
        (OPENROUTER % json.dumps(json.dumps(PROVIDER)), "provider_error", "no such model", "404"),
        ('{"detail":"Not Found"}', "detail", "Not Found", None),
        (VALIDATION, "detail", "body.expected_answer: Field required", "missing"),
        (TYPED, "failure", "seed died", "session_lost"),
        ("\"KeyError('choices')\"", "exception", "KeyError('choices')", "KeyError"),
        ('"ResponseValidationError()"', "exception", "ResponseValidationError()", "ResponseValidationError"),
        (json.dumps(PYDANTIC), "exception", f"Answer: reward: {PYDANTIC.splitlines()[2].strip()}", "ValidationError"),
        (
            "Traceback (most recent call last):\n  File 'a.py'\nValueError: bad",
            "exception",
            "ValueError: bad",
            "ValueError",
        ),
        ("<html><head><title>502 Bad Gateway</title></head></html>", "html", "502 Bad Gateway", None),
        ("upstream connect error", "text", "upstream connect error", None),
        ("", "empty", "", None),
        (b"\xff\xfe\x00\x81\x00", "undecodable", "", None),
        (STREAM, "provider_error", "engine died", "500"),
        (f"event: error\ndata: {ANTHROPIC}\n\n", "provider_error", "Overloaded", "overloaded_error"),
        (json.dumps(LITELLM), "provider_error", "no such model", "404"),
        (f'BadRequestError("Error code: 400 - {PROVIDER!r}")', "provider_error", "no such model", "404"),
        (f"openai.NotFoundError: Error code: 404 - {PROVIDER!r}", "provider_error", "no such model", "404"),
        (json.dumps({"detail": f"judge said: {json.dumps(PROVIDER)}"}), "provider_error", "no such model", "404"),
    ],
)
def test_every_form_of_leaf_is_told_by_its_kind_message_and_code(
    body: str | bytes, kind: str, message: str, code: str | None
) -> None:
    leaf = unwrap(body).leaf
    assert (leaf.kind, leaf.message, leaf.code) == (kind, message, code)


def test_a_debug_log_line_is_peeled_like_the_body_it_prints() -> None:
    body = wrapped(b'{"detail":"it\'s gone"}', 2)
    for line in (f"(chaos) Response content: {body!r}", f"Response content: {body.decode()[:60]}…"):
        found = unwrap(line)
        assert found.wrappers[0].kind == "log"
    assert unwrap(f"(chaos) Response content: {body!r}").leaf.message == "it's gone"


def test_a_sidecar_row_is_peeled_from_its_cut_body() -> None:
    body = wrapped(json.dumps({"error": {"message": "Grammar error: " + "x" * 3_000}}).encode(), 3).decode()
    found = unwrap(json.dumps({"_ng_failure_response_body": body[:2_000] + "…"}))
    assert found.truncated
    assert found.wrappers[0].kind == "sidecar"
    assert found.leaf.message.startswith("Grammar error: xxx")


def test_a_chain_inside_another_servers_message_is_followed() -> None:
    inner = wrapped(json.dumps(PROVIDER).encode(), 1).decode()
    found = unwrap(json.dumps({"detail": f"judge call failed with {inner}"}))
    assert found.leaf.message == "no such model"
    assert [wrapper.kind for wrapper in found.wrappers] == ["detail", "gym"]


SAMPLES = Path(__file__).parents[3] / "shared" / "gym" / "samples" / "failures"


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded Gym failures are not beside the repository")
def test_recorded_gym_chains_end_in_the_body_that_the_innermost_server_sent() -> None:
    checked = 0
    for path in sorted(SAMPLES.glob("*/boundaries.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        failed = [r for r in records if (r.get("status") or 0) >= 400 and r["hop"] in {"provider", "chaos"}]
        runs = [r for r in records if r["path"] == "/run" and (r.get("status") or 0) >= 500]
        if failed and runs:
            leaf, truncated = innermost_bytes(runs[-1]["resp_body"])
            assert (leaf.decode(), truncated) == (failed[-1]["resp_body"], False), path
            checked += 1
    assert checked >= 12
