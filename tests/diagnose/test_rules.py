"""The rules as a whole: well formed, in their layer's module, each proven by a case, and safe on any material."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.diagnose.recorded import exchanges_of

from gymtap.proxy.diagnose import Material, all_rules, diagnose, findings, from_case, from_exchanges
from gymtap.proxy.diagnose.evidence import Seen
from gymtap.proxy.diagnose.rule import Rule
from gymtap.schemas import Call, Layer, Severity, TransportErrorKind

FAILURE_KINDS = {
    "transport_unreachable", "transport_peer_drop", "transport_timeout", "transport_local_resource",
    "agent_run_error", "agent_request_failed", "agent_timeout", "agent_command_not_allowed",
    "judge_failed", "judge_unparseable", "verifier_error",
    "provider_unavailable", "provider_quota_exhausted", "provider_oom_killed",
    "session_lost", "session_expired", "session_release_failed",
    "cancelled", "kill_shaped", "shutdown", "persistence_failed", "cohort_incomplete",
}  # fmt: skip
"""Gym 0.7.0's vocabulary (`nemo_gym.failure_kinds`)."""


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_a_rule_says_what_it_needs_why_what_to_do_and_how_it_is_known(rule: Rule) -> None:
    assert rule.needs
    assert rule.source
    assert rule.cause.endswith(".")
    assert rule.next_action.endswith((".", ")"))
    assert rule.layer not in {Layer.NONE, Layer.UNKNOWN, rule.runner_up}
    assert rule.failure_kind is None or rule.failure_kind in FAILURE_KINDS


def test_rule_ids_are_unique() -> None:
    ids = [rule.id for rule in all_rules()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "layer", [layer for layer in Layer if layer not in {Layer.NONE, Layer.UNKNOWN}], ids=lambda layer: layer.value
)
def test_every_layer_has_a_module_that_holds_only_its_rules(layer: Layer) -> None:
    rules = importlib.import_module(f"gymtap.proxy.diagnose.rules.{layer}").RULES
    assert rules
    assert {rule.layer for rule in rules} == {layer}


FIELDS = ["error", "message", "detail", "choices", "output", "input", "tools", "reward", "response", "failure", "type"]
bodies = st.one_of(
    st.none(),
    st.text(max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(FIELDS),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).map(json.dumps),
)
servers = st.sampled_from(["collector", "environment", "agent", "resources", "model", "provider", "judge_model", "?"])
exchanges = st.builds(
    lambda caller, callee, path, status, sent, got, start, took: {
        "boundary": f"{caller}->{callee}",
        "request": {"method": "POST", "url": f"http://h:1{path}", "body_text": sent},
        "response": None if status is None else {"status": status, "body_text": got},
        "t_ms": start,
        "duration_ms": took,
    },
    servers,
    servers,
    st.sampled_from(["/run", "/verify", "/seed_session", "/v1/responses", "/v1/chat/completions", "/tool", "/"]),
    st.none() | st.sampled_from([200, 400, 401, 404, 422, 429, 500, 502, 504]),
    bodies,
    bodies,
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 50),
)


@given(st.lists(exchanges, max_size=6), st.lists(st.text(max_size=60), max_size=4), st.lists(bodies, max_size=2))
def test_no_material_makes_a_diagnosis_raise(
    recorded: list[dict[str, object]], log: list[str], rows: list[str]
) -> None:
    material = Material(
        exchanges=from_exchanges(recorded), log=tuple(log), rows=tuple(row for row in rows if row is not None)
    )
    diagnosis = diagnose(material)
    assert diagnosis.model_dump_json()
    assert {f.rule for f in diagnosis.findings} == {f.rule for f in findings(material)}


@given(st.lists(st.text(max_size=80), max_size=8))
def test_any_text_is_a_log(lines: list[str]) -> None:
    assert diagnose(Material(log=tuple(lines))).layer in Layer


def test_the_first_exception_wins_over_the_noise_of_the_shutdown_after_it() -> None:
    log = """Traceback (most recent call last):
  File "app.py", line 3, in verify
ValueError: could not convert string to float: 'four'
Traceback (most recent call last):
  File "x.py", line 1, in run
ConnectionRefusedError: [Errno 111] Connection refused
asyncio.exceptions.CancelledError"""
    diagnosis = diagnose(Material(log=tuple(log.splitlines())))
    assert diagnosis.layer is Layer.VERIFIER_RUNTIME
    assert "could not convert string to float" in diagnosis.cause


def test_a_named_cause_wins_over_what_it_caused_even_when_that_came_first_in_the_log() -> None:
    log = ("ConnectionResetError: Connection reset by peer", "torch.OutOfMemoryError: CUDA out of memory.")
    assert diagnose(Material(log=log)).layer is Layer.THROUGHPUT_RESOURCES


def test_a_failure_that_no_rule_knows_is_unknown_not_guessed() -> None:
    recorded = [{"boundary": "?->?", "request": {"url": "/x"}, "response": {"status": 418, "body_text": "teapot"}}]
    diagnosis = diagnose(Material(exchanges=from_exchanges(recorded)))
    assert diagnosis.layer is Layer.UNKNOWN
    assert diagnosis.innermost is not None
    assert diagnosis.innermost.leaf.text == "teapot"


def test_a_poisoned_client_is_said_beside_the_old_error() -> None:
    path = Path(__file__).parents[1] / "data" / "failures" / "p401_then_ok" / "boundaries.jsonl"
    material = Material(exchanges=exchanges_of([json.loads(line) for line in path.read_text().splitlines()]))
    diagnosis = diagnose(material)
    assert "model.poisoned_client" in {finding.rule for finding in diagnosis.findings}
    assert any("without asking the provider" in evidence.text for evidence in diagnosis.evidence)


def test_a_retry_that_succeeded_leaves_a_note_and_no_error() -> None:
    case = json.loads(next((Path(__file__).parent / "cases").glob("*-recovered-429.json")).read_text())
    found = findings(from_case({"exchanges": case["exchanges"]}))
    assert {finding.severity for finding in found} == {Severity.NOTE}


def asked(
    number: int, status: int, model: str = "adapter-v3", said: str = "The model `adapter-v3` does not exist."
) -> Seen:
    body = json.dumps(
        {"error": {"message": said}}
        if status >= 400
        else {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}
    )
    request = json.dumps({"model": model, "messages": [str(number)]})
    return Seen(
        f"p{number}", "model", "provider", Call.PROVIDER, target="/v1/chat/completions", status=status,
        request=request, response=body, started_ms=number * 10.0, duration_ms=5.0, server="h:1",
    )  # fmt: skip


def test_a_model_that_answered_before_is_dropped_by_its_server_and_not_misnamed() -> None:
    assert diagnose(Material(exchanges=(asked(1, 200), asked(2, 404)))).rule == "model.dropped"


@pytest.mark.parametrize(
    "others", [(), (asked(1, 200, model="base"),), (asked(3, 200),)], ids=["none", "base", "later"]
)
def test_a_model_that_has_never_answered_is_misnamed(others: tuple[Seen, ...]) -> None:
    """An answer under another name tells nothing of this one, and one that came later only that it is served by now."""
    assert diagnose(Material(exchanges=(asked(2, 404), *others))).rule == "config.model_name"


RETRY = "[model_retry url=http://h:1/v1/chat/completions status=503 kind=http_error try=1 max_tries=3 error_msg=busy]"


def test_a_retry_in_the_log_is_a_note_where_the_recording_shows_the_answer() -> None:
    mended = (replace(asked(1, 503, said="busy"), request="{}"), replace(asked(2, 200), request="{}"))
    found = findings(Material(exchanges=mended, log=(RETRY,)))
    assert {finding.severity for finding in found} == {Severity.NOTE}


def test_a_retry_in_the_log_counts_where_the_recording_shows_no_answer_or_another_address() -> None:
    unanswered = (asked(1, 503, said="busy"),)
    elsewhere = (replace(asked(1, 200), server="h:2"),)
    for exchanges in (unanswered, elsewhere):
        found = findings(Material(exchanges=exchanges, log=(RETRY,)))
        assert any(f.severity is Severity.ERROR and f.exchange is None for f in found)


def dropped(number: int, parent: str | None = "m") -> Seen:
    return Seen(
        f"p{number}", "model", "provider", Call.PROVIDER, request="{}", error=TransportErrorKind.CLOSED,
        started_ms=number * 500.0, parent=parent,
    )  # fmt: skip


def test_a_request_that_is_dropped_time_after_time_is_said_to_go_on_without_end() -> None:
    waiting = Seen("m", "agent", "model", Call.MODEL, request="{}", is_open=True, started_ms=0.0)
    found = diagnose(Material(exchanges=(waiting, *(dropped(number) for number in range(7)))))
    assert found.rule == "infra.endless_reconnect"
    assert "7 tries in 3 s" in found.cause
    assert found.exchange == "p0"


def test_three_dropped_tries_are_no_endless_reconnect_and_neither_are_those_of_different_callers() -> None:
    few = diagnose(Material(exchanges=tuple(dropped(number) for number in range(3))))
    several = diagnose(Material(exchanges=tuple(dropped(number, parent=f"m{number}") for number in range(7))))
    assert {few.rule, several.rule} == {"infra.dropped"}


@pytest.mark.parametrize(("status", "rule"), [(200, "verifier.judge_filtered"), (500, "data.content_policy")])
def test_a_filtered_judge_is_the_verifiers_where_it_scored_and_the_rows_where_it_did_not(
    status: int, rule: str
) -> None:
    refused = json.dumps({"error": {"message": "Blocked by the content filter.", "code": "content_filter"}})
    passed_on = json.dumps(f"Hit an exception in Rubric___rubric calling an inner server: {refused.encode()!r}")
    verify = Seen(
        "v", "agent", "resources", Call.VERIFY, target="/verify", status=status, request="{}",
        response='{"reward": 0.0}' if status < 400 else passed_on, started_ms=0.0, duration_ms=50.0,
    )  # fmt: skip
    provider = Seen(
        "p", "judge_model", "provider", Call.PROVIDER, judge=True, status=400, request="{}", response=refused,
        started_ms=10.0, duration_ms=5.0, parent="v",
    )  # fmt: skip
    assert diagnose(Material(exchanges=(verify, provider))).rule == rule
