import json

import pytest

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay import edits
from gymtap.proxy.replay.plan import plan


def bodies(made):
    return {step.original.exchange.id: json.loads(step.body) for step in made.steps}


@pytest.mark.parametrize(
    ("text", "value"), [("/a=1", 1), ("/a=x", "x"), ('/a="1"', "1"), ("/a=", ""), ("/a={}", {}), ("/a=b=c", "b=c")]
)
def test_a_value_is_json_where_it_can_be_and_else_a_string(text, value):
    assert edits.assignment(text).value == value


@pytest.mark.parametrize("text", ["/a", "a=1"])
def test_an_assignment_that_is_none_is_refused(text):
    with pytest.raises(UsageError):
        edits.assignment(text)


def test_a_field_of_the_row_is_edited_in_the_seed_too_and_one_of_the_call_is_not(row):
    made = edits.edit(plan(row, row[8]), [edits.assignment("/answer=cold"), edits.assignment("/response/id=x")])
    assert bodies(made)["a9"]["answer"] == bodies(made)["a2"]["answer"] == "cold"
    assert "response" not in bodies(made)["a2"]
    assert bodies(made)["a6"] == {"city": "sf"}


def test_a_step_that_no_edit_touches_keeps_its_bytes(row):
    made = edits.edit(plan(row, row[8]), [edits.assignment("/response/id=x")])
    assert made.steps[0].body is row[1].request_body
    assert edits.edit(made, []) is made


def test_a_patch_comes_before_assignments(row):
    operations = [{"op": "add", "path": "/answer", "value": {}}]
    made = edits.edit(plan(row, row[8]), [edits.assignment("/answer/deep=1")], operations)
    assert bodies(made)["a9"]["answer"] == {"deep": 1}


def test_lone_surrogates_and_large_numbers_survive_an_edit(make, row):
    body = b'{"text":"\\ud800","big":123456789012345678901234567890}'
    one = make("a1", row[0].exchange.call, body)
    made = edits.edit(plan([one], one), [edits.assignment("/x=1")])
    assert made.target.body == body[:-1] + b',"x":1}'
    assert edits.editable(made.target).encode()
    assert edits.with_body(made, edits.editable(made.target)).target.body == made.target.body


def test_a_body_that_is_no_json_cannot_be_edited(make, row):
    one = make("a1", row[0].exchange.call, b"not json")
    with pytest.raises(UsageError):
        edits.edit(plan([one], one), [edits.assignment("/x=1")])
    with pytest.raises(UsageError):
        edits.editable(plan([one], one).target)


def test_the_change_is_shown_as_a_diff_of_values(row):
    made = edits.edit(plan(row, row[8]), [edits.assignment("/expected=warm")])
    assert [line for line in edits.changes(row[8].request_body, made.target.body) if line[0] in "+-"] == [
        '-  "expected": "cold",',
        '+  "expected": "warm",',
    ]
    assert edits.changes(b'{"a": 1}', b'{"a":1}') == []


def test_what_a_person_wrote_is_checked_before_it_is_sent(row):
    made = edits.with_body(plan(row, row[8]), edits.editable(plan(row, row[8]).target))
    assert json.loads(made.target.body) == json.loads(row[8].request_body)
    with pytest.raises(UsageError):
        edits.with_body(made, "{")
