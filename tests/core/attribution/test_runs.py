"""Runs within one capture."""

from gymtap.proxy.core.attribution.rollout import Stated
from gymtap.proxy.core.attribution.runs import Runs, Seen


def dispatch(runs: Runs, task: int, agent: str = "a", attempt: int | None = None) -> int:
    """A row from its beginning to its end."""
    run = runs.begin(Stated(task, 0, attempt, agent=agent))
    runs.end(agent)
    return run


def test_repeat_begins_a_run() -> None:
    """The same tasks twice are two runs; a task that only the second has is the second's."""
    runs = Runs()
    assert [dispatch(runs, task) for task in (0, 1, 0, 1, 2)] == [1, 1, 2, 2, 2]
    assert runs.current("a") == 2


def test_attempts_are_of_the_same_run() -> None:
    """A second attempt repeats a row within its run."""
    runs = Runs()
    assert [dispatch(runs, 0), dispatch(runs, 0, attempt=1), dispatch(runs, 0, attempt=2)] == [1, 1, 1]


def test_agents_of_one_run() -> None:
    """Two agents may be sent the same indices in one run, and both move to the next one."""
    runs = Runs()
    first = [dispatch(runs, 0, "a"), dispatch(runs, 0, "b")]
    second = [dispatch(runs, 0, "a"), dispatch(runs, 0, "b")]
    assert (first, second) == ([1, 1], [2, 2])


def test_other_collectors_are_not_split() -> None:
    """A collector that starts again does not split the run of another that has rows in flight."""
    runs = Runs()
    runs.begin(Stated(0, 0, agent="b"))
    assert [dispatch(runs, 0, "a"), dispatch(runs, 0, "a")] == [1, 2]
    assert runs.begin(Stated(1, 0, agent="b")) == 1


def test_million_rows_are_small() -> None:
    """A run's keys take a bit each."""
    seen = Seen()
    for task in range(100_000):
        assert not seen.add(Stated(task, 3))
    assert seen.add(Stated(77, 3))
    assert len(seen._pages) == 25
