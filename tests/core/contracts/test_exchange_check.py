"""Exchanges against contracts, as transcripts: which side is blamed, how badly, and at which place."""

import math
from typing import Any

import pytest

from gymtap.proxy.core.contracts.exchange_check import Callee, check_request, check_response, rejected
from gymtap.proxy.core.contracts.openapi import Contract
from gymtap.schemas import Call, Severity

ROW = {"responses_create_params": {"input": "hi"}, "expected_answer": "A", "options": [{"A": "x"}]}
RESPONSE = {
    "id": "resp_1",
    "created_at": 0.0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
ANSWER = {"responses_create_params": {"input": "hi"}, "response": RESPONSE, "reward": 1.0}


def missing(*loc: Any) -> dict[str, Any]:
    return {"type": "missing", "loc": ["body", *loc], "msg": "Field required", "input": {}}


@pytest.mark.parametrize("known", [True, False])
def test_a_422_is_an_error_at_the_servers_own_place(flow: Any, chaos: Contract, known: bool) -> None:
    """FastAPI's detail is the finding, with the model's word for the field where the contract is known."""
    asked = {key: value for key, value in ROW.items() if key != "expected_answer"}
    refused = flow(Call.VERIFY, "/verify", asked, 422, {"detail": [missing("expected_answer")]})
    (one,) = check_request(refused, chaos if known else None)
    assert (one.rule, one.severity, one.pointer) == ("contract.request", Severity.ERROR, "/expected_answer")
    assert one.expected == ("string" if known else "a value")
    assert one.message == "chaos answers 422 to POST /verify: expected_answer is missing"
    assert one.fix == "Add expected_answer to the dataset's row, or give it a default in the server's model."


def test_a_422_for_a_type_shows_what_was_there(flow: Any, chaos: Contract) -> None:
    detail = [{"type": "list_type", "loc": ["body", "options"], "msg": "Input should be a valid list", "input": "no"}]
    refused = flow(Call.VERIFY, "/verify", {**ROW, "options": "no" * 500}, 422, {"detail": detail})
    (one,) = check_request(refused, chaos)
    assert (one.pointer, one.expected) == ("/options", "list of object")
    assert one.found is not None
    assert len(one.found) <= 120
    assert one.fix == "Make options in the dataset's row a list of object."
    assert one.message == "chaos answers 422 to POST /verify: options: Input should be a valid list"


def test_a_422_of_a_tool_is_the_tools_to_mend(flow: Any, chaos: Contract) -> None:
    refused = flow(Call.TOOL, "/get_weather", {"wrong": 1}, 422, {"detail": [missing("city")]})
    (one,) = check_request(refused, chaos)
    assert one.pointer == "/city"
    assert one.fix is not None
    assert "tool's parameters" in one.fix


def test_a_422_below_response_is_the_agents(flow: Any, chaos: Contract) -> None:
    refused = flow(Call.VERIFY, "/verify", {**ROW, "response": {}}, 422, {"detail": [missing("response", "output")]})
    (one,) = check_request(refused, chaos)
    assert one.pointer == "/response/output"
    assert one.fix is not None
    assert "agent's answer" in one.fix


def test_a_422_for_a_query_has_no_place_in_the_body(flow: Any) -> None:
    detail = [{"type": "missing", "loc": ["query", "limit"], "msg": "Field required", "input": None}]
    (one,) = check_request(flow(Call.TOOL, "/search", {}, 422, {"detail": detail}), None)
    assert (one.pointer, one.message) == (None, "chaos answers 422 to POST /search: query.limit: Field required")


def test_a_422_in_other_words_is_explained_by_the_contract(flow: Any, chaos: Contract) -> None:
    """A handler of its own may hide the detail; the model still says which field."""
    asked = {**ROW, "response": RESPONSE, "options": 7}
    (one,) = check_request(flow(Call.VERIFY, "/verify", asked, 422, {"error": "bad"}), chaos)
    assert (one.severity, one.pointer, one.expected) == (Severity.ERROR, "/options", "list of object")


def test_what_was_accepted_is_a_warning_at_most(flow: Any, chaos: Contract) -> None:
    asked = {**ROW, "response": RESPONSE, "options": 7}
    (one,) = check_request(flow(Call.VERIFY, "/verify", asked, 200, ANSWER), chaos)
    assert (one.severity, one.fix) == (Severity.WARNING, None)


def test_what_pydantic_mends_is_a_note(flow: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "on": {"type": "boolean"}}}
    body = {"content": {"application/json": {"schema": schema}}}
    contract = Contract({"paths": {"/f": {"post": {"requestBody": body}}}}, "x")
    found = check_request(flow(Call.TOOL, "/f", {"n": "3", "on": 1}, 200, {}), contract)
    assert [(one.pointer, one.severity) for one in found] == [("/n", Severity.NOTE), ("/on", Severity.NOTE)]


def test_a_redacted_value_breaks_no_contract(flow: Any) -> None:
    """What stands in for a secret is not what the server saw."""
    schema = {"type": "object", "properties": {"api_key": {"type": "integer"}}}
    body = {"content": {"application/json": {"schema": schema}}}
    contract = Contract({"paths": {"/f": {"post": {"requestBody": body}}}}, "x")
    assert check_request(flow(Call.TOOL, "/f", {"api_key": "<redacted>"}, 200, {}), contract) == []


def test_the_rollouts_prefix_is_no_part_of_the_route(flow: Any, chaos: Contract) -> None:
    asked = {**ROW, "response": RESPONSE, "options": 7}
    assert check_request(flow(Call.VERIFY, "/ng-rollout/0-0/verify", asked, 200, ANSWER), chaos) != []


def test_a_healthy_exchange_is_silent(flow: Any, chaos: Contract, agent: Contract) -> None:
    good = flow(Call.VERIFY, "/verify", {**ROW, "response": RESPONSE}, 200, ANSWER)
    assert check_request(good, chaos) == []
    assert check_response(good, chaos, agent) == []


@pytest.mark.parametrize(
    ("answer", "severity", "found"),
    [
        ({"score": 1.0}, Severity.ERROR, None),
        ({"reward": None}, Severity.ERROR, "null"),
        ({"reward": "high"}, Severity.ERROR, '"high"'),
        ({"reward": [1.0]}, Severity.ERROR, "[1.0]"),
        ({"reward": "0.5"}, Severity.WARNING, '"0.5"'),
        ({"reward": True}, Severity.WARNING, "true"),
        (b'{"reward": NaN}', Severity.ERROR, "nan"),
        (b'{"reward": -Infinity}', Severity.ERROR, "-inf"),
    ],
)
def test_a_verifier_without_a_score_is_blamed(flow: Any, answer: Any, severity: Severity, found: str | None) -> None:
    """Known from Gym itself: needs no contract. The agent fails over it and looks guilty."""
    (one,) = check_response(flow(Call.VERIFY, "/verify", ROW, 200, answer), None)
    assert (one.rule, one.severity, one.pointer, one.found) == ("contract.reward", severity, "/reward", found)


@pytest.mark.parametrize("answer", ["plain string", [1], b"<html>", None])
def test_a_verifiers_answer_that_is_no_object_says_all(flow: Any, chaos: Contract, answer: Any) -> None:
    (one,) = check_response(flow(Call.VERIFY, "/verify", ROW, 200, answer), chaos)
    assert (one.rule, one.pointer) == ("contract.reward", "")


@pytest.mark.parametrize("reward", [0, 1, 0.25, -3])
def test_every_finite_number_is_a_score(flow: Any, reward: float) -> None:
    assert math.isfinite(reward)
    assert check_response(flow(Call.VERIFY, "/verify", ROW, 200, {"reward": reward}), None) == []


def test_what_the_agent_will_refuse_is_an_error_of_the_verifiers(flow: Any, chaos: Contract, agent: Contract) -> None:
    """The answer to /verify becomes the answer to /run, whose model the agent publishes."""
    answer = {**ANSWER, "response": {**RESPONSE, "output": "text"}}
    found = check_response(flow(Call.VERIFY, "/verify", ROW, 200, answer), chaos, agent)
    assert [(one.pointer, one.severity) for one in found] == [("/response/output", Severity.ERROR)]
    assert "agent will refuse it as SimpleAgentVerifyResponse" in found[0].message


def test_an_answer_that_breaks_only_its_own_model_is_a_warning(flow: Any, chaos: Contract) -> None:
    answer = {**ANSWER, "mask_sample": "perhaps"}
    (one,) = check_response(flow(Call.VERIFY, "/verify", ROW, 200, answer), chaos)
    assert (one.rule, one.severity, one.pointer) == ("contract.response", Severity.WARNING, "/mask_sample")


def test_a_hidden_response_error_is_said_with_what_was_required(flow: Any, chaos: Contract) -> None:
    """FastAPI's `ResponseValidationError()` names no field; the model says which there are."""
    (one,) = check_response(flow(Call.VERIFY, "/verify", ROW, 500, "ResponseValidationError()"), chaos)
    assert (one.rule, one.severity) == ("contract.response_model", Severity.ERROR)
    assert one.expected is not None
    assert "reward" in one.expected


def test_a_nan_that_could_not_be_written_is_named(flow: Any) -> None:
    text = "ValueError('Out of range float values are not JSON compliant: nan')"
    (one,) = check_response(flow(Call.VERIFY, "/verify", ROW, 500, text), None)
    assert (one.rule, one.pointer) == ("contract.response_model", "/reward")


def test_an_agents_refusal_names_the_verifier(flow: Any) -> None:
    """Gym 0.7's simple_agent answers /run with pydantic's text, which names only the agent's own class."""
    text = (
        "1 validation error for SimpleAgentVerifyResponse\nreward\n  Field required [type=missing, "
        "input_value={'response': {}}, input_type=dict]\n    For further information visit https://errors.pydantic.dev"
    )
    (one,) = rejected(flow(Call.RUN, "/run", ROW, 500, text, server="agent"), Callee("a9", "chaos"))
    assert (one.rule, one.severity, one.pointer) == ("contract.rejected_answer", Severity.ERROR, "/reward")
    assert "chaos" in one.message
    assert "a9" in one.message
    assert rejected(flow(Call.RUN, "/run", ROW, 500, "KeyError('x')"), None) == []


def test_only_posts_to_gyms_servers_are_looked_at(flow: Any, chaos: Contract) -> None:
    for call in (Call.PROVIDER, Call.HEALTH, Call.OTHER):
        assert check_request(flow(call, "/verify", {}, 422, {"detail": [missing("x")]}), chaos) == []
        assert check_response(flow(call, "/verify", {}, 200, "text"), chaos) == []
