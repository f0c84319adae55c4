"""Compares materialized inputs with the source that they were made from: times first, then every row's content.

Gym numbers tasks by the source's lines and repeats them in order, so both files are walked side by side, and
neither is held. What a run overrides for all rows alike (`++responses_create_params.temperature=…`) is not staleness.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymtap.proxy.diagnose.rules.cache_resume import differing_field
from gymtap.proxy.doctor.run_files import lines_of, parsed

_COMPARED_ROWS = 200_000
_OVERRIDABLE = frozenset({"responses_create_params"})
_OWN_TO_A_ROW = ("input", "tools", "instructions")


@dataclass(frozen=True)
class Comparison:
    """`difference` names the first row that is not what the source says; None: all `compared` rows agree.

    `overridden`: parameters differ, as an override makes them. `older`: the inputs are older than the source.
    """

    compared: int
    difference: str | None = None
    overridden: bool = False
    older: bool = False


def compare(source: Path, inputs: Path) -> Comparison:
    """Compare both. Raises UsageError when one cannot be read."""
    older = inputs.stat().st_mtime_ns < source.stat().st_mtime_ns
    rows = _rows(source)
    index, row = -1, None
    compared, overridden = 0, False
    for number, line, _ in lines_of(inputs):
        kept = parsed(line)
        task = kept.get("_ng_task_index") if isinstance(kept, dict) else None
        if not isinstance(kept, dict) or not isinstance(task, int) or task < index or compared >= _COMPARED_ROWS:
            continue
        while index < task:
            row = next(rows, None)
            if row is None:
                text = f"{inputs.name}:{number} is task {task}, which {source.name} does not have"
                return Comparison(compared, text, overridden, older)
            index += 1
        compared += 1
        name = differing_field(row, kept) if row else None
        if name in _OVERRIDABLE and row is not None and _only_overridden(row, kept):
            overridden = True
        elif name is not None:
            text = f"{inputs.name}:{number} differs from row {index + 1} of {source.name} in {name}"
            return Comparison(compared, text, overridden, older)
    return Comparison(compared, None, overridden, older)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The source's rows by task index; a line that is no object is an empty row, so that the count stays right."""
    for _, line, _ in lines_of(path):
        row = parsed(line)
        yield row if isinstance(row, dict) else {}


def _only_overridden(row: dict[str, Any], kept: dict[str, Any]) -> bool:
    """Whether parameters differ only in what a run may override, and not in what makes the row."""
    given, found = row.get("responses_create_params"), kept.get("responses_create_params")
    if not isinstance(given, dict) or not isinstance(found, dict):
        return False
    own = {name: given[name] for name in _OWN_TO_A_ROW if name in given}
    return differing_field(own, found) is None
