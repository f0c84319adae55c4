"""A row: one dispatched input of a run, and the label by which people name it.

The label is what one types: `12.3` is task 12, rollout 3; `12.3a1` its second attempt; `r2:12.3` the
same row of the second run in one capture; `@name` a row that is known by its explicit rollout id only.
Two agents that were sent the same indices in one run are told apart by `agent`, which the label omits
unless it is needed: `12.3~agent`.
"""

import re
from typing import Self

from gymtap.schemas._model import Model

_LABEL = re.compile(
    r"(?:r(?P<run>\d+):)?"
    r"(?:(?P<task>\d+)\.(?P<rollout>\d+)(?:a(?P<attempt>\d+))?|@(?P<rollout_id>[^~\s]+))"
    r"(?:~(?P<agent>\S+))?"
)


class RowKey(Model):
    """Which dispatched input it is.

    `task` and `rollout` are Gym's `_ng_task_index` and `_ng_rollout_index`; `attempt` is
    `_ng_attempt_index` (0 for the first); `rollout_id` is `_ng_rollout_id` where one was given;
    `run` counts the collector's runs within one capture, from 1; `agent` is `agent_ref.name`.
    """

    task: int | None = None
    rollout: int | None = None
    attempt: int = 0
    rollout_id: str | None = None
    run: int = 1
    agent: str | None = None

    @property
    def label(self) -> str:
        """The short name without the agent, as in `12.3`, `12.3a1`, `r2:12.3`, `@my-id`."""
        return row_label(self.run, self.task, self.rollout, self.attempt, self.rollout_id)

    @classmethod
    def parse(cls, label: str) -> Self:
        """Read a label back. Raises ValueError, with an example in its text, when it is not one."""
        match = _LABEL.fullmatch(label)
        if match is None:
            raise ValueError(f"{label!r} is not a row: write 12.3 (task 12, rollout 3), 12.3a1 or r2:12.3")
        part = match.groupdict()
        return cls(
            task=None if part["task"] is None else int(part["task"]),
            rollout=None if part["rollout"] is None else int(part["rollout"]),
            attempt=int(part["attempt"] or 0),
            rollout_id=part["rollout_id"],
            run=int(part["run"] or 1),
            agent=part["agent"],
        )


def row_label(run: int, task: int | None, rollout: int | None, attempt: int, rollout_id: str | None) -> str:
    """As `RowKey.label`, for whoever has a hundred thousand rows to name and no keys."""
    of_run = f"r{run}:" if run != 1 else ""
    if task is None or rollout is None:
        return f"{of_run}@{rollout_id}"
    return f"{of_run}{task}.{rollout}{f'a{attempt}' if attempt else ''}"
