"""Whether a Gym run behind the tap left the files that it leaves without one.

`compare_runs.py PLAIN_A PLAIN_B TAPPED`: three directories with the outputs of the same run. What differs
between the two plain runs depends on time or chance; a place that differs in the tapped one and not between
those two is the tap's doing. Prints the places, and exits 1 when there is one of the tap's doing.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

type Place = tuple[str, str]
"""A file, and a path in its records with list positions left out: `response.output[].id`."""


def records(file: Path) -> list[Any]:
    """A file's JSON records; rows in the order of their identity, because they are written as they end."""
    text = file.read_text()
    found = [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else [json.loads(text)]
    return sorted(found, key=_identity)


def _identity(record: Any) -> tuple[Any, ...]:
    if not isinstance(record, dict):
        return ()
    agent = (record.get("agent_ref") or {}).get("name", "")
    numbers = [record.get(name) for name in ("_ng_task_index", "_ng_rollout_index", "task_index", "rollout_index")]
    return (agent, *(-1 if number is None else number for number in numbers))


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """The paths at which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one or key not in other:
                yield f"{path}.{key} is in one only"
            else:
                yield from differences(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            yield from differences(left, right, f"{path}[]")
    elif one != other or type(one) is not type(other):
        yield path or "."


def compare(one: Path, other: Path) -> dict[Place, int]:
    """How many values differ at each place of the JSON files below two directories, missing files included."""
    files = {path.relative_to(root) for root in (one, other) for path in root.rglob("*.json*")}
    found: dict[Place, int] = {}
    for file in sorted(files):
        if not ((one / file).exists() and (other / file).exists()):
            found[str(file), "the file is in one only"] = 1
            continue
        for path in differences(records(one / file), records(other / file)):
            found[str(file), path] = found.get((str(file), path), 0) + 1
    return found


def main() -> int:
    """Compare; 0 when the tap left no trace."""
    plain_a, plain_b, tapped = map(Path, sys.argv[1:4])
    chance = compare(plain_a, plain_b)
    seen = compare(plain_a, tapped)
    files = sum(1 for _ in plain_a.rglob("*.json*"))
    print(f"{files} files; {len(chance)} places differ between two runs without the tap")
    for file, path in sorted(seen.keys() - chance.keys()):
        print(f"ONLY WITH THE TAP: {file}: {path} ({seen[file, path]} values)")
    ours = seen.keys() - chance.keys()
    print(f"{len(ours)} places differ only with the tap")
    return bool(ours)


if __name__ == "__main__":
    sys.exit(main())
