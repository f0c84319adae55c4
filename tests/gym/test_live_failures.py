"""A real Gym that is made to fail: gymtap names each hop, body, field and cause while it runs."""

import json
import os
import re
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


def test_no_transcript_tells_on_which_machine_it_was_made() -> None:
    """Paths, ports and the hour are replaced, in every page and in the index that lists it."""
    pages = sorted((ROOT / "docs" / "transcripts").glob("*.md"))
    index = (ROOT / "docs" / "transcripts" / "README.md").read_text()
    assert len(pages) == len(CASES - {"poisoned", "all"}) + 1
    for page in pages:
        text = page.read_text()
        assert not re.search(r"/(?:root|home|Users|tmp|work)/|sk-lab", text), page.name
        assert not re.search(r"127\.0\.0\.1:(?!200\d\d\b)\d", text), page.name
        assert set(re.findall(r"\b20\d\d-\d\d-\d\d\b", text)) <= {"2026-01-01"}, page.name
        assert page.name == "README.md" or f"({page.name})" in index
