import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.pointer import pointer
from gymtap.proxy.replay import patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def places(value, at=()):
    yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from places(item, (*at, key))


@given(JSON, st.data())
def test_every_place_of_a_document_is_found_by_its_pointer(document, data):
    at = data.draw(st.sampled_from(list(places(document))))
    expected = document
    for token in at:
        expected = expected[token]
    assert patch.read(document, pointer(at)) is expected


@given(JSON, JSON, st.data())
def test_assigning_changes_one_place_of_a_copy_and_nothing_of_the_original(document, value, data):
    before = json.dumps(document)
    place = pointer(data.draw(st.sampled_from(list(places(document)))))
    assert patch.read(patch.assign(document, place, value), place) == value
    assert json.dumps(document) == before


# The examples of RFC 6902, appendix A: document, operations, result.
RFC_6902 = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [{"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    ({"foo": "bar"}, [{"op": "add", "path": "/child", "value": {"a": {}}}], {"foo": "bar", "child": {"a": {}}}),
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux", "xyz": 1}], {"foo": "bar", "baz": "qux"}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}], {"foo": ["bar", ["abc", "def"]]}),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
]


@pytest.mark.parametrize(("document", "operations", "result"), RFC_6902)
def test_the_examples_of_rfc_6902_hold(document, operations, result):
    assert patch.apply(document, operations) == result


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        ([{"op": "test", "path": "/baz", "value": "bar"}], 'tests \'/baz\' for "bar", but it is "qux"'),
        ([{"op": "test", "path": "/flag", "value": 1}], "but it is true"),
        ([{"op": "add", "path": "/no/where", "value": 1}], "there is no /no/where"),
        ([{"op": "add", "path": "/list/9", "value": 1}], "there is no /list/9"),
        ([{"op": "remove", "path": "/list/01"}], "there is no /list/01"),
        ([{"op": "move", "from": "/deep", "path": "/deep/er"}], "cannot be moved into itself"),
        ([{"op": "spam", "path": "/baz"}], "'spam' is not a patch operation"),
        ([{"op": "add", "path": "/baz"}], "needs 'value'"),
        ([{"op": "remove"}], "needs 'path'"),
        ([{"op": "remove", "path": "baz"}], "is not a JSON pointer"),
        ([{"op": "remove", "path": "/baz"}, {"op": "remove", "path": "/baz"}], "operation 2: there is no /baz"),
    ],
)
def test_what_does_not_apply_is_refused_in_words_and_leaves_the_document_alone(operations, says):
    document = {"baz": "qux", "flag": True, "list": [1], "deep": {}}
    with pytest.raises(UsageError) as refused:
        patch.apply(document, operations)
    assert says in str(refused.value)
    assert document == {"baz": "qux", "flag": True, "list": [1], "deep": {}}


def test_an_absent_place_is_explained_by_what_is_there():
    with pytest.raises(UsageError) as refused:
        patch.assign({"verifier": {"answer": 1}}, "/verifier/anwser/x", 2)
    assert refused.value.hint == "/verifier has: answer"


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"path": "/a"}]'])
def test_a_patch_that_is_none_is_refused(text):
    with pytest.raises(UsageError):
        patch.parse(text)
