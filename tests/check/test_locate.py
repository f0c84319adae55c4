from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.check.locate import Edit, Overlay, faults
from gymtap.proxy.check.schema_walk import keyword_at, subschemas
from gymtap.proxy.core.contracts.finding import pointer


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
