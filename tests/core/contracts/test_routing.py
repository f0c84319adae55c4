"""Tools against routes: what is not there, what does not fit, and who is to blame for a call into nothing."""

from typing import Any

import pytest

from gymtap.proxy.core.contracts.openapi import Contract
from gymtap.proxy.core.contracts.routing import Tool, check_call, check_tools, tools_of
from gymtap.schemas import Call, Finding, Severity

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def row(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"responses_create_params": {"input": "x", "tools": list(tools)}}


def tool(name: str = "get_weather", parameters: Any = CITY) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": parameters, "strict": True}


def shape(found: list[Finding]) -> list[tuple[str, Severity, str | None]]:
    return [(one.rule, one.severity, one.pointer) for one in found]


def test_tools_that_fit_are_silent(chaos: Contract) -> None:
    assert check_tools(tools_of(row(tool(), tool("boom", {"type": "object"}))), chaos) == []


def test_a_tool_without_a_route_is_named_beside_those_that_are_there(chaos: Contract) -> None:
    (one,) = check_tools(tools_of(row(tool(), tool("get_wether"))), chaos)
    assert shape([one]) == [("routing.no_route", Severity.WARNING, "/responses_create_params/tools/1/name")]
    assert one.expected == "one of get_weather, boom"


def test_a_catch_all_takes_any_tool() -> None:
    contract = Contract({"paths": {"/{path}": {"post": {}}}}, "workplace")
    assert check_tools(tools_of(row(tool("email_reply"))), contract) == []


@pytest.mark.parametrize(
    ("parameters", "severity", "place"),
    [
        ({"type": "object", "properties": {}}, Severity.ERROR, "properties/city"),
        (None, Severity.ERROR, "properties/city"),
        ({"type": "object", "properties": {"city": {"type": "string"}}}, Severity.WARNING, "required"),
        ({**CITY, "properties": {"city": {"type": "array"}}}, Severity.WARNING, "properties/city"),
        (
            {**CITY, "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}},
            Severity.NOTE,
            "properties/unit",
        ),
    ],
)
def test_parameters_are_those_of_the_routes_model(
    chaos: Contract, parameters: Any, severity: Severity, place: str
) -> None:
    """What the route requires and the tool does not declare ends in a 422 every time; the rest is doubt."""
    found = check_tools(tools_of(row(tool(parameters=parameters))), chaos)
    where = f"/responses_create_params/tools/0/parameters/{place}"
    assert shape(found) == [("routing.parameters", severity, where)]


def test_tools_are_found_wherever_a_body_carries_them() -> None:
    """In a row, in an episode's task_data, and in a request to a provider in Chat's shape."""
    chat = {"tools": [{"type": "function", "function": {"name": "f", "parameters": CITY}}]}
    assert tools_of(row(tool("f")))[0].path == ("responses_create_params", "tools", 0)
    assert tools_of({"task_data": row(tool("f"))})[0].path == ("task_data", "responses_create_params", "tools", 0)
    assert tools_of(chat) == [Tool("f", CITY, ("tools", 0, "function"))]
    assert tools_of({"tools": [{"type": "web_search"}, {"type": "function"}, 3]}) == []
    assert tools_of("text") == []


NOT_FOUND = {"detail": "Not Found"}


@pytest.mark.parametrize(
    ("declared", "severity", "word"),
    [
        (None, Severity.ERROR, "Compare"),
        (frozenset({"no_such_tool"}), Severity.ERROR, "Rename"),
        (frozenset({"get_weather"}), Severity.WARNING, "made it up"),
    ],
)
def test_a_call_into_nothing_blames_the_row_or_the_model(
    flow: Any, chaos: Contract, declared: frozenset[str] | None, severity: Severity, word: str
) -> None:
    called = flow(Call.TOOL, "/no_such_tool", {}, 404, NOT_FOUND)
    (one,) = check_call(called, chaos, declared)
    assert (one.rule, one.severity, one.found) == ("routing.unknown_tool", severity, "no_such_tool")
    assert word in f"{one.message} {one.fix}"


def test_a_server_without_any_tools_is_meant_to_score_calls_and_is_said_once(flow: Any) -> None:
    """Gym's xlam_fc and its like: their rows declare tools that nothing answers, and are healthy."""
    scores = Contract({"paths": {path: {"post": {}} for path in ("/seed_session", "/verify", "/reverify_mode")}}, "s")
    found = check_tools(tools_of(row(tool("peers"), tool("t3ma"))), scores)
    assert shape(found) == [("routing.no_route", Severity.NOTE, "/responses_create_params/tools/0/name")]
    called = flow(Call.TOOL, "/peers", {}, 404, NOT_FOUND)
    assert [one.severity for one in check_call(called, scores, frozenset({"peers"}))] == [Severity.WARNING]
    assert check_tools([], scores) == []


def test_without_a_contract_fastapis_own_words_decide(flow: Any) -> None:
    """A 404 of the tool's own making (no such customer) is not a missing tool."""
    assert check_call(flow(Call.TOOL, "/find", {}, 404, NOT_FOUND), None, None) != []
    assert check_call(flow(Call.TOOL, "/find", {}, 404, {"detail": "no such customer"}), None, None) == []


def test_a_route_that_answers_404_itself_is_no_missing_tool(flow: Any, chaos: Contract) -> None:
    assert check_call(flow(Call.TOOL, "/get_weather", {}, 404, NOT_FOUND), chaos, frozenset({"get_weather"})) == []


def test_an_undeclared_tool_that_answers_is_said(flow: Any, chaos: Contract) -> None:
    (one,) = check_call(flow(Call.TOOL, "/boom", {}, 200, {}), chaos, frozenset({"get_weather"}))
    assert (one.rule, one.severity) == ("routing.undeclared_tool", Severity.WARNING)
    assert check_call(flow(Call.TOOL, "/boom", {}, 200, {}), chaos, frozenset()) == []
