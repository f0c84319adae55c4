"""Checks a JSON Lines file of any size: cut into ranges of bytes, looked at by several processes, merged in order.

A range owns the lines that begin in it. What a range gives back is bounded: findings are grouped by kind with a
count and the first lines, so neither a million rows nor a million mistakes cost memory.
"""

import contextlib
import functools
import os
import re
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson

from gymtap.proxy.check import contract
from gymtap.proxy.check.contract import VerifyContract
from gymtap.proxy.check.identities import Identities, identity_of
from gymtap.proxy.check.jsonl import other_format, parse_line
from gymtap.proxy.check.model_contract import ModelContract
from gymtap.proxy.check.row_shape import check_shape, is_for_run
from gymtap.proxy.check.tools import check_tools, params_of
from gymtap.proxy.core.errors import UsageError
from gymtap.schemas import Finding, Severity

RANGE_BYTES = 8 * 2**20
FIRST_LINES = 5
MAX_GROUPS = 500
_HEAD_BYTES = 4096
_TEXTUAL = frozenset(
    {"rows.json", "rows.truncated", "rows.fused", "rows.nan", "rows.surrogate", "rows.encoding", "rows.duplicate_key"}
)


@dataclass(frozen=True)
class Against:
    """What rows are held against beside Gym's wire format; one of these, or none.

    `openapi` is a file, `server` a URL; `model` is `package.module:Class` or a server's folder, for `python`.
    """

    openapi: str | None = None
    server: str | None = None
    model: str | None = None
    python: str | None = None

    def load(self) -> VerifyContract | ModelContract | None:
        """Raises UsageError when it cannot be."""
        if self.openapi:
            return contract.from_file(Path(self.openapi))
        if self.server:
            return contract.from_server(self.server)
        if self.model:
            if not self.python:
                raise UsageError(
                    "a model is loaded by an interpreter that has Gym", "--python /path/to/venv/bin/python"
                )
            if ":" not in self.model and not Path(self.model).is_dir():
                raise UsageError(f"{self.model} names no class", "--model takes package.module:Class")
            return ModelContract(self.model, self.python)
        return None


@dataclass
class Group:
    """Findings of one kind: the first of them whole, how many there are, and the first lines."""

    finding: Finding
    count: int = 0
    lines: list[int] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        whole = self.finding.model_dump(mode="json", exclude_none=True)
        return {**whole, "count": self.count, "lines": self.lines}


type Key = tuple[str, str, str]


@dataclass
class Tally:
    """What one range of a file came to; `identities` alternates hash and line, lines count from 1 in the range."""

    lines: int = 0
    rows: int = 0
    size_bytes: int = 0
    groups: dict[Key, Group] = field(default_factory=dict)
    more_kinds: int = 0
    identities: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, found: Finding, line: int) -> None:
        """Count a finding into its group."""
        key = _key(found)
        if key not in self.groups and len(self.groups) >= MAX_GROUPS:
            self.more_kinds += 1
            return
        group = self.groups.setdefault(key, Group(found))
        group.count += 1
        if len(group.lines) < FIRST_LINES:
            group.lines.append(line)


@dataclass
class RowReport:
    """A file's check. `seconds` is wall-clock time; `against` names what rows were held against."""

    file: str
    against: str | None
    total: Tally = field(default_factory=Tally)
    seconds: float = 0.0

    @property
    def groups(self) -> list[Group]:
        """Errors first, then the most frequent."""
        order = list(Severity)
        return sorted(self.total.groups.values(), key=lambda group: (order.index(group.finding.severity), -group.count))

    @property
    def errors(self) -> int:
        """Findings of severity error, each counted."""
        return sum(group.count for group in self.groups if group.finding.severity is Severity.ERROR)

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {
            "file": self.file,
            "against": self.against,
            "lines": self.total.lines,
            "rows": self.total.rows,
            "bytes": self.total.size_bytes,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.total.rows / self.seconds) if self.seconds else None,
            "errors": self.errors,
            "more_kinds": self.total.more_kinds,
            "groups": [group.as_json() for group in self.groups],
        }


def _key(found: Finding) -> Key:
    place = re.sub(r"/\d+(?=/|$)", "/*", found.pointer or "")
    gist = "" if found.rule in _TEXTUAL else re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "_", found.message)
    return found.rule, place, gist


class RowChecker:
    """Everything that is asked of one row."""

    def __init__(self, against: Against) -> None:
        self.contract = against.load()
        self._tools: dict[bytes, list[Finding]] = {}

    def close(self) -> None:
        """Let go of what the contract holds."""
        if isinstance(self.contract, ModelContract):
            self.contract.close()

    def check(self, row: Any) -> Iterator[Finding]:
        """Every finding about this row by itself."""
        yield from check_shape(row)
        if is_for_run(row):
            yield from self._about_tools(row)
        if self.contract is not None and is_for_run(row):
            yield from self.contract.check(row)

    def _about_tools(self, row: dict[str, Any]) -> list[Finding]:
        params, _at = params_of(row)
        if not params or not (params.get("tools") or "tool_choice" in params or "schema_str" in row):
            return []
        about = [params.get("tools"), params.get("tool_choice"), "schema_str" in row and row]
        key = orjson.dumps(about)
        if key not in self._tools:
            if len(self._tools) > 1000:
                self._tools.clear()
            self._tools[key] = check_tools(row)
        return self._tools[key]


@functools.lru_cache(maxsize=1)
def _checker(against: Against) -> RowChecker:
    """One per process: loading a contract may take seconds."""
    return RowChecker(against)


def check_range(file: str, start: int, end: int, against: Against) -> Tally:
    """Check the lines of a file that begin at byte `start` or later, and before `end`."""
    tally = Tally()
    checker = _checker(against)
    size = Path(file).stat().st_size
    with Path(file).open("rb") as data:
        at = start
        if start:
            data.seek(start - 1)
            at += len(data.readline()) - 1
        while at < end and (line := data.readline()):
            first, at = at == 0, at + len(line)
            tally.lines += 1
            tally.size_bytes += len(line)
            _check_line(line, tally, checker, first=first, last=at >= size)
    return tally


def _check_line(line: bytes, tally: Tally, checker: RowChecker, *, first: bool, last: bool) -> None:
    value, findings = parse_line(line, first=first, last=last)
    for found in findings:
        tally.add(found, tally.lines)
    if value is None and any(found.severity is Severity.ERROR for found in findings):
        return
    tally.rows += 1
    for found in checker.check(value):
        tally.add(found, tally.lines)
    if (identity := identity_of(value)) is not None:
        tally.identities.extend((identity, tally.lines))


def check_rows(
    file: Path,
    against: Against | None = None,
    *,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> RowReport:
    """Check a whole file, or what a pipe gives until it ends. `progress` is told how many bytes more are done.

    Raises UsageError when the file cannot be read, or what it is held against cannot be loaded.
    """
    with _on_disk(file) as path:
        report = _check_file(path, against or Against(), jobs, progress)
    report.file = str(file)
    return report


@contextlib.contextmanager
def _on_disk(file: Path) -> Iterator[Path]:
    """The file, or a temporary copy of what cannot be read from several places at once: a pipe, say."""
    with contextlib.ExitStack() as stack:
        path = file
        try:
            source = stack.enter_context(file.open("rb"))
            if not file.is_file():
                copy = stack.enter_context(tempfile.NamedTemporaryFile(prefix="gymtap-rows-"))
                shutil.copyfileobj(source, copy)
                copy.flush()
                path = Path(copy.name)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}", "name a .jsonl file") from None
        yield path


def _check_file(file: Path, against: Against, jobs: int | None, progress: Callable[[int], None] | None) -> RowReport:
    with file.open("rb") as data:
        size, head = file.stat().st_size, data.read(_HEAD_BYTES)
    if found := other_format(head):
        total = Tally(size_bytes=size)
        total.add(found, 1)
        return RowReport(str(file), None, total)
    started = time.perf_counter()
    checker = _checker(against)  # here first, so that what cannot be loaded is said once
    report = RowReport(str(file), checker.contract.name if checker.contract else None)
    try:
        with Identities() as identities:
            for tally in _tallies(file, size, against, jobs or min(os.cpu_count() or 1, 8)):
                _merge(report.total, tally, identities)
                if progress is not None:
                    progress(tally.size_bytes)
            for first, later in identities.duplicates():
                report.total.add(_duplicate(first, later), later)
        if not report.total.rows and not report.groups:
            report.total.add(Finding(rule="rows.none", severity=Severity.WARNING, message="the file has no rows"), 1)
    finally:
        checker.close()
        _checker.cache_clear()
    report.seconds = time.perf_counter() - started
    return report


def _tallies(file: Path, size: int, against: Against, jobs: int) -> Iterator[Tally]:
    ranges = [(start, min(start + RANGE_BYTES, size)) for start in range(0, size, RANGE_BYTES)]
    if jobs == 1 or len(ranges) <= 1:
        yield from (check_range(str(file), start, end, against) for start, end in ranges)
        return
    with ProcessPoolExecutor(min(jobs, len(ranges)), mp_context=get_context("spawn")) as pool:
        waiting: list[Future[Tally]] = []
        for start, end in ranges:
            waiting.append(pool.submit(check_range, str(file), start, end, against))
            if len(waiting) > 2 * jobs:
                yield waiting.pop(0).result()
        yield from (future.result() for future in waiting)


def _merge(total: Tally, tally: Tally, identities: Identities) -> None:
    before = total.lines
    total.lines += tally.lines
    total.rows += tally.rows
    total.size_bytes += tally.size_bytes
    total.more_kinds += tally.more_kinds
    for key, group in tally.groups.items():
        _merge_group(total, key, group, before)
    for identity, line in zip(tally.identities[::2], tally.identities[1::2], strict=True):
        identities.add(identity, before + line)


def _merge_group(total: Tally, key: Key, group: Group, before: int) -> None:
    if key not in total.groups and len(total.groups) >= MAX_GROUPS:
        total.more_kinds += group.count
        return
    known = total.groups.setdefault(key, Group(group.finding))
    known.count += group.count
    known.lines += [before + line for line in group.lines[: FIRST_LINES - len(known.lines)]]


def _duplicate(first: int, later: int) -> Finding:
    return Finding(
        rule="rows.duplicate_identity",
        severity=Severity.ERROR,
        message=f"lines {first} and {later} are the same row (task, rollout and agent)",
        pointer="/_ng_rollout_index",
        fix="Keep one of them; after a resume, the last.",
    )
