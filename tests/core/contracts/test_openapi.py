"""Contracts read from OpenAPI documents: where a body breaks a model, in the model's own words."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.contracts.openapi import Contract, Model

PARAMS = {"input": [{"role": "user", "content": "hi"}]}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def document(schema: Any, template: str = "/verify", **components: Any) -> dict[str, Any]:
    body = {"content": {"application/json": {"schema": schema}}}
    return {"paths": {template: {"post": {"requestBody": body}}}, "components": {"schemas": components}}


def model(schema: Any, **components: Any) -> Model:
    route = Contract(document(schema, **components), "x").route("/verify")
    assert route is not None
    assert route.request is not None
    return route.request


def request_of(contract: Contract, path: str) -> Model:
    route = contract.route(path)
    assert route is not None
    assert route.request is not None
    return route.request


def test_a_missing_field_is_named_with_its_type(chaos: Contract) -> None:
    """Of a real verify model: the field is the place, and the model's word for it is kept."""
    row = {"responses_create_params": PARAMS, "response": None, "options": []}
    found = {one.path: one for one in request_of(chaos, "/verify").violations(row)}
    assert found[("expected_answer",)].missing
    assert found[("expected_answer",)].says == "string"


def test_a_wrong_type_is_named_with_what_was_there(chaos: Contract) -> None:
    row = {"responses_create_params": PARAMS, "expected_answer": "A", "options": "notalist"}
    (one,) = [one for one in request_of(chaos, "/verify").violations(row) if one.path == ("options",)]
    assert (one.wanted, one.value, one.says) == (("array",), "notalist", "list of object")


def test_an_optional_field_is_spoken_of_as_what_it_is(agent: Contract) -> None:
    """`number or null` given a word: the number is meant, not the union."""
    row = {"responses_create_params": {**PARAMS, "temperature": "hot"}}
    (one,) = request_of(agent, "/run").violations(row)
    assert one.path == ("responses_create_params", "temperature")
    assert one.wanted == ("number",)
    assert one.says is not None
    assert one.says.startswith("number or null")


def test_a_field_that_is_not_allowed_is_the_place(agent: Contract) -> None:
    row = {"responses_create_params": {"inputs": "typo", "input": "x"}}
    (one,) = request_of(agent, "/run").violations(row)
    assert (one.path, one.kind) == (("responses_create_params", "inputs"), "AdditionalProperties")


@pytest.mark.parametrize(
    "params",
    [
        PARAMS,
        {"input": "text"},
        {"input": [{"role": "developer", "content": [{"type": "input_text", "text": "x"}]}]},
        {"input": [{"type": "some_item_of_tomorrow"}]},
        {"input": "x", "tools": [{"type": "function", "name": "f"}]},
    ],
)
def test_input_items_and_tools_are_not_judged(agent: Contract, params: dict[str, Any]) -> None:
    """Gym fills them up before it validates, so that the schema refuses what the server takes."""
    assert request_of(agent, "/run").violations({"responses_create_params": params}) == []


def test_of_a_union_the_branch_that_fails_furthest_in_speaks() -> None:
    one_of = {"oneOf": [{"$ref": "#/components/schemas/A"}, {"type": "string"}]}
    inner = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    (one,) = model({"type": "object", "properties": {"u": one_of}}, A=inner).violations({"u": {"n": "x"}})
    assert one.path == ("u", "n")


def test_a_union_without_a_closest_branch_is_named_as_a_whole() -> None:
    union = {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}
    (one,) = model({"type": "object", "properties": {"u": union}}).violations({"u": "x"})
    assert (one.path, one.says) == (("u",), "integer or boolean")


def test_messages_quote_nothing_of_the_body(chaos: Contract) -> None:
    """The place is kept, and the value bounded apart from it: a message may not carry a whole row."""
    row = {"responses_create_params": {"input": "x" * 5000, "nope": "y" * 5000}, "options": "z" * 5000}
    assert all("zzz" not in one.message and "xxx" not in one.message for one in _all(chaos, row))


def _all(contract: Contract, row: Any) -> list[Any]:
    return request_of(contract, "/verify").violations(row)


def test_a_route_by_name_comes_before_a_catch_all() -> None:
    """FastAPI takes the first that fits; servers that have both declare their own routes first."""
    catch = document({"type": "object"}, "/{path}")
    exact = document({"type": "object"}, "/verify")
    contract = Contract({"paths": {**catch["paths"], **exact["paths"]}}, "x")
    assert [route.template for path in ("/verify", "/email_reply") if (route := contract.route(path))] == [
        "/verify",
        "/{path}",
    ]
    assert contract.route("/a/b") is not None  # OpenAPI does not say which parameters take slashes


def test_parameters_inside_a_path_take_one_part() -> None:
    contract = Contract(document({"type": "object"}, "/items/{id}/close"), "x")
    assert contract.route("/items/7/close") is not None
    assert contract.route("/items/7/8/close") is None
    assert contract.route("/get_weather") is None


def test_words_follow_references_and_stop() -> None:
    """A model that contains itself has words too."""
    node = {"type": "object", "title": "Node", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    assert model({"$ref": "#/components/schemas/Node"}, Node=node).says(("next", "next")) == "Node"
    loop = {"$ref": "#/components/schemas/Loop"}
    assert model({"type": "object", "properties": {"a": loop}}, Loop=loop).says(("a",)) == "anything"


def test_what_cannot_be_compiled_finds_nothing() -> None:
    assert model({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}).violations({"a": 1}) == []
    assert model({"type": "str"}).violations({"a": 1}) == []


@pytest.mark.parametrize("document", [None, [], {}, {"paths": []}, "x", 3])
def test_what_is_no_openapi_document_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="no paths"):
        Contract(document, "x")


@given(JSON, JSON)
@settings(max_examples=200, deadline=None)
def test_no_document_and_no_value_breaks_it(inside: Any, value: Any) -> None:
    """Whatever a server serves and whatever a body holds, there is a list of violations, each with a real place."""
    for post in (inside, {"requestBody": inside, "responses": inside}, document(inside)["paths"]["/verify"]["post"]):
        contract = Contract({"paths": {"/verify": {"post": post}}, "components": inside}, "x")
        route = contract.route("/verify")
        for each in (route.request, *route.responses.values()) if route else ():
            for one in each.violations(value) if each else ():
                node = value
                for part in one.path[: len(one.path) - one.missing]:
                    node = node[part]
                json.dumps(one.value)


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("uuid", ["12345678123456781234567812345678", "12345678-1234-5678-1234-567812345678"], ["123", ""]),
        ("date-time", ["2024-01-01T00:00:00Z", "2024-01-01", 1_700_000_000, "1700000000"], ["yesterday"]),
        ("date", ["2024-01-01"], ["2024-13-01"]),
        ("duration", ["PT3S", 3.5], ["soon"]),
        ("ipv4", ["127.0.0.1"], ["localhost"]),
        ("email", ["anything"], []),
        ("made-up", ["anything"], []),
    ],
)
def test_formats_are_those_of_pydantics_own_types(name: str, taken: list[Any], refused: list[Any]) -> None:
    """FastAPI writes them for the types that pydantic reads, which takes more than JSON Schema's formats do."""
    text = {"anyOf": [{"type": "string", "format": name}, {"type": "null"}]}
    made = model({"type": "object", "properties": {"a": text}})
    assert [value for value in taken if made.violations({"a": value})] == []
    assert [[one.path for one in made.violations({"a": value})] for value in refused] == [[("a",)]] * len(refused)


def test_a_field_that_is_not_wanted_is_said_with_those_that_are() -> None:
    test = {"type": "object", "properties": {"stdin": {}, "stdout": {}}, "additionalProperties": False}
    made = model({"type": "object", "properties": {"tests": {"type": "array", "items": test}}})
    [found] = made.violations({"tests": [{"stdin": "", "extra": 1}]})
    assert (found.path, found.says) == (("tests", 0, "extra"), "no other field than stdin, stdout")


def test_a_place_in_a_tuple_has_words_of_its_own() -> None:
    pair = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}
    made = model({"type": "object", "properties": {"path": pair}})
    assert made.says(("path", 1)) == "string"
    assert [(one.path, one.says) for one in made.violations({"path": [1, 2]})] == [(("path", 1), "string")]
