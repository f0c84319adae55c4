"""Makes diagnosis material of what a run left on disk, with no capture: logs, and an output with its files beside it.

Files are read, never changed. Gym names what belongs to an output after it: `X.jsonl` has
`X_materialized_inputs.jsonl`, `X_failures.jsonl` and `X_aggregate_metrics.json`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.diagnose.evidence import Material, SeenFile, read_json

MAX_LINES = 200_000
"""Longer files are read from their begin only, which is where a first cause is."""
_BESIDE = ("_materialized_inputs.jsonl", "_failures.jsonl", "_aggregate_metrics.json")


def from_paths(logs: Iterable[Path] = (), output: Path | None = None, source: Path | None = None) -> Material:
    """Logs (files, or directories of `*.log`, `*.out`, `*.err`), a run's output, its source data. Raises UsageError."""
    log = tuple(line for path in logs for file in _log_files(path) for line in _lines(file))
    files = [file for file in _files(output, source) if file.is_file()]
    failures = [file for file in files if file.name.endswith("_failures.jsonl")]
    rows = [row for file in failures for row in _rows(file)]
    seen = tuple(_seen_file(file) for file in files if file not in failures)
    return Material(log=log, files=seen, results=tuple(rows))


def _files(output: Path | None, source: Path | None) -> list[Path]:
    found = [] if source is None else [source]
    if output is not None:
        if not output.is_file():
            raise UsageError(f"{output}: no such file", "--output names a run's rollouts, as in results/rollouts.jsonl")
        stem = output.name.removesuffix(".jsonl")
        found += [output, *(output.with_name(stem + ending) for ending in _BESIDE)]
    return found


def _log_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for ending in ("*.log", "*.out", "*.err") for file in path.rglob(ending))
    if not path.is_file():
        raise UsageError(f"{path}: no such file or directory", "--log names a log, or a directory of them")
    return [path]


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line, _ in zip(file, range(MAX_LINES), strict=False)]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    found = (read_json(line) for line in _lines(path))
    return [row for row in found if isinstance(row, dict)]


def _seen_file(path: Path) -> SeenFile:
    modified = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).isoformat()
    return SeenFile(path.name, tuple(_lines(path)), modified)
