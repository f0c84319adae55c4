import json

import pytest

from gymtap.proxy.replay.verdict import Answer, Outcome, Word, fault, judge, reward, verdict
from gymtap.schemas import Call, TransportErrorKind

RESET, REFUSED = TransportErrorKind.RESET, TransportErrorKind.REFUSED


def answer(status, body=None, error=None):
    return Answer(status, None if body is None else json.dumps(body).encode(), error)


def wrapped(inner, server="Agent___agent"):
    return f"Hit an exception in {server} calling an inner server: {json.dumps(inner).encode()!r}"


MISSING_FIELD = {
    "detail": [{"type": "missing", "loc": ["body", "answer"], "msg": "Field required", "input": {"id": 1}}]
}
OTHER_INPUT = {"detail": [{"type": "missing", "loc": ["body", "answer"], "msg": "Field required", "input": {"id": 2}}]}
OTHER_FIELD = {"detail": [{"type": "missing", "loc": ["body", "options"], "msg": "Field required", "input": {}}]}
GOOD = {"reward": 1.0, "response": {"id": "resp_0123456789"}}


@pytest.mark.parametrize(
    ("recorded", "replayed", "outcome"),
    [
        (answer(422, MISSING_FIELD), answer(422, OTHER_INPUT), Outcome.REPRODUCED),
        (answer(422, MISSING_FIELD), answer(422, OTHER_FIELD), Outcome.DIFFERENT),
        (answer(422, MISSING_FIELD), answer(200, GOOD), Outcome.FIXED),
        (answer(422, MISSING_FIELD), answer(200, {"score": 1}), Outcome.DIFFERENT),
        (answer(500, wrapped(MISSING_FIELD)), answer(500, wrapped(OTHER_INPUT)), Outcome.REPRODUCED),
        (answer(500, wrapped(MISSING_FIELD)), answer(500, wrapped(OTHER_FIELD)), Outcome.DIFFERENT),
        (answer(200, {"score": 1}), answer(200, {"score": 1}), Outcome.REPRODUCED),
        (answer(200, {"score": 1}), answer(200, GOOD), Outcome.FIXED),
        (answer(200, GOOD), answer(200, {**GOOD, "response": {"id": "resp_9876543210"}}), Outcome.REPRODUCED),
        (answer(200, GOOD), answer(200, {**GOOD, "reward": 0.0}), Outcome.DIFFERENT),
        (answer(200, GOOD), answer(500, "KeyError('x')"), Outcome.DIFFERENT),
        (answer(None, error=RESET), answer(None, error=RESET), Outcome.REPRODUCED),
        (answer(None, error=RESET), answer(None, error=REFUSED), Outcome.DIFFERENT),
        (answer(None), answer(200, GOOD), Outcome.FIXED),
        (answer(500, "at 0x7f12ab34 KeyError"), answer(500, "at 0x7f99ff00 KeyError"), Outcome.REPRODUCED),
    ],
)  # fmt: skip
def test_two_verifies_are_the_same_when_what_is_behind_their_wrappers_is(recorded, replayed, outcome):
    assert judge(Call.VERIFY, recorded, replayed).outcome is outcome


def test_how_it_differs_is_said():
    assert (
        "body.options: Field required" in judge(Call.VERIFY, answer(422, MISSING_FIELD), answer(422, OTHER_FIELD)).how
    )
    assert judge(Call.VERIFY, answer(200, GOOD), answer(200, {**GOOD, "reward": 0})).how == "reward 1.0 -> 0.0"
    other = {**GOOD, "response": {"id": "resp_9876543210", "text": "warm"}}
    assert judge(Call.VERIFY, answer(200, GOOD), answer(200, other)).how == '/response/text: (absent) -> "warm"'


@pytest.mark.parametrize("found", [True, "1", None, float("nan"), float("inf"), [1]])
def test_a_reward_that_is_no_finite_number_is_none(found):
    assert reward(json.dumps({"reward": found}).encode()) is None
    assert fault(Call.RUN, answer(200, {"reward": found})) == "200 without a reward"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"choices":[]}', None),
        (b'{"output":[]}', None),
        (b'data: {"choices":[]}\n\ndata: [DONE]\n\n', None),
        (b'{"id":"x"}', "200 without choices or output"),
        (b'{"id": "x", "cho', "200 with a body that is no JSON object"),
        (b"null", "200 with a body that is no JSON object"),
    ],
)
def test_a_provider_that_answers_200_has_to_answer_something(body, said):
    assert fault(Call.PROVIDER, Answer(200, body)) == said


def test_a_provider_error_in_a_200_is_a_failure():
    stream = b'data: {"error": {"message": "Invalid grammar", "code": 400}}\n\ndata: [DONE]\n\n'
    assert "Invalid grammar" in (fault(Call.PROVIDER, Answer(200, stream)) or "")
    assert "overloaded" in (fault(Call.PROVIDER, answer(200, {"error": {"message": "overloaded"}})) or "")


def test_a_recorded_body_that_was_not_kept_whole_is_compared_by_its_status_alone():
    cut = Answer(200, b'{"reward": 1.0, "resp', whole=False)
    assert judge(Call.TOOL, cut, answer(200, GOOD)).outcome is Outcome.REPRODUCED


def attempts(*outcomes):
    answers = {"r": answer(422, MISSING_FIELD), "f": answer(200, GOOD), "d": answer(422, OTHER_FIELD)}
    return [judge(Call.VERIFY, answer(422, MISSING_FIELD), answers[one]) for one in outcomes]


@pytest.mark.parametrize(
    ("outcomes", "word", "count"),
    [
        ("rrr", Word.REPRODUCED, 3),
        ("fff", Word.FIXED, 3),
        ("ddd", Word.DIFFERENT, 3),
        ("rfr", Word.FLAKY, 2),
        ("ffd", Word.FLAKY, 0),
        ("rd", Word.FLAKY, 1),
    ],
)
def test_one_word_stands_for_all_attempts_and_counts_those_that_did_as_recorded(outcomes, word, count):
    made = verdict(attempts(*outcomes))
    assert (made.word, made.count, made.total) == (word, count, len(outcomes))


def test_a_flaky_verdict_says_how_the_attempts_went():
    assert str(verdict(attempts(*"rffd"))) == "FLAKY 1/4: 1 reproduced, 2 fixed, 1 different"
