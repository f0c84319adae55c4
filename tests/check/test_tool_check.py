import json
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.captured.requests import requests_of
from gymtap.proxy.check.enforcement import not_enforced
from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.requests import carriers
from gymtap.proxy.check.tool_check import ToolCheck, ToolReport
from gymtap.proxy.check.vllm_rules import Backend, Route
from gymtap.proxy.core.errors import UsageError
from gymtap.schemas import Severity

GOOD = {"type": "function", "name": "good", "strict": True, "parameters": {"type": "object", "properties": {}}}
BAD = {**GOOD, "name": "bad", "parameters": {"type": "object", "properties": {"u": {"type": "str"}}}}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(*tools: Any, **params: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "hi", "tools": list(tools), **params}}


def report(engines: Engines | None, source: Path, routes: tuple[Route, ...] | None = None) -> ToolReport:
    check = ToolCheck(engines, Backend.AUTO, routes)
    check.feed(carriers(source))
    return check.report


def test_a_refused_strict_tool_is_an_error_with_pointer_reason_and_fix(engines: Engines, tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row(GOOD), row(GOOD, BAD), row(GOOD, BAD))
    met = report(engines, file).findings[0]
    assert met.finding.severity is Severity.ERROR
    assert met.finding.rule == "grammar.strict_tool"
    assert met.finding.pointer == "/responses_create_params/tools/1/parameters/properties/u/type"
    assert 'Unsupported type "str"' in met.finding.message
    assert "bad" in met.finding.message
    assert met.finding.fix == 'Set /properties/u/type to "string".'
    assert (met.where, met.count) == (f"{file}:2", 2)


def test_each_distinct_tool_is_asked_about_once(engines: Engines, tmp_path: Path) -> None:
    whole = report(engines, write(tmp_path / "rows.jsonl", *[row(GOOD)] * 50))
    assert (whole.requests, whole.tools, whole.distinct_tools, len(whole.grammar_checks)) == (50, 50, 1, 2)


def test_a_tool_that_is_not_strict_is_only_noted(engines: Engines, tmp_path: Path) -> None:
    """vLLM compiles nothing for it, so nothing fails on the strict path."""
    loose = {**BAD, "strict": False}
    findings = [met.finding for met in report(engines, write(tmp_path / "rows.jsonl", row(loose))).findings]
    severities = {finding.rule: finding.severity for finding in findings}
    assert severities["grammar.strict_tool"] is Severity.NOTE
    assert severities["grammar.required_json"] is Severity.WARNING


def test_a_route_that_was_asked_for_is_an_error_whatever_the_tool_says(engines: Engines, tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row({**BAD, "strict": False}))
    assert report(engines, file, (Route.REQUIRED_JSON,)).errors() == 1


def test_tools_that_clash_only_together_are_found(engines: Engines, tmp_path: Path) -> None:
    def tool(name: str, kind: str) -> dict[str, Any]:
        return {**GOOD, "name": name, "parameters": {"type": "object", "$defs": {"A": {"type": kind}}}}

    file = write(tmp_path / "rows.jsonl", row(tool("a", "string"), tool("b", "integer")))
    rules = [met.finding.rule for met in report(engines, file).findings]
    assert rules == ["grammar.required_json.list"]


def test_the_response_format_of_rows_without_tools_is_compiled_and_each_row_counted(
    engines: Engines, tmp_path: Path
) -> None:
    """Gym's rows for structured outputs have no tools at all."""
    schema = {"type": "object", "properties": {"u": {"type": "string", "format": "phone"}}}
    params = {"input": "hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}
    file = write(tmp_path / "rows.jsonl", *[{"responses_create_params": params}] * 3)
    (met,) = report(engines, file).findings
    assert (met.finding.rule, met.finding.severity, met.count) == ("grammar.response_format", Severity.ERROR, 3)
    assert met.finding.pointer == "/responses_create_params/text/format/schema/properties/u/format"


def test_the_requests_own_response_format_is_compiled_too(engines: Engines, tmp_path: Path) -> None:
    schema = {"type": "array", "uniqueItems": True}
    file = write(tmp_path / "rows.jsonl", row(text={"format": {"type": "json_schema", "schema": schema}}))
    (met,) = report(engines, file).findings
    assert met.finding.pointer == "/responses_create_params/text/format/schema/uniqueItems"


def test_the_schema_of_a_tool_in_another_format_is_compiled_where_it_is(engines: Engines, tmp_path: Path) -> None:
    """What an MCP server lists becomes a row's tools sooner or later; its schema is what vLLM will refuse."""
    listed = {"name": "f", "description": "d", "inputSchema": {"type": "object", "properties": {"u": {"type": "str"}}}}
    found = {
        met.finding.rule: met.finding for met in report(engines, write(tmp_path / "a.jsonl", row(listed))).findings
    }
    assert found["tools.foreign_style"].severity is Severity.ERROR
    at = "/responses_create_params/tools/0/inputSchema/properties/u/type"
    assert (found["grammar.strict_tool"].pointer, found["grammar.strict_tool"].severity) == (at, Severity.NOTE)


def test_chat_bodies_and_bare_tool_lists_are_read(engines: Engines, tmp_path: Path) -> None:
    chat = {"type": "function", "function": {key: value for key, value in BAD.items() if key != "type"}}
    body = tmp_path / "request.json"
    body.write_text(json.dumps({"messages": [], "tools": [chat]}))
    pointers = {
        met.finding.pointer for met in report(engines, body).findings if met.finding.rule == "grammar.strict_tool"
    }
    assert pointers == {"/tools/0/function/parameters/properties/u/type"}
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([GOOD, BAD]))
    assert report(engines, listed).tools == 2


def test_without_engines_the_report_says_what_it_could_not_ask(bare_python: str, tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row(BAD))
    with Engines(python=bare_python) as engines:
        whole = report(engines, file)
    assert whole.errors() == 0
    assert any("xgrammar could not be run" in line for line in whole.not_run)


def test_the_grammar_may_be_left_out(tmp_path: Path) -> None:
    whole = report(None, write(tmp_path / "rows.jsonl", row(GOOD, GOOD)))
    assert [met.finding.rule for met in whole.findings] == ["tools.duplicate_name"]
    assert whole.not_run == set()


def test_a_line_that_is_not_json_is_said_and_the_rest_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("{oops\n" + json.dumps(row(GOOD)) + "\n")
    whole = report(None, file)
    assert (len(whole.unread), whole.tools) == (1, 1)
    assert f"{file}:1" in whole.unread[0]


def test_a_source_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        list(carriers(tmp_path / "nothing.jsonl"))


def test_a_capture_gives_the_requests_that_crossed_it(demo_capture: Path) -> None:
    check = ToolCheck(None)
    check.feed(requests_of(demo_capture))
    assert check.report.requests > 0
    assert check.report.unread == []


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "not": {"const": "a"}}, "not"),
        ({"oneOf": [{"type": "string"}, {"type": "string"}]}, "oneOf"),
        ({"type": "string", "pattern": "^(?!bad).*$"}, "pattern"),
        ({"type": "string", "pattern": "^a+$", "maxLength": 2}, "maxLength"),
        ({"type": "integer", "enum": ["1"]}, "enum"),
        ({"type": "object", "properties": {}, "required": ["z"], "additionalProperties": False}, "required"),
        ({"$ref": "#/$defs/A", "maxLength": 1}, "maxLength"),
    ],
)
def test_what_is_accepted_but_not_enforced_is_known(schema: dict[str, Any], keyword: str) -> None:
    assert [found[1] for found in not_enforced({"properties": {"u": schema}})] == [keyword]


def test_what_is_enforced_is_not_spoken_of() -> None:
    enforced = {"type": "number", "enum": [1, 2.5]}
    assert list(not_enforced({"properties": {"u": enforced, "not": {"type": "string", "pattern": "a"}}})) == []
