import json

from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.replay.match import Hit, Matcher, Miss, ending, fingerprint, playable
from gymtap.schemas import Call, RowKey, TransportError, TransportErrorKind

PATH = "/v1/chat/completions"


def asked(*messages, **more):
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": text} for text in messages], **more}
    ).encode()


def provider(make, name, *messages, at=0, **more):
    return make(name, Call.PROVIDER, asked(*messages), {"choices": []}, at=at, **more)


def answered(matcher, *messages, **more):
    found = matcher.find("POST", PATH, asked(*messages, **more))
    return found.entry.exchange.id if isinstance(found, Hit) else found


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_the_order_of_keys_and_the_spacing_do_not_change_a_fingerprint(body):
    other = json.dumps(dict(reversed(body.items())), indent=2).encode()
    assert fingerprint("POST", PATH, json.dumps(body).encode()) == fingerprint("POST", PATH, other)


def test_a_path_counts_from_the_api_root_and_without_the_rollout():
    assert ending("/ng-rollout/3-0/v1/responses?x=1") == ending("/v1/responses") == ending("/openai/v1/responses")
    assert ending("/get_weather") == "/get_weather"


def test_a_request_with_other_ids_is_the_same_and_one_with_another_text_is_not(make):
    turn = asked("hi", tool="call_1a2b3c4d")
    matcher = Matcher([make("a1", Call.PROVIDER, turn, {})])
    assert isinstance(matcher.find("POST", PATH, asked("hi", tool="call_ffff0000")), Hit)
    assert isinstance(Matcher([make("a1", Call.PROVIDER, turn, {})]).find("POST", PATH, asked("ho")), Miss)


def test_the_same_request_is_answered_in_recorded_order_and_then_missed(make):
    matcher = Matcher([provider(make, "a2", "hi", at=2), provider(make, "a1", "hi", at=1)])
    assert [answered(matcher, "hi"), answered(matcher, "hi")] == ["a1", "a2"]
    missed = answered(matcher, "hi")
    assert "asked more often than recorded (2 times)" in str(missed)


def test_a_standing_playback_starts_over_and_counts_it(make):
    matcher = Matcher([provider(make, "a1", "hi")], again=True)
    assert [matcher.find("POST", PATH, asked("hi")).repeats for _ in range(3)] == [0, 1, 2]


def test_a_miss_names_the_nearest_request_and_the_first_place_where_they_part(make):
    matcher = Matcher([provider(make, "a1", "a", "b", "c"), provider(make, "a2", "x")])
    missed = answered(matcher, "a", "b", "C")
    assert isinstance(missed, Miss)
    assert missed.nearest.exchange.id == "a1"
    assert str(missed.difference) == '/messages/2/content: "c" -> "C"'


def test_a_miss_where_nothing_of_the_kind_was_recorded_says_so(make):
    missed = Matcher([provider(make, "a1", "hi")]).find("POST", "/v1/embeddings", b"{}")
    assert str(missed) == "nothing was recorded for /embeddings"


def test_loosely_the_next_call_of_the_row_that_is_most_like_it_answers(make):
    other = RowKey(task=9, rollout=0)
    entries = [provider(make, "a1", "hello", at=1), provider(make, "a2", "hello", "more", at=2)]
    matcher = Matcher([*entries, provider(make, "b1", "apples", row=other, at=3)], loose=True)
    found = matcher.find("POST", PATH, asked("hello!"))
    assert isinstance(found, Hit)
    assert (found.entry.exchange.id, found.loose.pointer) == ("a1", "/messages/0/content")
    assert [one.exchange.id for one in matcher.left()] == ["a2", "b1"]


def test_what_was_not_asked_for_is_left(make):
    matcher = Matcher([provider(make, "a1", "hi"), provider(make, "a2", "ho", at=1)])
    answered(matcher, "ho")
    assert [one.exchange.id for one in matcher.left()] == ["a1"]


def test_requests_that_several_rows_made_are_counted_because_their_answers_may_change_places(make):
    rows = [provider(make, f"a{n}", "hi", row=RowKey(task=0, rollout=n), at=n) for n in range(2)]
    assert Matcher([*rows, provider(make, "b1", "ho")]).shared() == 1


def test_a_secret_in_a_request_does_not_hide_what_was_recorded_without_it(make):
    recorded = make("a1", Call.PROVIDER, b'{"api_key":"<redacted>","messages":[]}', {})
    found = Matcher([recorded]).find("POST", PATH, b'{"api_key":"sk-0123456789abcdef","messages":[]}')
    assert isinstance(found, Hit)


def test_only_what_ended_and_was_kept_whole_can_be_played(make):
    reset = TransportError(kind=TransportErrorKind.RESET, message="reset")
    whole, open_, broken = (
        provider(make, "a1", "hi"),
        provider(make, "a2", "hi", status=None),
        provider(make, "a3", "hi", status=None, error=reset),
    )
    assert [one.exchange.id for one in playable([whole, open_, broken])] == ["a1", "a3"]


def test_the_models_are_those_that_were_asked_for(make):
    assert Matcher([provider(make, "a1", "hi"), provider(make, "a2", "ho")]).models() == ["m"]
