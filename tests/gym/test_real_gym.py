"""NeMo Gym 0.7.0 itself behind `gymtap run`."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gymtap.proxy.store import Capture
from gymtap.schemas import ROWLESS_CALLS, Call, Confidence, Method, RowState, State

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.gym
@pytest.mark.timeout(400)
def test_every_exchange_of_a_run_is_captured_with_its_row(gym_python: Path, tmp_path: Path) -> None:
    """Ten rollouts of the shipped example: every boundary, every call, for certain, and none too many."""
    capture, output = tmp_path / "capture", tmp_path / "rollouts.jsonl"
    provider = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "stub_provider.py")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert provider.stdout is not None
        url = provider.stdout.readline().strip()
        config = ("--config", str(ROOT / "examples" / "gym_single_tool_call.yaml"), "--split", "validation")
        model = ("--model", "stub-model", "--model-url", url, "--model-api-key", "EMPTY")
        size = ("--num-repeats", "2", "--concurrency", "10", "--output", str(output))
        wrapped = [sys.executable, "-m", "gymtap", "run", "--capture", str(capture), "--"]
        ended = subprocess.run(
            [*wrapped, str(ROOT / "examples" / "gym.sh"), "eval", "run", *config, *model, *size],
            env=os.environ | {"GYMTAP_GYM_WORK": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        provider.kill()
        provider.communicate()
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert len(output.read_text().splitlines()) == 10

    opened = Capture(capture)
    assert [row.state for row in opened.rows()] == [RowState.DONE] * 10
    assert opened.info().gaps == ()
    exchanges = [item for item in opened.exchanges() if item.call not in ROWLESS_CALLS]
    assert Counter(item.call for item in exchanges) == {
        Call.RUN: 20,  # the environment server's, and the agent's
        Call.SEED_SESSION: 10,
        Call.RESPONSES: 10,
        Call.MODEL: 20,
        Call.PROVIDER: 20,
        Call.TOOL: 10,
        Call.VERIFY: 10,
    }
    assert {item.state for item in exchanges} == {State.DONE}
    assert {item.attribution.confidence for item in exchanges} == {Confidence.CERTAIN}
    assert {item.attribution.method for item in exchanges if item.parent} == {Method.CAUSALITY}
    assert sum(item.parent is None for item in exchanges) == 10
    assert _rows_by_body(opened, exchanges) == 40


def _rows_by_body(opened: Capture, exchanges: list) -> int:
    """How many exchanges carry their row's identity in the body; all of these agree with the attribution."""
    found = 0
    for item in exchanges:
        body = item.request.body
        value = json.loads(opened.body(body)) if body and body.digest else {}
        if isinstance(value, dict) and "_ng_task_index" in value:
            found += 1
            row = item.attribution.row
            assert (row.task, row.rollout) == (value["_ng_task_index"], value["_ng_rollout_index"])
    return found
