from typing import Any

import pytest

from gymtap.proxy.check.tools import check_tools
from gymtap.schemas import Severity

TOOL = {"type": "function", "name": "f", "strict": True, "parameters": {"type": "object", "properties": {"city": {}}}}


def row(*tools: Any, **more: Any) -> dict[str, Any]:
    params = {"input": "hi", "tools": list(tools)} | {key: more.pop(key) for key in ("tool_choice",) if key in more}
    return {"responses_create_params": params, **more}


def found(row: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    return [(finding.rule, finding.severity, finding.pointer) for finding in check_tools(row)]


def test_a_good_row_has_no_finding() -> None:
    assert found(row(TOOL)) == []
    assert found({"responses_create_params": {"input": "hi"}}) == []


@pytest.mark.parametrize(
    ("tools", "rule", "severity", "pointer"),
    [
        ([{**TOOL, "name": ""}], "tools.name", "error", "/0/name"),
        ([{**TOOL, "name": "my tool"}], "tools.name", "warning", "/0/name"),
        ([{key: value for key, value in TOOL.items() if key != "type"}], "tools.type", "error", "/0/type"),
        ([{**TOOL, "type": "func"}], "tools.type", "warning", "/0/type"),
        ([{"type": "web_search"}], "tools.hosted", "note", "/0/type"),
        ([{**TOOL, "parameters": []}], "tools.parameters", "error", "/0/parameters"),
        (["f"], "tools.not_an_object", "error", "/0"),
        ([{"type": "function", "function": {"name": "f"}}], "tools.chat_style", "error", "/0/function"),
        ([{"name": "f", "inputSchema": {"type": "object"}}], "tools.foreign_style", "error", "/0/inputSchema"),
        ([{"name": "f", "input_schema": {"type": "object"}}], "tools.foreign_style", "error", "/0/input_schema"),
        ([TOOL, TOOL], "tools.duplicate_name", "error", "/1/name"),
        (
            [{key: value for key, value in TOOL.items() if key != "strict"}],
            "tools.field_missing",
            "warning",
            "/0/strict",
        ),
    ],
)
def test_each_structural_rule_names_its_place(tools: list[Any], rule: str, severity: str, pointer: str) -> None:
    assert found(row(*tools)) == [(rule, severity, f"/responses_create_params/tools{pointer}")]


def test_duplicate_names_give_the_indexes_of_both() -> None:
    (finding,) = check_tools(row(TOOL, TOOL))
    assert "tools[0] and tools[1]" in finding.message


def test_a_choice_of_a_tool_that_is_not_there_is_an_error() -> None:
    choice = {"type": "function", "name": "g"}
    assert found(row(TOOL, tool_choice=choice)) == [
        ("tools.target_missing", "error", "/responses_create_params/tool_choice")
    ]
    assert found(row(TOOL, tool_choice={"type": "function", "name": "f"})) == []
    assert found(row(tool_choice="required"))[0][0] == "tools.none_to_require"
    assert found(row(TOOL, tool_choice="always"))[0][0] == "tools.choice"


@pytest.mark.parametrize(
    ("more", "rule", "severity"),
    [
        ({"response_mode": "voice"}, "rows.response_mode", "warning"),
        ({"response_mode": "tool_call", "tool_name": "g"}, "tools.target_missing", "error"),
        ({"tool_name": "g"}, "tools.target_missing", "warning"),
        ({"tool_name": "f", "tool_payload_key": "payload"}, "rows.tool_payload_key", "warning"),
        ({"schema_str": "{"}, "rows.schema_str", "error"),
        ({"schema_str": {}}, "rows.schema_str", "error"),
        ({"schema_str": '{"type": "strr"}'}, "rows.schema_str", "warning"),
        ({"num_tools": 2}, "rows.num_tools", "warning"),
    ],
)
def test_rows_that_expect_a_call_are_held_to_their_own_fields(more: dict[str, Any], rule: str, severity: str) -> None:
    assert [(each[0], each[1]) for each in found(row(TOOL, **more))] == [(rule, severity)]


def test_a_payload_key_may_be_anywhere_in_the_parameters() -> None:
    nested = {**TOOL, "parameters": {"anyOf": [{"properties": {"payload": {}}}]}}
    assert found(row(nested, tool_name="f", tool_payload_key="payload")) == []


def test_a_schema_that_breaks_its_metaschema_is_a_warning_with_the_place() -> None:
    """vLLM takes `required: true`, so it is no error."""
    broken = {**TOOL, "parameters": {"properties": {"u": {"required": True}}}}
    (finding,) = check_tools(row(broken))
    assert finding.severity is Severity.WARNING
    assert finding.pointer == "/responses_create_params/tools/0/parameters/properties/u/required"


def test_a_property_named_like_a_keyword_is_a_property() -> None:
    named = {"type": "object", "properties": {"format": {"enum": ["uri"]}, "propertyNames": {"type": "string"}}}
    assert found(row({**TOOL, "parameters": named})) == []


def test_nesting_is_right_in_a_chat_request_and_wrong_in_a_row() -> None:
    nested = {"type": "function", "function": {key: value for key, value in TOOL.items() if key != "type"}}
    assert found({"messages": [], "tools": [nested]}) == []
    assert found({"messages": [], "tools": [TOOL]}) == [("tools.responses_style", "error", "/tools/0/function")]
    assert found({"messages": [], "tools": [{"type": "function", "function": {"name": ""}}]}) == [
        ("tools.name", "error", "/tools/0/function/name")
    ]
