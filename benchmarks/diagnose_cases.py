"""Diagnose every case file of a folder from its inputs alone, one JSON line each; --score says how often it is right.

Usage: python benchmarks/diagnose_cases.py DIR [--score] [--half even|odd]

A case is diagnosed from `exchanges`, `row`, `rows`, `log`, `files` and `collector_result`. `expected` is read only
with --score, after the diagnosis is made, and printed beside it.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymtap.proxy.diagnose import diagnose, from_case
from gymtap.schemas import Diagnosis, Layer, Severity

INPUTS = ("exchanges", "row", "rows", "log", "files", "collector_result")
LAYERS = {
    "infra": Layer.INFRA,
    "model serving": Layer.MODEL_SERVING,
    "config": Layer.CONFIG,
    "data/schema": Layer.DATA_SCHEMA,
    "verifier/runtime": Layer.VERIFIER_RUNTIME,
    "cache/resume": Layer.CACHE_RESUME,
    "throughput/resources": Layer.THROUGHPUT_RESOURCES,
    "none": Layer.NONE,
    "unknown": Layer.UNKNOWN,
}


def case_files(folder: Path, half: str | None) -> list[Path]:
    """The folder's case files in order; only every second one where a half is asked for."""
    paths = sorted(folder.glob("*.json"))
    return paths if half is None else paths[0 if half == "even" else 1 :: 2]


def diagnosed(case: dict[str, Any]) -> Diagnosis:
    """The diagnosis of a case's inputs; nothing else of the case is looked at."""
    return diagnose(from_case({name: case[name] for name in INPUTS if name in case}))


def shown(name: str, diagnosis: Diagnosis) -> dict[str, Any]:
    """The one line that is printed for a case."""
    texts = [diagnosis.innermost.leaf.text] if diagnosis.innermost else []
    texts += [evidence.text for evidence in diagnosis.evidence[:1] if evidence.text not in "".join(texts)]
    return {
        "id": name,
        "layer": diagnosis.layer,
        "runner_up": diagnosis.runner_up,
        "rule": diagnosis.rule,
        "cause": diagnosis.cause,
        "next_action": diagnosis.next_action,
        "innermost": "\n".join(texts) or None,
        "error_findings": [f.rule for f in diagnosis.findings if f.severity is Severity.ERROR],
    }


def judged(line: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """How a printed line compares with what the case expects."""
    layer = LAYERS[expected["layer"]]
    wanted = expected.get("innermost_body_contains")
    return {
        "layer": line["layer"] == layer,
        "layer_or_runner_up": layer in {line["layer"], line["runner_up"]},
        "innermost": None if wanted is None else wanted in (line["innermost"] or ""),
        "false_alarm": layer is Layer.NONE and bool(line["error_findings"]),
        "expected": layer,
    }


def score(paths: list[Path]) -> Iterator[str]:
    """Print what is wrong, case by case, and the totals."""
    totals = {"layer": 0, "layer_or_runner_up": 0, "innermost": 0, "wanted": 0, "false_alarm": 0}
    for path in paths:
        case = json.loads(path.read_text())
        line = shown(str(case.get("id", path.stem)), diagnosed(case))
        verdict = judged(line, case["expected"])
        totals["wanted"] += verdict["innermost"] is not None
        for name in ("layer", "layer_or_runner_up", "innermost", "false_alarm"):
            totals[name] += bool(verdict[name])
        if not verdict["layer"] or verdict["innermost"] is False or verdict["false_alarm"]:
            yield f"{path.stem}: expected {verdict['expected']}, said {line['layer']} ({line['rule']}), {verdict}"
    yield (
        f"{len(paths)} cases: layer right {totals['layer']}, with runner-up {totals['layer_or_runner_up']}, "
        f"innermost body {totals['innermost']} of {totals['wanted']}, false alarms {totals['false_alarm']}"
    )


def main() -> None:
    """Read the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--score", action="store_true", help="compare with `expected` after diagnosing")
    parser.add_argument("--half", choices=("even", "odd"), help="every second case only")
    arguments = parser.parse_args()
    paths = case_files(arguments.folder, arguments.half)
    if arguments.score:
        for text in score(paths):
            print(text)
        return
    for path in paths:
        case = json.loads(path.read_text())
        sys.stdout.write(json.dumps(shown(str(case.get("id", path.stem)), diagnosed(case))) + "\n")


if __name__ == "__main__":
    main()
