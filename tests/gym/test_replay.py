"""Replays and a whole playback on NeMo Gym 0.7.0 itself, with rewards that differ and a provider that is gone."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gymtap.proxy.store import Capture

ROOT = Path(__file__).parents[2]
FAILING = ROOT / "examples" / "failing_gym"
CONFIG = """config_paths:
- resources_servers/travel_desk/configs/travel_desk.yaml
- responses_api_models/vllm_model/configs/vllm_model.yaml
"""
REFUSED, USES_TOOL = 3, 0
"""The row whose verify answers 422, and one whose tool asks the provider itself."""


def rows() -> list[dict[str, Any]]:
    """Six cities; two budgets that leave less, an answer that names another city, and a field that is missing."""
    wanted: list[dict[str, Any]] = [
        {"expected_city": "Porto"},
        {"expected_city": "Turin", "budget": 25},
        {"expected_city": "Atlantis", "budget": 50},
        {},
        {"expected_city": "Perth", "budget": 400},
        {"expected_city": "Atlantis"},
    ]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "name": "describe_city", "description": "Look it up.", "strict": True}
    made = []
    for city, fields in zip(("Porto", "Turin", "Delhi", "Tunis", "Perth", "Lagos"), wanted, strict=True):
        turn = {"role": "user", "content": f"Tell me about {city}."}
        params = {"input": [turn], "tools": [tool | {"parameters": schema | {"additionalProperties": False}}]}
        agent = {"type": "responses_api_agents", "name": "travel_desk_simple_agent"}
        made.append({"responses_create_params": params, "agent_ref": agent} | fields)
    return made


@contextmanager
def started(command: list[str], log: Path, **given: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that gets SIGINT at the end, and is ended when it does not mind that."""
    with (
        log.open("w") as file,
        subprocess.Popen(command, text=True, **({"stdout": file, "stderr": file} | given)) as one,
    ):
        try:
            yield one
        finally:
            if one.poll() is None:
                one.send_signal(signal.SIGINT)
            try:
                one.wait(60)
            except subprocess.TimeoutExpired:
                one.kill()


def until(holds: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    limit = time.monotonic() + 300
    while not holds():
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < limit, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)


def gymtap(*words: str, code: int = 0) -> Any:
    """A command's JSON."""
    command = [sys.executable, "-m", "gymtap", *words, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr[-3000:]
    return json.loads(ended.stdout)


@pytest.mark.gym
@pytest.mark.timeout(400)
def test_a_run_is_played_back_and_its_rows_are_replayed_without_a_provider(gym_python: Path, tmp_path: Path) -> None:
    """One start of Gym. The provider ends after the first collection; all that follows is answered from the capture."""
    del gym_python  # examples/gym.sh finds it; here it only skips
    shutil.copytree(FAILING / "resources_servers", tmp_path / "resources_servers")
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    capture = tmp_path / "capture"
    given: dict[str, Any] = {"cwd": ROOT, "env": os.environ | {"GYMTAP_GYM_WORK": str(tmp_path)}}
    provider_command = [sys.executable, str(FAILING / "provider.py")]
    with ExitStack() as stack:
        with started(provider_command, tmp_path / "provider.log", stdout=subprocess.PIPE) as provider:
            assert provider.stdout is not None
            url = provider.stdout.readline().strip()
            model = ("--model", "stub-model", "--model-url", url, "--model-api-key", "EMPTY")
            tap = [sys.executable, "-m", "gymtap", "run", "--capture", str(capture), "--"]
            serve = [*tap, "examples/gym.sh", "env", "start", "--config", "config.yaml", *model]
            gym = stack.enter_context(started(serve, tmp_path / "gym.log", **given))
            until(
                lambda: "servers ready!" in (tmp_path / "gym.log").read_text(errors="replace"),
                gym,
                tmp_path / "gym.log",
            )
            recorded = collected("recorded", tmp_path, given)
        assert recorded == {0: 0.75, 1: 1.0, 2: 0.5, 4: 0.5625, 5: 0.25}

        assert played_back(capture, url, tmp_path, given) == recorded
        known = gymtap("rows", str(capture))["rows"]
        why = gymtap("why", f"{REFUSED}.0", "-c", str(capture))
        replay(capture)

        assert gymtap("rows", str(capture))["rows"] == known
        assert gymtap("why", f"{REFUSED}.0", "-c", str(capture)) == why
    assert Capture(capture).info().gaps == ()


def collected(name: str, work: Path, given: dict[str, Any]) -> dict[int, float]:
    """Collect with the servers that run; each task's reward, where there is one."""
    output = work / name / "rollouts.jsonl"
    options = ["--concurrency", "3", "++route_failures_to_sidecar=true"]
    command = [
        "examples/gym.sh",
        "eval",
        "run",
        "--no-serve",
        "--input",
        "rows.jsonl",
        "--output",
        str(output),
        *options,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **given)
    assert output.exists(), ended.stderr[-3000:]
    rollouts = [json.loads(line) for line in output.read_text().splitlines()]
    return {rollout["_ng_task_index"]: rollout["reward"] for rollout in rollouts if "reward" in rollout}


def played_back(capture: Path, url: str, work: Path, given: dict[str, Any]) -> dict[int, float]:
    """The rewards of the same rows, answered where the provider was by what it had said."""
    command = [sys.executable, "-m", "gymtap", "playback", str(capture), "--listen", urlsplit(url).netloc, "--json"]
    log, said = work / "playback.log", work / "playback.json"
    with said.open("w") as file, started(command, log, stdout=file) as playback:
        until(lambda: "recorded call" in log.read_text(), playback, log)
        rewards = collected("played", work, given)
    tally = json.loads(said.read_text())
    assert (tally["missed"], tally["misses"]) == (0, [])
    assert tally["answered"] >= 3 * len(rows())
    return rewards


def replay(capture: Path) -> None:
    """The steps that a person takes: does it still fail, is this the mend, and the whole row without a model."""
    again = ("replay", "-c", str(capture), "--yes")
    [found] = gymtap(*again, f"{REFUSED}.0", "--from", "verify")["results"]
    assert (found["verdict"], found["how"]) == ("REPRODUCED", "422 body.expected_city: Field required")
    [found] = gymtap(*again, f"{REFUSED}.0", "--from", "verify", "--set", "/expected_city=Tunis")["results"]
    assert (found["verdict"], found["attempts"][0]["reward"]) == ("FIXED", 0.75)
    [found] = gymtap(*again, f"{USES_TOOL}.0", "--stub", "provider")["results"]
    assert (found["verdict"], found["reward_before"], found["misses"]) == ("REPRODUCED", 0.75, [])
    assert found["attempts"][0]["reward"] == 0.75
    prompt = "/responses_create_params/input/0/content=Tell me about Oslo."
    [found] = gymtap(*again, f"{USES_TOOL}.0", "--stub", "provider", "--set", prompt, code=1)["results"]
    assert (found["first_difference"]["side"], found["first_difference"]["call"]) == ("request", "run")
    assert found["misses"]
