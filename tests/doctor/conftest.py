"""A run's files, made by hand as Gym 0.7.0 leaves them, and the doctor over them."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.doctor.looked import Given
from gymtap.proxy.doctor.report import Outcome, Report, Step
from gymtap.proxy.doctor.walk import examine

TASKS, REPEATS = 3, 2
OLD_S = 1_796_000_000
NOW_S = OLD_S + 10_000_000  # long after anything that a test writes


def source_row(task: int) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": f"What is {task} + {task}?"}], "temperature": 1.0}
    return {"responses_create_params": params, "expected_answer": str(2 * task)}


def identity(task: int, rollout: int) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "math_agent"}}


def result_row(task: int, rollout: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": str(2 * task), "annotations": []}
    message = {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [text]}
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
    response = {
        "id": "r",
        "object": "response",
        "status": "completed",
        "output": [message],
        "usage": usage,
        "tools": [],
    }
    params = source_row(task)["responses_create_params"]
    return {"responses_create_params": params, "response": response, "reward": 1.0} | identity(task, rollout)


@dataclass
class Run:
    """A healthy run's files; a test spoils what it is about. Every write keeps the order of times that Gym's has."""

    folder: Path

    def __post_init__(self) -> None:
        rows = [(task, rollout) for task in range(TASKS) for rollout in range(REPEATS)]
        self.write("data.jsonl", [source_row(task) for task in range(TASKS)], OLD_S)
        self.write("rollouts_materialized_inputs.jsonl", [source_row(t) | identity(t, r) for t, r in rows], OLD_S + 10)
        self.write("rollouts.jsonl", [result_row(task, rollout) for task, rollout in rows], OLD_S + 20)
        self.write("rollouts_failures.jsonl", [], OLD_S + 20)
        (self.folder / "rollouts_aggregate_metrics.json").write_text('[{"agent": "math_agent", "mean/reward": 1.0}]')

    @property
    def output(self) -> Path:
        return self.folder / "rollouts.jsonl"

    @property
    def source(self) -> Path:
        return self.folder / "data.jsonl"

    def read(self, name: str = "rollouts.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def write(self, name: str, rows: list[dict[str, Any]], at_s: int = OLD_S + 20) -> Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (at_s, at_s))
        return path

    def log(self, text: str, name: str = "servers.log") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@dataclass(frozen=True)
class Examined:
    """A report, as tests ask it."""

    report: Report

    def step(self, number: int) -> Step:
        return self.report.steps[number - 1]

    @property
    def problems(self) -> list[int]:
        return [step.number for step in self.report.steps if step.outcome is Outcome.PROBLEM]

    @property
    def verdict(self) -> tuple[str, str | None]:
        return str(self.report.diagnosis.layer), self.report.diagnosis.rule


@pytest.fixture
def doctor() -> Callable[..., Examined]:
    """`doctor(output=…, logs=…, …)`: the fields of Given."""

    def look(**given: Any) -> Examined:
        return Examined(examine(Given(**given), now_ns=NOW_S * 10**9))

    return look
