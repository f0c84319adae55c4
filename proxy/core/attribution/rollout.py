"""The identity that a request states itself: in its path (`/ng-rollout/12-3-a1/…`) or in its body.

Gym states indices, an explicit rollout id, or both, and often leaves out the agent; an identity is therefore a
partial row key, to be matched against the rows that are known.
"""

import re
from typing import Any, NamedTuple

from gymtap.schemas import RowKey

_PATH = re.compile(r"(?:(\d{1,18})-(\d{1,18})|(.+?))(?:-a(\d{1,9}))?")

_BREAK = re.compile(r"[\s~]")


class Stated(NamedTuple):
    """What was stated. None means: not stated. `attempt` is then the first (0).

    `path` is the id of a path as it is: which row it means only the rows can tell, because an explicit id may look like
    indices.
    """

    task: int | None = None
    rollout: int | None = None
    attempt: int | None = None
    rollout_id: str | None = None
    agent: str | None = None
    path: str | None = None

    @property
    def is_row(self) -> bool:
        """Whether this is enough to name a row."""
        return self.rollout_id is not None or self.has_indices

    @property
    def has_indices(self) -> bool:
        """Whether task and rollout are both stated."""
        return self.task is not None and self.rollout is not None

    def key(self, run: int) -> RowKey:
        """The row key within a run. The caller has checked `is_row`."""
        both = self.has_indices
        return RowKey(
            task=self.task if both else None,
            rollout=self.rollout if both else None,
            attempt=self.attempt or 0,
            rollout_id=self.rollout_id,
            run=run,
            agent=self.agent,
        )


def from_path(rollout: str) -> Stated:
    """Read the id of an `/ng-rollout/<id>` prefix as Gym 0.7 makes it.

    It is the explicit id, or else `<task>-<rollout>`, and `-a<attempt>` behind it from the second attempt on.
    """
    match = _PATH.fullmatch(rollout)
    if match is None:
        return Stated(rollout_id=_name(rollout), path=rollout)
    attempt = None if match[4] is None else int(match[4])
    if match[3] is not None:
        return Stated(rollout_id=_name(match[3]), attempt=attempt, path=rollout)
    return Stated(int(match[1]), int(match[2]), attempt, path=rollout)


def path_of(key: RowKey) -> str:
    """The id that Gym would put in a row's paths."""
    name = key.rollout_id if key.rollout_id is not None else f"{key.task}-{key.rollout}"
    return f"{name}-a{key.attempt}" if key.attempt else name


def from_body(body: Any) -> Stated:
    """Read `_ng_task_index` and its kin, or an `episode_id`, from a parsed body of any shape."""
    if not isinstance(body, dict):
        return Stated()
    stated = Stated(
        task=_index(body.get("_ng_task_index")),
        rollout=_index(body.get("_ng_rollout_index")),
        attempt=_index(body.get("_ng_attempt_index")),
        rollout_id=_name(body.get("_ng_rollout_id")),
        agent=_name(_field(body.get("agent_ref"), "name")),
    )
    return stated if stated.is_row else _episode(body.get("episode_id")) or stated


def _episode(episode: Any) -> Stated | None:
    """Gym 0.7's single_agent_turn: `{"rollout_id": "12-3", "attempt": 0}`."""
    rollout = _name(_field(episode, "rollout_id"))
    if rollout is None:
        return None
    attempt = _index(_field(episode, "attempt"))
    stated = from_path(rollout)
    return from_path(f"{rollout}-a{attempt}") if attempt and stated.attempt is None else stated


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _index(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _name(value: Any) -> str | None:
    """Keep a short printable name; whitespace would break the row's label."""
    return value if isinstance(value, str) and 0 < len(value) <= 200 and not _BREAK.search(value) else None
