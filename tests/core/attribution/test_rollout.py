"""What a request states of its row."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.attribution.rollout import Stated, from_body, from_path, path_of
from gymtap.schemas import RowKey


@pytest.mark.parametrize(
    ("rollout", "stated"),
    [
        ("12-3", Stated(12, 3)),
        ("12-3-a1", Stated(12, 3, 1)),
        ("my-id", Stated(rollout_id="my-id")),
        ("my-id-a2", Stated(rollout_id="my-id", attempt=2)),
        ("12-3-4", Stated(rollout_id="12-3-4")),
    ],
)
def test_path(rollout: str, stated: Stated) -> None:
    """A path's id is indices or an explicit id, with the attempt behind it."""
    assert from_path(rollout) == stated._replace(path=rollout)


@settings(deadline=None, derandomize=True)
@given(task=st.integers(0, 10**6), rollout=st.integers(0, 99), attempt=st.integers(0, 5))
def test_path_reads_back(task: int, rollout: int, attempt: int) -> None:
    """The id that Gym makes of a row's indices reads back as these."""
    key = RowKey(task=task, rollout=rollout, attempt=attempt)
    assert from_path(path_of(key)).key(1) == key


@pytest.mark.parametrize(
    ("body", "stated"),
    [
        ({"_ng_task_index": 0, "_ng_rollout_index": 2, "agent_ref": {"name": "a"}}, Stated(0, 2, agent="a")),
        ({"_ng_task_index": 0, "_ng_rollout_index": 2, "_ng_attempt_index": 1}, Stated(0, 2, 1)),
        ({"_ng_rollout_id": "x", "agent_ref": {"name": "a"}}, Stated(rollout_id="x", agent="a")),
        ({"episode_id": {"rollout_id": "4-1", "attempt": 0}}, Stated(4, 1, path="4-1")),
        ({"episode_id": {"rollout_id": "4-1", "attempt": 2}}, Stated(4, 1, 2, path="4-1-a2")),
        ({"agent_ref": {"name": "a"}}, Stated(agent="a")),
    ],
)
def test_body(body: object, stated: Stated) -> None:
    """Both of Gym's shapes state the row; a body that states no row may still name the agent."""
    assert from_body(body) == stated


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "x",
        {"_ng_task_index": True, "_ng_rollout_index": 0},
        {"_ng_task_index": "1", "_ng_rollout_index": 0},
        {"_ng_task_index": 1},
        {"_ng_rollout_id": "two words"},
        {"episode_id": "0-0"},
    ],
)
def test_body_that_states_no_row(body: object) -> None:
    """Half an identity, or one of the wrong type, is none."""
    assert not from_body(body).is_row
