"""Rows are faulted for what no reader accepts, and for nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.diagnose.rows import line_flaws, row_flaws, schema_flaws


@pytest.mark.parametrize(
    ("line", "check", "words"),
    [
        ('{"a": 1', "line", "stops before its end"),
        ('{"a": 1}{"b": 2}', "line", "second record"),
        ("{'a': 1}", "line", "is not JSON"),
        ('\ufeff{"a": 1}', "line", "byte order mark"),
        ('{"a": NaN}', "not_finite", "NaN"),
        ('{"a": "\\ud83d"}', "surrogate", "surrogate pair"),
    ],
)
def test_a_bad_line_is_told_by_what_is_wrong_with_it(line: str, check: str, words: str) -> None:
    (flaw,) = line_flaws(line)
    assert (flaw.check, words in flaw.message) == (check, True)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.integers() | st.none(), max_size=4))
def test_a_line_that_json_wrote_is_good(value: dict[str, Any]) -> None:
    for ascii_only in (True, False):
        line = json.dumps(value, ensure_ascii=ascii_only)
        surrogate = any("\ud800" <= char <= "\udfff" for text in [*value, *value.values()] for char in str(text))
        assert surrogate or list(line_flaws(line)) == []


def params(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "q", **fields}}


@pytest.mark.parametrize(
    ("row", "pointer"),
    [
        ([1], ""),
        ({"messages": []}, ""),
        ({"responses_create_params": None}, "/responses_create_params"),
        (params(input=5), "/responses_create_params/input"),
        (params(tools={}), "/responses_create_params/tools"),
        (params(tools=[{"type": "function", "function": {"name": "f"}}]), "/responses_create_params/tools/0/function"),
        (params(tools=[{"type": "function", "name": "a b"}]), "/responses_create_params/tools/0/name"),
        (params(input=[{"type": "function_call_output", "call_id": "x"}]), "/responses_create_params/input/0/call_id"),
        (params(input=[{"role": "user", "content": 5}]), "/responses_create_params/input/0/content"),
        (params(input=[{"type": "function_call", "arguments": {}}]), "/responses_create_params/input/0/arguments"),
    ],
)
def test_a_bad_row_is_faulted_at_the_place_where_it_is_bad(row: Any, pointer: str) -> None:
    assert pointer in [flaw.pointer for flaw in row_flaws(row)]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"type": {"type": "string"}, "required": {"enum": ["a"]}, "$ref": True}},
        {"type": ["string", "null"], "format": "uri", "minLength": 0, "maxLength": 0},
        {"properties": {"x": {"type": "string", "required": True}}},
        {"$defs": {"a/b": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a~1b"}}},
        {"allOf": [True, False], "items": [{"type": "string"}], "additionalProperties": False},
        {"pattern": "^\\p{L}+$"},
    ],
)
def test_a_schema_that_is_only_unusual_is_good(schema: dict[str, Any]) -> None:
    assert list(schema_flaws(schema, "")) == []


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "str"}, "/type"),
        ({"type": None}, "/type"),
        ({"properties": []}, "/properties"),
        ({"required": "x"}, "/required"),
        ({"enum": []}, "/enum"),
        ({"minimum": 3, "maximum": 1}, "/minimum"),
        ({"minLength": -1}, "/minLength"),
        ({"pattern": "("}, "/pattern"),
        ({"pattern": "(a)\\1"}, "/pattern"),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum"),
        ({"maximum": "1"}, "/maximum"),
        ({"properties": {"a/b": {"type": "dict"}}}, "/properties/a~1b/type"),
        ({"properties": {"x": {"$ref": "#/$defs/X"}}}, "/properties/x/$ref"),
        ({"items": 5}, "/items"),
    ],
)
def test_a_schema_that_no_draft_accepts_is_faulted(schema: dict[str, Any], pointer: str) -> None:
    assert [flaw.pointer for flaw in schema_flaws(schema, "")] == [pointer]


VERDICTS = Path(__file__).parents[3] / "shared" / "vllm" / "tool_schema_cases.json"


@pytest.mark.skipif(not VERDICTS.is_file(), reason="the live vLLM verdicts are not beside the repository")
def test_what_is_faulted_is_what_a_real_vllm_refuses_for_a_strict_tool() -> None:
    """vLLM 0.32 in its default setting; the one that is missed is nested seventy deep."""
    cases = json.loads(VERDICTS.read_text())
    missed, false_alarms = [], []
    for case in cases:
        refused = case["live_vllm_0_32"]["hermes_auto"]["chat_auto_strict"]["status"] != 200
        faulted = bool(list(schema_flaws(case["parameters"], "")))
        missed += [case["name"]] if refused and not faulted else []
        false_alarms += [case["name"]] if faulted and not refused else []
    assert (missed, false_alarms) == (["deep_70"], [])
