"""`gymtap rows`: every row of a capture on one line."""

import time
from collections import Counter
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureArgument, JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from gymtap.proxy.store import Capture
    from gymtap.schemas import Row, RowKey


class State(StrEnum):
    """A row's state, as `--state` names it."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Sort(StrEnum):
    """What `--sort` sorts by."""

    STARTED = "started"
    ROW = "row"
    TIME = "time"
    REWARD = "reward"
    CALLS = "calls"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rows")(_rows)


def _rows(
    capture: CaptureArgument = None,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Only rows that failed.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only rows of this agent.")] = None,
    run: Annotated[int | None, typer.Option(min=1, help="Only rows of the collector's Nth run.")] = None,
    task: Annotated[int | None, typer.Option(min=0, help="Only rollouts of this task index.")] = None,
    state: Annotated[State | None, typer.Option(help="Only rows in this state.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many rows.")] = None,
    sort: Annotated[Sort, typer.Option(help="The order; time and calls begin with the most.")] = Sort.ROW,
    as_json: JsonOption = False,
) -> None:
    """List the rows of a capture and how each went."""
    from gymtap.proxy.cli.choose import open_capture  # noqa: PLC0415 - quick `--help`
    from gymtap.schemas import RowState  # noqa: PLC0415 - quick `--help`

    opened = open_capture(capture)
    chosen = opened.rows(
        failed=failed or None, agent=agent, run=run, task=task, state=RowState(state) if state else None
    )
    found = _ordered(list(chosen), sort, time.time_ns())
    names = _names(found, agent)
    if as_json:
        screen.write_json(_document(opened, found[:limit], names))
        return
    show_rows(screen.out(), opened, found[:limit])
    if len(found) > len(found[:limit]):
        screen.note(f"{len(found) - len(found[:limit]):,} more without --limit")
    bad = next((row for row in found if row.state is RowState.FAILED), None)
    if bad is not None:
        screen.hint(f"tree {quote(names[bad.key])}", capture, "   (its calls, and the whole error)")


def _names(rows: "list[Row]", agent: str | None) -> "dict[RowKey, str]":
    """What to type for each row: its label, with the agent where that alone may name several rows."""
    counts = Counter(row.key.label for row in rows)

    def name(key: "RowKey") -> str:
        needed = key.agent is not None and (agent is not None or counts[key.label] > 1)
        return f"{key.label}~{key.agent}" if needed else key.label

    return {row.key: name(row.key) for row in rows}


def _document(capture: "Capture", rows: "list[Row]", names: "dict[RowKey, str]") -> dict[str, Any]:
    from gymtap.proxy.views.answers import row_message  # noqa: PLC0415 - quick `--help`

    findings = capture.error_findings()
    return {
        "capture": str(capture.path),
        "gaps": [gap.model_dump(mode="json") for gap in capture.gaps()],
        "rows": [
            {
                "label": names[row.key],
                "message": row_message(capture, row),
                "error_findings": findings.get(row.key, 0),
                **row.model_dump(mode="json"),
            }
            for row in rows
        ],
    }


def show_rows(out: "Console", capture: "Capture", rows: "list[Row]") -> None:
    """Draw rows, each with the innermost message of its failure; their sum goes to stderr."""
    from gymtap.proxy.views.answers import row_message  # noqa: PLC0415 - only where it is drawn
    from gymtap.proxy.views.rows_view import rows_summary, rows_table  # noqa: PLC0415 - only where it is drawn

    told = [row.model_copy(update={"error": row_message(capture, row)}) for row in rows]
    if told:
        out.print(rows_table(told, time.time_ns(), capture.error_findings()))
    screen.note(rows_summary(told))


def _ordered(rows: "list[Row]", sort: Sort, now_ns: int) -> "list[Row]":
    """In the asked order; equals stay in the order in which they began."""
    match sort:
        case Sort.STARTED:
            return rows
        case Sort.ROW:
            return sorted(rows, key=_place)
        case Sort.TIME:
            return sorted(rows, key=lambda row: -(row.duration_ms or (now_ns - row.started_ns) / 1e6))
        case Sort.REWARD:
            return sorted(rows, key=lambda row: (row.reward is None, row.reward or 0.0))
        case Sort.CALLS:
            return sorted(rows, key=lambda row: -row.exchanges)


def _place(row: "Row") -> tuple[int, bool, int, int, int, str, str]:
    """By run, task, rollout and attempt; rows known by their id alone come last."""
    key = row.key
    by_id = key.task is None
    return key.run, by_id, key.task or 0, key.rollout or 0, key.attempt, key.rollout_id or "", key.agent or ""
