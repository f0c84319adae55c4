from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.replay.plan import plan
from gymtap.proxy.replay.recorded import cookies_sent
from gymtap.proxy.replay.whole import credential_headers, lost_cookies, obstacles, redacted_places
from gymtap.schemas import Call


@given(st.binary(max_size=60) | st.just(b'{"a":["<redacted>"]}'))
def test_any_body_can_be_looked_through(body):
    assert bool(redacted_places(body)) is (b"<redacted>" in body)


@given(st.text(max_size=40))
def test_any_cookie_field_can_be_read(text):
    assert all(isinstance(name, str) for name in cookies_sent((("Cookie", text),)))


def only(one):
    return plan([one], one).target


def test_a_credential_that_was_redacted_is_known_by_its_header(make):
    one = make("a1", Call.PROVIDER, {}, {}, headers=(("Authorization", "Bearer <redacted>"), ("Accept", "*/*")))
    assert credential_headers(only(one)) == ["Authorization"]
    assert obstacles(only(one)) == []


def test_a_redacted_part_of_a_body_is_named_by_its_place(make):
    one = make("a1", Call.TOOL, {"login": {"password": "<redacted>"}, "q": ["a", "<redacted>"]}, {})
    assert obstacles(only(one)) == ["a1: /login/password was redacted", "a1: /q/1 was redacted"]
    assert redacted_places(b"pass=<redacted>") == redacted_places(b'{"<redacted>": 1}') == ["a part of the body"]


def test_an_edit_that_fills_the_place_clears_the_obstacle(make):
    step = only(make("a1", Call.TOOL, {"password": "<redacted>"}, {}))
    assert obstacles(replace(step, body=b'{"password":"x"}')) == []


def test_a_body_that_was_not_kept_whole_is_an_obstacle_until_it_is_replaced(make):
    one = make("a1", Call.TOOL, {"a": 1}, {})
    body = one.exchange.request.body.model_copy(update={"size_bytes": 3000, "missing_bytes": 1000})
    cut = replace(
        one,
        exchange=one.exchange.model_copy(update={"request": one.exchange.request.model_copy(update={"body": body})}),
    )
    assert obstacles(only(cut)) == ["a1: the request body was not kept whole: 2,000 of 3,000 bytes"]
    assert obstacles(replace(only(cut), body=b"{}")) == []


def test_a_redacted_target_is_an_obstacle(make):
    assert "key=<redacted>" in obstacles(only(make("a1", Call.TOOL, {}, {}, target="/t?key=<redacted>")))[0]


def test_redacted_cookies_are_missed_where_nothing_takes_their_place(make):
    lost = make("a1", Call.MODEL, {}, {}, headers=(("Cookie", "M___m=eyJz.ts.<redacted>"),))
    kept = make("a1", Call.MODEL, {}, {}, headers=(("Cookie", "M___m=eyJz.ts.<redacted>; other=1"),))
    assert lost_cookies(only(lost)) == ["M___m"]
    assert lost_cookies(only(kept)) == []
