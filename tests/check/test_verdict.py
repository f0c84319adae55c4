import json
from pathlib import Path

import pytest

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.locate import Overlay, faults
from gymtap.proxy.check.verdict import HIDDEN, judge
from gymtap.proxy.check.vllm_rules import Backend, Route

VERDICTS = Path(__file__).parents[1] / "data/vllm_0_32_verdicts.jsonl"
LIVE = [json.loads(line) for line in VERDICTS.read_text().splitlines()]
"""What a real vLLM 0.32.0 answered (hermes parser, backend auto): to made, mutated, and real-world schemas."""

PLAIN = {"type": "object", "properties": {"u": {"type": "string"}}, "required": ["u"]}
BROKEN = {"type": "object", "properties": {"u": {"type": "str"}}}
UNIQUE = {"type": "object", "properties": {"u": {"type": "array", "uniqueItems": True}}}


@pytest.mark.parametrize("route", list(Route))
def test_the_verdict_and_the_status_are_those_of_a_real_vllm(engines: Engines, route: Route) -> None:
    """Status for status: 200, 400 or 500, on every schema that was sent to a live server."""
    wrong = {}
    for case in LIVE:
        verdict = judge(engines, [("f", case["parameters"])], route)
        if verdict.status != case[route]:
            wrong[case["name"]] = (verdict.status, case[route], verdict.reason)
    assert wrong == {}


@pytest.mark.parametrize("route", list(Route))
def test_every_refusal_has_a_place_and_a_change_that_compiles(engines: Engines, route: Route) -> None:
    """The edits of all faults, put together, are accepted by the same engines."""
    wrong = {}
    for case in [case for case in LIVE if case[route] != 200][::4]:
        overlay = Overlay(case["parameters"])
        for fault in faults(case["parameters"], lambda schema: _refusal(engines, schema, route)):
            overlay = overlay if fault.edit is None else overlay.apply(fault.edit)
            if not fault.pointer and isinstance(case["parameters"], dict):
                wrong[case["name"]] = f"no place: {fault.reason}"
        if why := _refusal(engines, overlay.build(), route):
            wrong[case["name"]] = why
    assert wrong == {}


def _refusal(engines: Engines, schema: object, route: Route) -> str | None:
    verdict = judge(engines, [("f", schema)], route)
    return verdict.reason if verdict.refused else None


def test_the_reason_that_the_client_does_not_see_is_the_engines_own(engines: Engines) -> None:
    verdict = judge(engines, [("f", BROKEN)], Route.STRICT_TOOL)
    assert (verdict.status, verdict.shown, verdict.judge) == (400, HIDDEN, "xgrammar")
    assert 'Unsupported type "str"' in verdict.reason


@pytest.mark.parametrize(
    ("backend", "route", "status"),
    [
        (Backend.GUIDANCE, Route.STRICT_TOOL, 400),  # every strict tool: vllm#55152
        (Backend.OUTLINES, Route.STRICT_TOOL, 500),  # it knows no structural tags
        (Backend.XGRAMMAR, Route.STRICT_TOOL, 200),
        (Backend.GUIDANCE, Route.RESPONSE_FORMAT, 200),
        (Backend.OUTLINES, Route.RESPONSE_FORMAT, 200),
    ],
)
def test_a_pinned_backend_answers_for_itself(engines: Engines, backend: Backend, route: Route, status: int) -> None:
    assert judge(engines, [("f", PLAIN)], route, backend).status == status


def test_a_count_that_pythons_parser_cannot_hold_is_a_500_of_outlines(engines: Engines) -> None:
    huge = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 2**32 - 1}}}
    assert judge(engines, [("f", huge)], Route.RESPONSE_FORMAT, Backend.OUTLINES).status == 500


@pytest.mark.parametrize(
    ("keyword", "value", "words"),
    [("pattern", "^[a-z]{1,200}$", "more than 128 times"), ("format", ["date"], "a string is expected")],
)
def test_where_an_engine_quotes_its_own_code_the_reason_says_what_it_means(
    engines: Engines, keyword: str, value: object, words: str
) -> None:
    schema = {"type": "object", "properties": {"u": {"type": "string", keyword: value}}}
    assert words in judge(engines, [("f", schema)], Route.STRICT_TOOL).reason


def test_a_pinned_xgrammar_has_no_fallback(engines: Engines) -> None:
    """allOf with two branches: auto falls back to guidance, which takes it; xgrammar alone refuses."""
    schema = {
        "type": "object",
        "allOf": [{"required": ["u"]}, {"required": ["u"]}],
        "properties": {"u": {"type": "string"}},
    }
    auto = judge(engines, [("f", schema)], Route.RESPONSE_FORMAT)
    assert (auto.ok, auto.judge) == (True, "llguidance")
    assert judge(engines, [("f", schema)], Route.RESPONSE_FORMAT, Backend.XGRAMMAR).status == 400


def test_the_same_schema_may_pass_as_a_strict_tool_and_fail_as_json(engines: Engines) -> None:
    assert judge(engines, [("f", UNIQUE)], Route.STRICT_TOOL).ok
    assert judge(engines, [("f", UNIQUE)], Route.REQUIRED_JSON).status == 400


def test_tools_that_define_the_same_name_differently_are_refused_together(engines: Engines) -> None:
    one = {"type": "object", "$defs": {"A": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/A"}}}
    two = {**one, "$defs": {"A": {"type": "integer"}}}
    assert judge(engines, [("f", one)], Route.REQUIRED_JSON).ok
    assert judge(engines, [("g", two)], Route.REQUIRED_JSON).ok
    together = judge(engines, [("f", one), ("g", two)], Route.REQUIRED_JSON)
    assert together.status == 400
    assert "multiple schemas" in together.reason


@pytest.mark.parametrize("parameters", [[], "object", 3, True])
def test_parameters_that_are_no_object_do_not_reach_an_engine(bare_python: str, parameters: object) -> None:
    with Engines(python=bare_python) as engines:
        verdict = judge(engines, [("f", parameters)], Route.STRICT_TOOL)
    assert (verdict.status, verdict.judge) == (400, "vllm")


def test_without_an_engine_nothing_is_guessed(bare_python: str) -> None:
    with Engines(python=bare_python) as engines:
        verdict = judge(engines, [("f", BROKEN)], Route.STRICT_TOOL)
        assert (verdict.ok, verdict.status) == (None, None)
        assert "could not be run" in verdict.reason
        assert engines.versions() == {"xgrammar": None, "llguidance": None, "outlines": None}


def test_a_pattern_that_repeats_too_often_breaks_the_engine_that_caches_and_has_a_way_out(engines: Engines) -> None:
    """xgrammar 0.2.8 fails beyond 128 repetitions, with the cache that vLLM switches on."""
    schema = {"type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]{1,200}x{3}$"}}}
    assert judge(engines, [("f", schema)], Route.RESPONSE_FORMAT).status == 500
    [fault] = faults(schema, lambda other: _refusal(engines, other, Route.RESPONSE_FORMAT))
    assert str(fault.edit) == 'set /properties/id/pattern to "^[a-z]{1,}x{3}$"'


def test_what_an_assertion_of_the_engine_says_of_its_own_code_is_no_keyword(engines: Engines) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string", "pattern": 5}}}
    [fault] = faults(schema, lambda other: _refusal(engines, other, Route.STRICT_TOOL))
    assert fault.pointer == "/properties/id/pattern"
