"""Reads what a run left beside its output, as a stream: counts, identities, cut lines, and a sample of rows.

Gym names what belongs to an output after it: `X.jsonl` has `X_materialized_inputs.jsonl`, `X_failures.jsonl`,
`X_aggregate_metrics.json` (before it, `X_agent_metrics.json`) and, once profiled, `X_reward_profiling.jsonl`; health
files have names of their own in the same folder. A file may be larger than memory: of each row only its
identity is held, as one integer.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.diagnose.evidence import read_json

FIRST_ROWS = 400
ODD_ROWS = 400
"""So many rows from the start, and so many that look odd, are looked into by the rules of a diagnosis."""
MAX_KEPT_BYTES = 64 * 2**20
"""And no more than this of them, since a long conversation is megabytes."""
_NAMED = 5
_INPUTS = "_materialized_inputs.jsonl"
_METRICS = ("_aggregate_metrics.json", "_agent_metrics.json", "_reward_profiling.jsonl", "_repeat_level_metrics.json")
_TOLD = ('"detail"', '"error"', "Error(", "Traceback", "Exception")
"""What a tool's answer has in it when the tool failed."""

type Key = tuple[int | str | None, int | str | None]
"""(task, rollout), as Gym's `_ng_task_index` and `_ng_rollout_index`."""


@dataclass(frozen=True)
class RunFiles:
    """Where a run's files are; None where one is not there."""

    output: Path | None
    inputs: Path | None
    failures: Path | None
    metrics: tuple[Path, ...] = ()
    verdicts: Path | None = None

    @property
    def name(self) -> str:
        """What people call the run."""
        named = self.output or self.inputs or self.failures
        return named.name if named else "?"


def beside(output: Path) -> RunFiles:
    """The files of the run with that output, or of the one run in that folder. Raises UsageError."""
    if output.is_dir():
        output = _only_output(output)
    stem = output.name.removesuffix(".jsonl")

    def there(path: Path) -> Path | None:
        return path if path.is_file() else None

    metrics = tuple(path for path in (output.with_name(stem + ending) for ending in _METRICS) if path.is_file())
    found = RunFiles(
        output=there(output),
        inputs=there(output.with_name(stem + _INPUTS)),
        failures=there(output.with_name(f"{stem}_failures.jsonl")),
        metrics=metrics,
        verdicts=there(output.with_name("rollout_verdicts.jsonl")),
    )
    if found.output is None and found.inputs is None:
        raise UsageError(f"{output}: no such file", "--output names a run's rollouts, as in results/rollouts.jsonl")
    return found


def _only_output(folder: Path) -> Path:
    found = sorted(folder.glob(f"*{_INPUTS}"))
    if len(found) != 1:
        names = ", ".join(path.name.replace(_INPUTS, ".jsonl") for path in found[:_NAMED]) or "none"
        raise UsageError(f"{folder}: holds {len(found)} runs ({names})", "name the rollouts: results/rollouts.jsonl")
    return found[0].with_name(found[0].name.replace(_INPUTS, ".jsonl"))


@dataclass
class Rows:
    """What one JSON Lines file comes to. Line numbers count from 1.

    `broken` has lines that are not JSON, `cut` the last one where it has no end; `keys` hashes of the identities.
    `repeated` has identities that are there more than once, each with its count.
    `responses` counts rows with a response, `usage_missing` those of them without usage. `kept` has rows to look into.
    """

    path: Path
    count: int = 0
    broken: list[int] = field(default_factory=list)
    cut: int | None = None
    keys: set[int] = field(default_factory=set)
    repeated: dict[tuple[Any, ...], int] = field(default_factory=dict)
    responses: int = 0
    usage_missing: int = 0
    first_without_usage: int = 0
    tools_offered: bool = False
    tools_called: int = 0
    kept: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name


def read_rows(path: Path) -> Rows:
    """Read rollouts, or a sidecar's rows. Raises UsageError when the file cannot be read."""
    rows = Rows(path)
    seen: set[int] = set()
    odd, kept_bytes = 0, 0
    for number, line, ended in lines_of(path):
        rows.count += 1
        row = parsed(line)
        if not isinstance(row, dict):
            _note_broken(rows, number, ended)
            continue
        _identify(rows, row, seen)
        _tally(rows, number, row)
        is_odd = odd < ODD_ROWS and looks_odd(row)
        if (len(rows.kept) < FIRST_ROWS or is_odd) and kept_bytes + len(line) <= MAX_KEPT_BYTES:
            odd += is_odd
            kept_bytes += len(line)
            rows.kept.append((number, row))
    return rows


def lines_of(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """(number, line, whether it has its end) of every line that is not blank. Raises UsageError."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line, line.endswith(b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def parsed(line: bytes) -> Any:
    """A line as JSON, NaN and its kin included; None when it is none."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return read_json(line.decode("utf-8", "replace"))


def looks_odd(row: dict[str, Any]) -> bool:
    """Whether a result is worth a closer look: no usable reward or answer, a failure that it tells, a tool's error."""
    reward = row.get("reward")
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        return True
    if any(value and ("error" in name or "failure" in name) for name, value in row.items()):
        return True
    response = row.get("response")
    if not isinstance(response, dict) or not response.get("usage") or response.get("incomplete_details"):
        return True
    output = response.get("output")
    return not isinstance(output, list) or not output or any(map(_tells_of_an_error, output))


def _tells_of_an_error(item: Any) -> bool:
    if not isinstance(item, dict) or item.get("type") != "function_call_output":
        return False
    told = str(item.get("output"))
    return any(word in told for word in _TOLD)


def _note_broken(rows: Rows, number: int, ended: bool) -> None:
    if not ended:
        rows.cut = number
    elif len(rows.broken) < _NAMED:
        rows.broken.append(number)


def key_of(row: dict[str, Any]) -> Key | None:
    """Its (task, rollout); None where it has no task."""
    task = row.get("_ng_task_index")
    return None if not isinstance(task, int | str) else (task, row.get("_ng_rollout_index"))


def _identify(rows: Rows, row: dict[str, Any], seen: set[int]) -> None:
    key = key_of(row)
    if key is None:
        return
    rows.keys.add(hash(key))
    agent = row.get("agent_ref")
    name = agent.get("name") if isinstance(agent, dict) else None
    identity = (*key, row.get("_ng_attempt_index") or 0, name)
    hashed = hash(identity)
    if hashed in seen:
        rows.repeated[identity] = rows.repeated.get(identity, 1) + 1
    seen.add(hashed)


def _tally(rows: Rows, number: int, row: dict[str, Any]) -> None:
    response = row.get("response")
    if not isinstance(response, dict):
        return
    rows.responses += 1
    rows.tools_offered = rows.tools_offered or bool(response.get("tools"))
    output = response.get("output")
    calls = (item for item in output if isinstance(item, dict)) if isinstance(output, list) else ()
    rows.tools_called += any(item.get("type") == "function_call" for item in calls)
    if not response.get("usage"):
        rows.usage_missing += 1
        rows.first_without_usage = rows.first_without_usage or number


@dataclass
class Inputs:
    """What materialized inputs come to, beside the results that are there.

    `missing` have neither a result nor a failure (`first_missing` is one). `strangers`: results of rows that are not
    among the inputs. `repeats` counts the rollouts of a task; more than one number: tasks have different counts.
    """

    path: Path
    count: int = 0
    cut: int | None = None
    broken: list[int] = field(default_factory=list)
    missing: int = 0
    first_missing: Key | None = None
    strangers: int = 0
    repeats: dict[int, int] = field(default_factory=dict)
    kept: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


def read_inputs(path: Path, ended: set[int], results: set[int]) -> Inputs:
    """Read materialized inputs; `ended` has the hashed keys of rows that ended in any way, `results` of the results."""
    found = Inputs(path)
    keys: set[int] = set()
    tasks: dict[Any, int] = {}
    kept_bytes = 0
    for number, line, whole in lines_of(path):
        found.count += 1
        row = parsed(line)
        if not isinstance(row, dict):
            found.cut, found.broken = (
                (number, found.broken) if not whole else (found.cut, [*found.broken, number][:_NAMED])
            )
            continue
        if len(found.kept) < FIRST_ROWS and kept_bytes + len(line) <= MAX_KEPT_BYTES:
            kept_bytes += len(line)
            found.kept.append((number, row))
        if (key := key_of(row)) is not None:
            keys.add(hash(key))
            tasks[key[0]] = tasks.get(key[0], 0) + 1
            if hash(key) not in ended:
                found.missing += 1
                found.first_missing = found.first_missing or key
    found.strangers = len(results - keys) if keys else 0
    for count in tasks.values():
        found.repeats[count] = found.repeats.get(count, 0) + 1
    return found
