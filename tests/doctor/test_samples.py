"""Real failures of Gym 0.7.0, from what Gym itself left: its logs and files, with no exchange recorded."""

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.diagnose import from_case

SAMPLES = Path(__file__).parents[3] / "shared" / "gym" / "samples"
LAYERS = {
    "dbg_p400schema": "data_schema",
    "dbg_p429": "throughput_resources",
    "dbg_p500empty": "model_serving",
    "dbg_preset": "infra",
    "dbg_tool500": "verifier_runtime",
    "dbg_verify422": "data_schema",
    "dbg_verify_raise": "verifier_runtime",
    "obs_p400schema": "data_schema",
    "p400ctx": "data_schema",
    "p400plain": "model_serving",
    "p400schema": "data_schema",
    "p401": "config",
    "p401_then_ok": "config",
    "p429": "throughput_resources",
    "p429quota": "config",
    "p500empty": "model_serving",
    "p500json": "throughput_resources",
    "p502html": "infra",
    "pbadjson": "model_serving",
    "pnochoices": "model_serving",  # the provider's words are in no file of Gym's
    "preset": "unknown",  # it hung: Gym's log is silent, and nothing has ended
    "presetmid": "infra",
    "run422": "data_schema",
    "run422b": "data_schema",
    "run422c": "data_schema",
    "tool404": "model_serving",
    "tool422": "data_schema",
    "tool500": "verifier_runtime",
    "verify422": "data_schema",
    "verify422type": "data_schema",
    "verify_http": "verifier_runtime",
    "verify_noreward": "verifier_runtime",
    "verify_notjson": "verifier_runtime",
    "verify_raise": "verifier_runtime",
    "verify_wrongtype": "verifier_runtime",
}
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded Gym failures are not beside the repository")


def given(folder: Path) -> dict[str, Any]:
    output = folder / "rollouts.jsonl"
    return {"output": output if output.is_file() else None, "logs": tuple(sorted(folder.glob("*.log")))}


@pytest.mark.parametrize("tag", sorted(LAYERS))
def test_files_alone_lead_to_the_layer(doctor: Callable[..., Any], tag: str) -> None:
    looked = doctor(**given(SAMPLES / "failures" / tag))
    assert (looked.verdict[0], looked.report.exit_code) == (LAYERS[tag], 1)
    assert looked.problems
    assert looked.report.diagnosis.next_action


@pytest.mark.parametrize("name", ["files_left_by_run", "files_left_by_run_observability"])
def test_what_a_healthy_run_left_has_no_problem(doctor: Callable[..., Any], name: str) -> None:
    looked = doctor(**given(SAMPLES / name))
    assert (looked.verdict[0], looked.problems, looked.report.exit_code) == ("none", [], 0)


CASES = SAMPLES.parents[1] / "cases"


def left_on_disk(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A case's log, files and collected rows, as files; what it recorded of exchanges is left out."""
    found: dict[str, Any] = {}
    if case.get("log"):
        (folder / "run.log").write_text("\n".join(from_case({"log": case["log"]}).log) + "\n")
        found["logs"] = (folder / "run.log",)
    for file in from_case({"files": case.get("files")}).files:
        whole = not file.lines or file.lines[-1].endswith(("}", "]"))
        (folder / file.name).write_text("\n".join(file.lines) + ("\n" if whole else ""))
        if file.modified:
            at_s = datetime.fromisoformat(file.modified).timestamp()
            os.utime(folder / file.name, (at_s, at_s))
    results = from_case({"collector_result": case.get("collector_result")}).results
    if results and not case.get("files"):
        for name, failed in (("out", False), ("out_failures", True)):
            rows = [row for row in results if bool(row.get("_ng_failure_class")) is failed]
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if (folder / "out.jsonl").exists():
        found["output"] = folder / "out.jsonl"
    if (folder / "train.jsonl").exists():
        found["source"] = folder / "train.jsonl"
    return found


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases from public reports are not beside the repository")
def test_public_reports_from_what_was_left_on_disk(doctor: Callable[..., Any], tmp_path: Path) -> None:
    """Without one exchange: most layers are found, and where they are not, it hardly ever says a wrong one."""
    right, wrong = [], []
    for number, path in enumerate(sorted(CASES.glob("*.json"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        case = json.loads(path.read_text())
        looked_at = left_on_disk(case, folder)
        if not looked_at:
            continue
        layer, wanted = doctor(**looked_at).verdict[0], case["expected"]["layer"].replace("/", "_").replace(" ", "_")
        if layer == wanted:
            right.append(path.name)
        elif layer not in {"none", "unknown"}:
            wrong.append(path.name)
    assert len(right) >= 40
    assert len(wrong) <= 2
