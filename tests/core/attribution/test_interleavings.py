"""Whatever the order of events, no sure word is wrong, and no candidate list leaves the truth out."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traffic import Script, World

from gymtap.schemas import ROWLESS_CALLS, Call, Confidence

scripts = st.builds(
    Script,
    prompt=st.sampled_from(["what is it like in sf?", "and in la?"]),
    tools=st.integers(0, 3),
    answer=st.sampled_from(["A", "The answer is \\boxed{A}, I believe.", "Something else, and longer than that."]),
    names_row=st.sampled_from([True, True, True, False]),
    prefixed=st.booleans(),
    refusals=st.integers(0, 2),
    fails=st.booleans(),
    gives_up=st.sampled_from([False, False, False, True]),
    ids=st.sampled_from(["random", "counted", "digest"]),
    agent=st.sampled_from(["agent", "other"]),
)


def _distinct(rows: list[Script], environment: bool = True) -> list[Script]:
    """The same scripts as rows of their own: task by prompt, rollouts counted."""
    counted: Counter[tuple[str, str]] = Counter()
    distinct = []
    for script in rows:
        task = int(script.prompt != "what is it like in sf?")
        rollout = counted[script.prompt, script.agent]
        counted[script.prompt, script.agent] += 1
        fields = {**script.__dict__, "task": task, "rollout": rollout, "environment": environment}
        distinct.append(Script(**fields))
    return distinct


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.lists(scripts, min_size=1, max_size=8), seed=st.integers(0, 2**32), relayed=st.booleans())
def test_never_sure_and_wrong(rows: list[Script], seed: int, relayed: bool) -> None:
    """Any rows in any order: nothing certain or high is wrong, at no moment; no inferred parent is wrong."""
    world = World(seed=seed)
    world.play(_distinct(rows, relayed))
    assert world.wrong == []


@settings(max_examples=30, deadline=None, derandomize=True)
@given(rows=st.lists(scripts, min_size=1, max_size=8), seed=st.integers(0, 2**32))
def test_header_makes_all_exact(rows: list[Script], seed: int) -> None:
    """With the causality header every exchange has its row for certain, its parent, and its attempt."""
    world = World(seed=seed, causality=True)
    world.play(_distinct(rows))
    assert world.wrong == []
    told = world.tap.book.told
    assert {told[exchange].attribution.confidence for exchange in world.truth} == {Confidence.CERTAIN}
    assert {exchange: told[exchange].parent for exchange in world.truth} == world.parents
    assert {exchange: told[exchange].attempt for exchange in world.truth} == world.attempts


def test_crowd_of_the_same_prompt_is_ambiguous() -> None:
    """500 rows in flight with one prompt: first model calls and their provider calls name candidates, never a row."""
    world = World(seed=1)
    world.play([Script(rollout=rollout, fails=True, tools=0) for rollout in range(500)])
    told = world.tap.book.told
    confidences = Counter((t.call, t.attribution.confidence) for t in told.values() if t.call not in ROWLESS_CALLS)
    print({f"{call} {confidence}": count for (call, confidence), count in sorted(confidences.items())})  # noqa: T201  figures for `pytest -s`
    assert world.wrong == []
    assert confidences[Call.RESPONSES, Confidence.HIGH] == 500
    assert confidences[Call.MODEL, Confidence.AMBIGUOUS] > 450
    assert max(len(t.attribution.candidates) for t in told.values()) == 20


def test_success_resolves_the_crowd() -> None:
    """100 rows of one prompt that end well: all calls but provider calls without an id of their own find their row."""
    world = World(seed=2)
    world.play([Script(rollout=rollout, tools=2) for rollout in range(100)])
    told = world.tap.book.told
    confidences = Counter((t.call, t.attribution.confidence in {"high", "certain"}) for t in told.values())
    print({f"{call} {'sure' if sure else 'not'}": count for (call, sure), count in sorted(confidences.items())})  # noqa: T201  figures for `pytest -s`
    assert world.wrong == []
    assert confidences[Call.MODEL, False] == 0
    assert confidences[Call.TOOL, False] == 0
    assert confidences[Call.PROVIDER, False] == 0
