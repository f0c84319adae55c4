from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.filter import FIELDS, FilterError, instant, parse, quoted

LAYERS = ["infra", "model_serving", "none"]
AGENTS = ["alpha", "Beta agent", 'odd "one"']
PLACES = ["verify", "provider", "tool"]
TIMES_NS = [0, 1, 1_769_860_800_000_000_000, 1_769_860_803_500_000_000, 1_769_860_803_500_000_001]


@dataclass
class Row:
    label: str = "12.3"
    run: int = 1
    task: int | None = 12
    rollout: int | None = 3
    attempt: int = 0
    agent: str | None = "alpha"
    state: str = "failed"
    status: int | None = 500
    reward: float | None = None
    duration_ms: float | None = 2500.0
    exchanges: int = 6
    failed: int = 2
    began_ns: int = 1_769_860_800_000_000_000
    open_at: frozenset[str] = frozenset()
    failed_at: frozenset[str] = frozenset({"verify"})
    layer: str | None = "infra"
    cause: str | None = "ab12"
    words: str = "Request timed out\nplease retry"
    marked: bool = False


rows = st.builds(
    Row,
    task=st.none() | st.integers(0, 30),
    rollout=st.none() | st.integers(0, 3),
    agent=st.none() | st.sampled_from(AGENTS),
    state=st.sampled_from(["failed", "done", "running"]),
    status=st.none() | st.sampled_from([200, 404, 422, 500, 503]),
    reward=st.none() | st.sampled_from([0.0, 0.5, 1.0, -1.0]),
    duration_ms=st.none() | st.sampled_from([0.0, 400.0, 2000.0, 2500.0, 90_000.0]),
    exchanges=st.integers(0, 12),
    failed_at=st.frozensets(st.sampled_from(PLACES)),
    open_at=st.frozensets(st.sampled_from(PLACES)),
    began_ns=st.sampled_from(TIMES_NS),
    layer=st.none() | st.sampled_from(LAYERS),
    words=st.sampled_from(["Request timed out", "slow down", "", "naïve ~ \\"]),
    marked=st.booleans(),
)

type Term = tuple[str, Any]


def _compared(operator: str, found: float | None, wanted: float) -> bool:
    if found is None:
        return False
    return {
        ">": found > wanted,
        ">=": found >= wanted,
        "<": found < wanted,
        "<=": found <= wanted,
        "=": found == wanted,
        "!=": found != wanted,
    }[operator]


OPERATORS = st.sampled_from([">", ">=", "<", "<=", "=", "!="])

terms = st.one_of(
    st.lists(st.sampled_from(LAYERS), min_size=1, max_size=3).map(
        lambda names: (f"layer:{','.join(names)}", lambda row: row.layer in names)
    ),
    st.sampled_from(AGENTS).map(
        lambda name: (f"agent:{quoted(name)}", lambda row: row.agent is not None and name.lower() in row.agent.lower())
    ),
    st.sampled_from(PLACES).map(lambda place: (f"boundary:{place}", lambda row: place in row.failed_at)),
    st.integers(1, 5).map(
        lambda first: (f"status:{first}xx", lambda row: row.status is not None and row.status // 100 == first)
    ),
    st.just(("status:none", lambda row: row.status is None)),
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(
        lambda span: (f"task:{span[0]}-{span[1]}", lambda row: row.task is not None and span[0] <= row.task <= span[1])
    ),
    st.tuples(OPERATORS, st.sampled_from([("400ms", 400), ("2s", 2000), ("1.5m", 90_000), ("2", 2000)])).map(
        lambda said: (f"dur{said[0]}{said[1][0]}", lambda row: _compared(said[0], row.duration_ms, said[1][1]))
    ),
    st.tuples(OPERATORS, st.sampled_from([0, 0.5, -1])).map(
        lambda said: (f"reward{said[0]}{said[1]}", lambda row: _compared(said[0], row.reward, said[1]))
    ),
    st.tuples(OPERATORS, st.integers(0, 12)).map(
        lambda said: (f"hops{said[0]}{said[1]}", lambda row: _compared(said[0], row.exchanges, said[1]))
    ),
    st.sampled_from(PLACES).map(lambda place: (f"open:{place}", lambda row: place in row.open_at)),
    st.tuples(OPERATORS, st.sampled_from(TIMES_NS)).map(
        lambda said: (f"began{said[0]}{instant(said[1])}", lambda row: _compared(said[0], row.began_ns, said[1]))
    ),
    st.sampled_from(["failed", "done", "running"]).map(lambda state: (f"is:{state}", lambda row: row.state == state)),
    st.just(("is:marked", lambda row: row.marked)),
    st.just(("is:undiagnosed", lambda row: row.state == "failed" and row.layer is None)),
    st.sampled_from(["TIMED", "slow down", "~", '"', "\\", "ï", "x"]).map(
        lambda text: (f"~{quoted(text)}", lambda row: text.casefold() in row.words.casefold())
    ),
)
signed = st.tuples(terms, st.booleans()).map(
    lambda said: (f"-{said[0][0]}", lambda row: not said[0][1](row)) if said[1] else said[0]
)


@given(st.lists(signed, max_size=5), st.lists(rows, max_size=8))
def test_a_filter_lets_through_what_a_plain_python_filter_does(said: list[Term], found: list[Row]) -> None:
    wanted = parse(" ".join(text for text, _ in said))
    assert [row for row in found if wanted(row)] == [row for row in found if all(test(row) for _, test in said)]


@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from([*FIELDS, ":", ">=", '"', ",", "-", "~", " ", "5xx", "2s"])).map("".join)
)
def test_any_text_is_a_filter_or_says_where_it_is_none(text: str) -> None:
    wrong: FilterError | None = None
    try:
        parse(text)(Row())
    except FilterError as error:
        wrong = error
    assert wrong is None or (0 <= wrong.position <= len(text) and str(wrong))


@given(st.text(min_size=1))
def test_any_value_can_be_quoted(text: str) -> None:
    assert parse(f"agent:{quoted(text)}")(Row(agent=text))


@pytest.mark.parametrize(
    ("text", "position", "word"),
    [
        ("status:5xx colour:red", 11, "colour"),
        ("dur>soon", 4, "soon"),
        ("task:", 5, "missing"),
        ('~"open', 1, "quote"),
        ("layer>infra", 6, "no order"),
        ("is:happy", 3, "happy"),
        ("task:1 layer:infra,modell", 19, "modell"),
        ("boundary:verfy", 9, "verfy"),
        ("-state:ended", 7, "ended"),
        ("began>=noon", 7, "noon"),
        ("began>=2026-02-30", 7, "no time"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, position: int, word: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert (caught.value.position, word in str(caught.value)) == (position, True)


def test_a_time_is_read_at_any_length() -> None:
    noon = Row(began_ns=1_769_860_800_000_000_000)
    for text in ("2026-01-31T12:00", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000"):
        assert parse(f"began={text} began<2026-02-01 -began<{text}")(noon)


def test_a_caret_stands_under_the_mistake() -> None:
    """Also behind wide characters and in text of several lines."""
    with pytest.raises(FilterError) as caught:
        parse("~\N{CJK UNIFIED IDEOGRAPH-4E2D}\ncolour:red")
    assert caught.value.hint == "~\N{CJK UNIFIED IDEOGRAPH-4E2D} colour:red\n    ^"
    assert "(column 4)" in str(caught.value)


def test_the_documented_example_means_what_it_says() -> None:
    wanted = parse("layer:infra status:5xx task:12 ~timed boundary:verify dur>2s")
    assert wanted(Row())
    assert not wanted(Row(duration_ms=1999.0))
    assert not wanted(Row(failed_at=frozenset()))
    assert not wanted(Row(status=404))
