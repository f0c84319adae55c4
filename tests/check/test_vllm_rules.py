from typing import Any

import pytest

from gymtap.proxy.check import vllm_rules as rules


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _level in range(levels - 1):
        schema = {"not": schema}
    return schema


def test_levels_count_the_document_itself() -> None:
    assert not rules.levels_exceed(nested(64), 64)
    assert rules.levels_exceed(nested(65), 64)


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "integer", "multipleOf": 2}, "multipleOf"),
        ({"multipleOf": 2}, None),
        ({"type": ["array", "null"], "uniqueItems": False}, "uniqueItems"),
        ({"type": "string", "format": "int64"}, "format"),
        ({"type": "string", "format": "uri"}, None),
        ({"type": "string", "format": "uri", "maxLength": 3}, "format"),
        ({"type": "string", "pattern": "a", "minLength": 3}, "pattern"),
        ({"type": "object", "propertyNames": {"maxLength": 3}}, None),
        ({"type": "object", "propertyNames": {}, "properties": {}}, "propertyNames"),
        ({"type": "object", "patternProperties": {"a": {}, "b": {}}}, "patternProperties"),
        ({"allOf": [{}, {}]}, "allOf"),
        ({"allOf": [{}]}, None),
        ({"properties": {"x": {"anyOf": [{"type": "number", "multipleOf": 2}]}}}, "multipleOf"),
        ({"properties": {"type": {"type": "string"}, "format": {"type": "string"}}}, None),
        ({"enum": [[{"type": "integer", "multipleOf": 1}]]}, None),  # lists in lists are not entered
    ],
)
def test_what_is_not_offered_to_xgrammar(schema: dict[str, Any], keyword: str | None) -> None:
    assert rules.turned_down_keyword(schema) == keyword


def test_definitions_move_to_the_root_of_a_required_schema() -> None:
    parameters = {"$defs": {"A": {}}, "type": "object"}
    schema = rules.required_schema([("f", parameters)])
    assert schema["$defs"] == {"A": {}}
    assert schema["items"]["anyOf"][0]["properties"]["parameters"] == {"type": "object"}
    assert parameters == {"$defs": {"A": {}}, "type": "object"}


def test_no_parameters_are_an_empty_object_when_required_and_anything_when_strict() -> None:
    required = rules.required_schema([("f", {})])["items"]["anyOf"][0]["properties"]["parameters"]
    assert required == {"type": "object", "properties": {}}
    strict = rules.structural_tag([("f", None)])["format"]["tags"][0]["content"]["json_schema"]
    assert strict is True


def test_definitions_that_are_no_object_are_refused_as_vllm_words_it() -> None:
    with pytest.raises(rules.DefinitionsClashError, match="must be an object, got list"):
        rules.required_schema([("f", {"$defs": []})])


@pytest.mark.parametrize(
    ("regex", "part"),
    [
        ("a+(b|c)", None),
        ("(a)\\1", "Backreferences"),
        ("(?=a)a", "Look-Around"),
        ("a\\b", "word boundaries"),
        ("^a", "universal start"),
        ("(", "Error parsing"),
        ("(x|^y)", "universal start"),
        ("(?:x^)", None),
    ],
)
def test_regexes_that_outlines_is_not_given(regex: str, part: str | None) -> None:
    refusal = rules.regex_refusal(regex)
    assert refusal is None if part is None else part in str(refusal)


def test_integers_beyond_64_bits_are_found_anywhere() -> None:
    assert rules.beyond_64_bits({"a": [{"b": 2**64}]})
    assert not rules.beyond_64_bits({"a": [2**64 - 1, -(2**63), True, 1e300]})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("0.32", None),
        ("0.32.1", None),
        ("0.33.0", "vLLM 0.33.0 runs the same engines"),
        ("0.31", "vLLM 0.31 runs xgrammar 0.2.7"),
        ("0.11.2", "vLLM 0.11.2 compiles with xgrammar 0.1.25"),
        ("0.3", "where vLLM 0.3 differs is not known here"),
        ("0.34.0", "where vLLM 0.34.0 differs is not known here"),
        ("nightly", "where vLLM nightly differs is not known here"),
    ],
)
def test_of_another_release_what_is_certain_is_said_and_no_more(wanted: str, said: str | None) -> None:
    about = rules.about_release(wanted)
    assert about is None if said is None else str(about).startswith(said)
