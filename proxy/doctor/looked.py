"""Gathers everything that was given, once: the capture's failing row, logs, run files, live answers, configurations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymtap.proxy.core.in_flight import alarms
from gymtap.proxy.diagnose.capture import material_of, row_material
from gymtap.proxy.diagnose.causes import Cause, causes
from gymtap.proxy.diagnose.evidence import Material, Seen
from gymtap.proxy.doctor.config_files import Flaw, read_configs
from gymtap.proxy.doctor.logs import Logs, read_logs
from gymtap.proxy.doctor.run_files import Inputs, Rows, RunFiles, beside, read_inputs, read_rows
from gymtap.proxy.doctor.stale import Comparison, compare
from gymtap.proxy.store import Capture
from gymtap.proxy.store.lately import lately
from gymtap.schemas import CaptureInfo, ServerContract

if TYPE_CHECKING:
    from gymtap.proxy.doctor.live import Live

EVERY_ROW = 2_000
"""In a capture with no more rows than this, rows that ended well are looked into as well."""

_FRESH_NS = 120 * 10**9


@dataclass(frozen=True)
class Given:
    """What to look at; at least one of these. `environment` is where configurations find their variables."""

    capture: Capture | None = None
    output: Path | None = None
    logs: tuple[Path, ...] = ()
    source: Path | None = None
    gym: str | None = None
    provider: str | None = None
    configs: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Captured:
    """What a capture comes to: its causes, the most frequent first, and the exchanges of the first one's first row.

    Where no row is at fault, `exchanges` are those that an alarm is about, and `row` is None.
    """

    info: CaptureInfo
    causes: tuple[Cause, ...]
    exchanges: tuple[Seen, ...]
    row: str | None
    contracts: tuple[tuple[ServerContract, bytes], ...]


@dataclass(frozen=True)
class Looked:
    """Everything that was found at `now_ns` (UTC); None where it was not given or is not there."""

    given: Given
    now_ns: int
    logs: Logs
    captured: Captured | None = None
    files: RunFiles | None = None
    rollouts: Rows | None = None
    failures: Rows | None = None
    inputs: Inputs | None = None
    comparison: Comparison | None = None
    live: "Live | None" = None
    config: dict[str, Any] = field(default_factory=dict)
    configs: tuple[tuple[str, Any], ...] = ()
    config_flaws: tuple[Flaw, ...] = ()

    @property
    def material(self) -> Material:
        """What the rules of a diagnosis look at."""
        results = [row for rows in (self.failures, self.rollouts) if rows for _, row in rows.kept]
        exchanges = self.captured.exchanges if self.captured else ()
        return Material(exchanges=exchanges, log=self.logs.lines, results=tuple(results))

    def fresh(self, *paths: Path | None) -> bool:
        """Whether one of the files was written within the last two minutes, so that whoever writes it may go on."""
        ages = [self.now_ns - path.stat().st_mtime_ns for path in paths if path is not None]
        return any(0 <= age_ns < _FRESH_NS for age_ns in ages)

    def place(self, where: str) -> str:
        """A place of `material` (`log:17`, `result 3`) as the file and line that a person can open."""
        number = where.removeprefix("result ")
        if where.startswith("result ") and number.isdigit():
            kept = [(rows.name, line) for rows in (self.failures, self.rollouts) if rows for line, _ in rows.kept]
            if int(number) < len(kept):
                return f"{kept[int(number)][0]}:{kept[int(number)][1]}"
        return self.logs.place(where)


def gather(given: Given, *, now_ns: int) -> Looked:
    """Look at all of it. Raises UsageError and CaptureError for what cannot be read."""
    logs = read_logs(given.logs)
    files = beside(given.output) if given.output is not None else None
    rollouts = read_rows(files.output) if files and files.output else None
    failures = read_rows(files.failures) if files and files.failures else None
    results = rollouts.keys if rollouts else set()
    ended = results | (failures.keys if failures else set())
    inputs = read_inputs(files.inputs, ended, results) if files and files.inputs else None
    config, configs, flaws = read_configs(given.configs)
    return Looked(
        given=given,
        now_ns=now_ns,
        logs=logs,
        captured=_captured(given.capture, now_ns) if given.capture is not None else None,
        files=files,
        rollouts=rollouts,
        failures=failures,
        inputs=inputs,
        comparison=compare(given.source, files.inputs) if given.source and files and files.inputs else None,
        live=_look(given.gym, given.provider) if given.gym or given.provider else None,
        config=config,
        configs=tuple(configs),
        config_flaws=tuple(flaws),
    )


def _look(gym: str | None, provider: str | None) -> "Live":
    from gymtap.proxy.doctor.live import look  # noqa: PLC0415 - an HTTP client takes half a second to load

    return look(gym, provider)


def _captured(capture: Capture, now_ns: int) -> Captured:
    info = capture.info()
    found = [
        cause
        for cause in causes(capture, now_ns=now_ns, every_row=info.rows <= EVERY_ROW)
        if not (info.live and cause.example.rule is None)  # rows that are under way
    ]
    label = found[0].rows[0] if found else None
    row = next((row for row in capture.rows() if row.key.label == label), None) if label else None
    exchanges = row_material(capture, row, now_ns=now_ns).exchanges if row else _alarming(capture, now_ns)
    contracts = [(contract, capture.document(contract)) for contract in capture.contracts()]
    known = tuple((contract, document) for contract, document in contracts if document is not None)
    return Captured(info, tuple(found), exchanges, label, known)


def _alarming(capture: Capture, now_ns: int) -> tuple[Seen, ...]:
    """What the first alarm's server was asked: a run that never ends has no failed row, and is not healthy."""
    live, opened, recent, at_ns = lately(capture, now_ns)
    told = alarms(opened if live else [], recent, at_ns)
    if not told:
        return ()
    asked = [one for one in recent if one.server == told[0].server]
    return material_of(capture, asked, now_ns=now_ns).exchanges
