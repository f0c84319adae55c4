"""Recordings of real Gym 0.7.0 runs, replayed in their true order without, and with, the causality header."""

from pathlib import Path

import pytest
from transcript import DATA, SAMPLES, Score, kinds_of, load, replay

from gymtap.schemas import Call, Confidence, Method

SMALL = ("flow_single_tool_call_ok.jsonl", "flow_single_agent_turn_openai_model.jsonl")
LARGE = (
    "flow_ctx_tree_60rollouts.jsonl",
    "flow_4envs_multiworker_ctx.jsonl",
    "flow_observability.jsonl",
    "flow_bashenv.jsonl",
)
ALWAYS_RIGHT = (Call.RUN, Call.SEED_SESSION, Call.RESPONSES, Call.TOOL, Call.VERIFY, Call.CLOSE_SESSION)


def recording(name: str) -> Path:
    path = DATA / name if name in SMALL else SAMPLES / name
    if not path.exists():
        pytest.skip(f"{name} is too large to be part of this repository and is not beside it")
    return path


def check(score: Score) -> None:
    assert score.wrong == []
    assert score.wrong_parents == []
    assert score.missed == []
    for call in ALWAYS_RIGHT:
        assert score.right[call] == score.total(call), call


@pytest.mark.parametrize("name", SMALL + LARGE)
@pytest.mark.parametrize("guessing", [False, True], ids=["kinds given", "kinds guessed"])
def test_without_header(name: str, guessing: bool) -> None:
    """Every self-call, tool, seed and verify call finds its row; nothing that is said surely is wrong."""
    records = load(recording(name))
    score, _ = replay(records, {} if guessing else kinds_of(records))
    print(f"\n{name}\n{score.report()}")  # noqa: T201  figures for `pytest -s`
    check(score)


@pytest.mark.parametrize("name", [SMALL[1], *LARGE[:2]])
def test_with_header(name: str) -> None:
    """The causality header makes every row and every parent exact."""
    records = load(recording(name))
    score, tap = replay(records, kinds_of(records), causality=True)
    check(score)
    for told in tap.book.told.values():
        assert (told.attribution.confidence is Confidence.CERTAIN) == (told.attribution.row is not None)
    assert sum(score.right.values()) == sum(score.parents.values()) > 0


@pytest.mark.parametrize("name", SMALL + LARGE)
def test_kinds_are_guessed_as_given(name: str) -> None:
    """Traffic alone tells the kinds that the configuration gives."""
    records = load(recording(name))
    _, tap = replay(records, {})
    given = kinds_of(records)
    assert len(tap.book.kinds) >= 5
    assert {name: kind for name, kind in tap.book.kinds.items() if given.get(name, kind) is not kind} == {}


def test_rowless_calls_say_why() -> None:
    """Health, head and aggregate calls are known for what they are, and have no row."""
    records = load(recording(SMALL[0]))
    _, tap = replay(records, kinds_of(records))
    rowless = [told for told in tap.book.told.values() if told.call in {Call.HEALTH, Call.HEAD, Call.AGGREGATE}]
    assert len(rowless) == 5
    assert {(told.attribution.method, told.attribution.confidence) for told in rowless} == {
        (Method.NONE, Confidence.NONE)
    }
    assert all(told.attribution.evidence for told in rowless)


@pytest.mark.parametrize("guessing", [False, True], ids=["kinds given", "kinds guessed"])
def test_failed_rows(guessing: bool) -> None:
    """Failing rows are attributed as well as good ones: one row in flight, nothing wrong, nothing left out."""
    folders = sorted((SAMPLES / "failures").glob("*/boundaries.jsonl")) if SAMPLES.exists() else []
    if not folders:
        pytest.skip("the recordings of failures are not beside this repository")
    unknown = 0
    for path in folders:
        records = load(path)
        score, _ = replay(records, {} if guessing else kinds_of(records))
        check(score)
        has_run = any(record["path"] == "/run" for record in records)
        unknown += sum(score.unknown.values()) if has_run else 0
        assert not has_run or sum(score.ambiguous.values()) == 0
    print(f"\n{len(folders)} recordings of failures, {unknown} exchanges of unknown row")  # noqa: T201  figures
    assert unknown == 0
