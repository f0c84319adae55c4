"""A real Gym that is made to fail: gymtap names each hop, body, field and cause while it runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAB = Path(os.environ.get("GYMTAP_GYM_LAB", ROOT.parent / "shared" / "gym"))
CASES = {
    "reset", "context-overflow", "tool-404", "tool-422", "tool-500", "verify-without-reward", "verify-422",
    "verify-422-type", "run-422-input", "run-422-type", "provider-400", "api-key", "poisoned", "missing-params", "all",
}  # fmt: skip


@pytest.mark.gym
@pytest.mark.timeout(400)
def test_every_failure_is_named_by_hop_body_field_and_cause(gym_python: Path, tmp_path: Path) -> None:
    """One start of Gym, a dozen ways to fail; every check against the recording or the provider's own words holds."""
    if not (LAB / "stub_provider.py").exists():
        pytest.skip(f"no failing environment in {LAB}: GYMTAP_GYM_LAB names a folder with lab.sh and envs/")
    script = [sys.executable, str(ROOT / "benchmarks" / "live_failures.py"), "--lab", str(LAB), "--json"]
    ended = subprocess.run(
        [*script, "--venv", str(gym_python.parents[1]), "--work", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    checks = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [check for check in checks if not check["ok"]] == [], ended.stderr[-3000:]
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert {check["case"] for check in checks} == CASES
    assert len(checks) >= 5 * len(CASES)
