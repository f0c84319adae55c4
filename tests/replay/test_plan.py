import pytest

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay.plan import Cookie, Start, calls, choose, plan
from gymtap.schemas import Call

NEW, BACK, CLOSE = "new session", "brings the session back to where it was", "closes the session"


def told(made):
    return [(step.original.exchange.id, step.why) for step in made.steps]


@pytest.mark.parametrize("text", ["", "verify:0", "verify:x", "tool:", "Verify", "frobnicate", "tool:-1"])
def test_a_start_that_is_none_is_refused(text):
    with pytest.raises(UsageError):
        Start.parse(text)


def test_a_start_reads_back():
    assert [Start.parse(text).name for text in ("run", "tool:2")] == ["run", "tool:2"]


def test_a_run_a_model_and_a_provider_call_are_sent_alone(row):
    for start, wanted in (("run", "a1"), ("model", "a4"), ("model:2", "a7"), ("provider:2", "a8"), ("seed", "a2")):
        assert told(plan(row, choose(row, Start.parse(start)))) == [(wanted, "judged")]


def test_verify_gets_a_fresh_session_with_its_tool_calls_and_the_new_cookie_in_the_old_ones_place(row):
    made = plan(row, choose(row, Start.parse("verify")))
    assert told(made) == [("a2", NEW), ("a6", BACK), ("a9", "judged")]
    assert made.target.cookies == (
        Cookie("Weather___weather", 1, "eyJz.old.sig"),
        Cookie("Policy___policy", None, "p.q.r"),
    )
    assert made.steps[1].cookies == (Cookie("Weather___weather", 0, "eyJz.old.sig"),)


def test_without_rebuilding_only_the_session_is_new(row):
    made = plan(row, choose(row, Start.parse("verify")), rebuild=False)
    assert told(made) == [("a2", NEW), ("a9", "judged")]
    assert made.target.cookies[0].source == 0


def test_a_tool_call_is_preceded_by_the_session_and_the_tools_before_it(row, make):
    later = make("b1", Call.TOOL, {"city": "la"}, {}, at=35, headers=row[5].exchange.request.headers)
    made = plan([*row, later], later)
    assert told(made) == [("a2", NEW), ("a6", BACK), ("b1", "judged")]
    assert told(plan([*row, later], row[5])) == [("a2", NEW), ("a6", "judged")]


def test_the_agents_call_to_itself_gets_the_session_that_its_cookie_points_to(row):
    made = plan(row, choose(row, Start.parse("responses")))
    assert told(made) == [("a2", NEW), ("a3", "judged")]
    assert made.target.cookies == (Cookie("Weather___weather", 0, "eyJz.old.sig"),)


def test_a_session_that_the_row_closed_is_closed_again_and_its_invented_id_renewed(row, make):
    session = {"resources_session_id": "resources-session-0"}
    seed = make("a2", Call.SEED_SESSION, session, {}, at=1)
    close = make("b9", Call.CLOSE_SESSION, session, {}, at=90)
    made = plan([row[0], seed, *row[2:], close], row[8])
    assert told(made) == [("a2", NEW), ("a6", BACK), ("a9", "judged"), ("b9", CLOSE)]
    assert made.renewed == ("resources-session-0",)
    assert made.judged == 2


def test_headers_that_belong_to_one_connection_or_to_the_tap_are_not_sent_again(make):
    headers = (("Host", "h"), ("Content-Length", "2"), ("X-Gymtap-Parent", "a1"), ("Accept", "*/*"), ("Cookie", "a=b"))
    one = make("a1", Call.RUN, {}, {}, headers=headers)
    assert plan([one], one).target.headers == (("Accept", "*/*"),)


def test_attempts_at_one_call_count_once_and_the_last_is_what_the_caller_got(row, make):
    body = {"model": "m", "messages": []}
    tries = [
        make(f"c{n}", Call.PROVIDER, body, {"error": n}, at=50 + n, status=500, attempt=n, parent="a7")
        for n in range(3)
    ]
    found = calls([*row, *tries], Call.PROVIDER)
    assert [one.exchange.id for one in found] == ["a5", "a8", "c2"]
    assert choose([*row, *tries], Start(Call.PROVIDER)).exchange.id == "c2"


def test_a_start_that_the_row_does_not_have_says_what_it_has(row):
    with pytest.raises(UsageError) as refused:
        choose(row, Start.parse("model:3"))
    assert refused.value.hint == "this row has model:1 to model:2"
    with pytest.raises(UsageError):
        choose(row[:3], Start.parse("tool"))
