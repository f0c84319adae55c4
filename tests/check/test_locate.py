from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.check.locate import Edit, Overlay, faults
from gymtap.proxy.check.schema_walk import keyword_at, subschemas
from gymtap.proxy.core.pointer import pointer


def bad_keyword(schema: Any) -> str | None:
    """An engine that knows no `bad` and no type `strr`, and cannot read an empty enum beside a minimum."""
    for _path, node in subschemas(schema):
        if "bad" in node:
            return "Unimplemented keys: bad"
        if node.get("type") == "strr":
            return "Unsupported type strr"
        if node.get("enum") == [] and "minimum" in node:
            return "Unsatisfiable"
    return None


leaves = st.sampled_from([{"type": "string"}, {"type": "integer", "minimum": 1}, {"enum": ["a"]}, {}]).map(deepcopy)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["a", "bad", "type", "~x/y"]), inner, max_size=3).map(
            lambda properties: {"type": "object", "properties": properties, "required": list(properties)}
        ),
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
    ),
    max_leaves=12,
)


@given(schemas, st.data())
def test_a_planted_fault_is_found_where_it_was_planted(schema: dict[str, Any], data: st.DataObject) -> None:
    places = list(subschemas(schema))
    path, node = data.draw(st.sampled_from(places))
    node["bad"] = 1
    found = faults(schema, bad_keyword)
    assert [(fault.pointer, fault.keyword) for fault in found] == [(pointer((*path, "bad")), "bad")]
    assert found[0].edit == Edit((*path, "bad"), remove=True)


@given(schemas)
def test_an_accepted_schema_has_no_fault_and_is_left_alone(schema: dict[str, Any]) -> None:
    before = repr(schema)
    assert faults(schema, bad_keyword) == ()
    assert repr(schema) == before


def test_several_faults_are_all_found_and_their_edits_together_are_accepted() -> None:
    schema = {"properties": {"a": {"type": "strr"}, "b": {"anyOf": [{"type": "string"}, {"bad": 1}]}}}
    found = faults(schema, bad_keyword)
    assert {fault.pointer for fault in found} == {"/properties/a/type", "/properties/b/anyOf/1/bad"}
    overlay = Overlay(schema)
    for fault in found:
        assert fault.edit is not None
        overlay = overlay.apply(fault.edit)
    assert bad_keyword(overlay.build()) is None


def test_what_was_meant_is_tried_before_anything_is_taken_out() -> None:
    def refuses(schema: Any) -> str | None:
        return "Invalid type" if schema.get("properties", {}).get("a", {}).get("type") == "int" else None

    (fault,) = faults({"title": "t", "properties": {"a": {"type": "int", "minimum": 1}, "b": {}}}, refuses)
    assert fault.smallest == {"properties": {"a": {"type": "int"}}}
    assert str(fault.edit) == 'set /properties/a/type to "integer"'


def test_a_fault_of_two_keywords_names_the_one_that_the_engine_names() -> None:
    def refuses(schema: Any) -> str | None:
        return "maximum is below minimum" if schema.get("maximum", 9) < schema.get("minimum", 0) else None

    (fault,) = faults({"type": "integer", "minimum": 5, "maximum": 1}, refuses)
    assert (fault.pointer, fault.keyword) == ("/maximum", "maximum")


def test_what_stands_in_place_of_a_schema_is_the_place_itself() -> None:
    def refuses(schema: Any) -> str | None:
        return "not a schema" if isinstance(schema.get("properties", {}).get("a"), list) else None

    (fault,) = faults({"properties": {"a": ["string", "null"]}}, refuses)
    assert fault.pointer == "/properties/a"
    assert str(fault.edit) == 'set /properties/a to {"type": ["string", "null"]}'


def test_a_fault_in_what_a_reference_names_is_there_and_not_at_the_reference() -> None:
    schema = {
        "properties": {"a": {"properties": {"b": {"$ref": "#/$defs/list/anyOf/1"}}}},
        "$defs": {"list": {"anyOf": [{}, {"properties": {"c": {"type": "strr"}}}]}},
    }

    def refuses(schema: Any) -> str | None:
        used = bool(schema.get("properties", {}).get("a", {}).get("properties", {}).get("b", {}).get("$ref"))
        return bad_keyword(schema) if used else None

    (fault,) = faults(schema, refuses)
    assert (fault.pointer, fault.keyword) == ("/$defs/list/anyOf/1/properties/c/type", "type")


def test_a_reference_that_names_nothing_is_the_fault_itself() -> None:
    def refuses(schema: Any) -> str | None:
        return "cannot be found" if "$ref" in schema.get("properties", {}).get("a", {}) else None

    (fault,) = faults({"properties": {"a": {"$ref": "#/$defs/None"}}, "$defs": {"Some": {"bad": 1}}}, refuses)
    assert (fault.pointer, fault.keyword, str(fault.edit)) == (
        "/properties/a/$ref",
        "$ref",
        "remove /properties/a/$ref",
    )


def test_keywords_that_are_each_refused_go_one_by_one_and_not_with_all_that_holds_them() -> None:
    def refuses(schema: Any) -> str | None:
        unknown = sorted({"contains", "minContains"} & schema.get("properties", {}).get("a", {}).keys())
        return f"Unimplemented keys: {unknown}" if unknown else None

    found = faults({"properties": {"a": {"type": "array", "contains": {}, "minContains": 1}}}, refuses)
    assert [str(fault.edit) for fault in found] == [
        "remove /properties/a/contains",
        "remove /properties/a/minContains",
    ]


def test_a_smaller_change_at_another_keyword_goes_before_one_that_takes_a_property_away() -> None:
    def refuses(schema: Any) -> str | None:
        few = len(schema.get("properties", ())) < schema.get("minProperties", 0)
        why = "fewer can be than are wanted" if schema.get("properties") else "none can be"
        return why if few and "properties" in schema else None

    (fault,) = faults({"properties": {"a": {"type": "string", "minLength": 1}}, "minProperties": 2}, refuses)
    assert (fault.pointer, str(fault.edit)) == ("/minProperties", "remove /minProperties")


def test_a_value_of_the_wrong_kind_is_pointed_at_and_not_what_is_in_it() -> None:
    def refuses(schema: Any) -> str | None:
        kind = schema.get("format", "")
        return None if isinstance(kind, str) else f"a string is expected, not {kind}"

    (fault,) = faults({"type": "string", "format": ["date"]}, refuses)
    assert (fault.pointer, str(fault.edit)) == ("/format", "remove /format")


@pytest.mark.parametrize(
    ("schema", "wrong", "edit"),
    [
        ({"minimum": 0, "exclusiveMinimum": True}, ("exclusiveMinimum", True), "set /exclusiveMinimum to 0"),
        ({"exclusiveMinimum": True}, ("exclusiveMinimum", True), "remove /exclusiveMinimum"),
        ({"type": "integer", "minimum": 0.5}, ("minimum", 0.5), "set /minimum to 1"),
        ({"type": "integer", "maximum": 0.5}, ("maximum", 0.5), "set /maximum to 0"),
        ({"minLength": "3"}, ("minLength", "3"), "set /minLength to 3"),
        ({"minLength": "9" * 5000}, ("minLength", "9" * 5000), "remove /minLength"),
        ({"required": "a"}, ("required", "a"), 'set /required to ["a"]'),
        ({"type": "object", "properties": []}, ("properties", []), "set /properties to {}"),
        ({"type": "NoneType"}, ("type", "NoneType"), 'set /type to "null"'),
        ({"additionalProperties": "false"}, ("additionalProperties", "false"), "set /additionalProperties to false"),
    ],
)
def test_what_an_author_meant_is_put_in_place_of_what_is_refused(
    schema: dict[str, Any], wrong: tuple[str, Any], edit: str
) -> None:
    keyword, value = wrong

    def refuses(schema: Any) -> str | None:
        return "wrong" if keyword in schema and repr(schema[keyword]) == repr(value) else None

    (fault,) = faults(schema, refuses)
    assert (fault.keyword, str(fault.edit)) == (keyword, edit)


@pytest.mark.parametrize(
    ("parameters", "edit"),
    [
        ('{"type": "object"}', 'set the whole schema to {"type": "object"}'),
        ("none", 'set the whole schema to {"type": "null"}'),
        (True, "set the whole schema to {}"),
        ([], "set the whole schema to {}"),
    ],
)
def test_parameters_that_are_no_object_are_replaced(parameters: Any, edit: str) -> None:
    (fault,) = faults(parameters, lambda schema: None if isinstance(schema, dict) else "not an object")
    assert (fault.pointer, fault.keyword, str(fault.edit)) == ("", None, edit)


def test_a_refusal_that_even_the_empty_schema_meets_is_not_about_the_schema() -> None:
    (fault,) = faults({"type": "object"}, lambda _schema: "this backend takes nothing")
    assert (fault.pointer, fault.keyword, fault.edit) == ("", None, None)


def test_a_name_is_a_keyword_only_where_a_schema_stands() -> None:
    assert keyword_at(("properties", "format")) == "properties"
    assert keyword_at(("properties", "format", "format")) == "format"
    assert keyword_at(("items", "type")) == "type"
    assert keyword_at(("items", 0, "type")) == "type"
    assert keyword_at(("required", 1)) == "required"
    assert keyword_at(()) is None
