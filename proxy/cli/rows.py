"""`gymtap rows`: every row of a capture on one line."""

import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureArgument, FilterOption, JsonOption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from gymtap.proxy.core.filter import Filter
    from gymtap.proxy.store import Capture
    from gymtap.proxy.store.listed import Listed
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
    STATUS = "status"
    REWARD = "reward"
    TIME = "time"
    CALLS = "calls"
    FAILED = "failed"
    LAYER = "layer"


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
    wanted: FilterOption = "",
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only rows in whose bodies this text occurs, in any case.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many rows.")] = None,
    sort: Annotated[
        Sort, typer.Option(help="The order; status, time, calls and failed begin with the most.")
    ] = Sort.ROW,
    reverse: Annotated[bool, typer.Option("--reverse", help="Turn the order round.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the rows of a capture and how each went."""
    from gymtap.proxy.cli.choose import open_capture
    from gymtap.proxy.core.filter import parse

    passes = parse(wanted)
    opened = open_capture(capture)
    rows = [
        row
        for row in _passing(opened, passes, diagnosed=passes.knows or as_json or sort is Sort.LAYER)
        if (not failed or row.state == State.FAILED)
        and agent in {None, row.agent}
        and run in {None, row.run}
        and task in {None, row.task}
        and state in {None, row.state}
    ]
    found = _found(opened, _ordered(rows, sort, reverse=reverse), search, agent)
    shown = found[:limit]
    if as_json:
        screen.write_json(_document(opened, shown))
        return
    _draw(opened, shown)
    if len(found) > len(shown):
        screen.note(f"{len(found) - len(shown):,} more without --limit")
    bad = next((one for one in found if one.row.state == State.FAILED), None)
    if bad is not None:
        screen.hint(f"tree {quote(bad.name)}", capture, "   (its calls, and the whole error)")


def _passing(capture: "Capture", passes: "Filter", *, diagnosed: bool) -> "list[Listed]":
    """The rows that pass; diagnoses are made only where they are asked for."""
    if diagnosed:
        from gymtap.proxy.diagnose.listing import listed_rows

        return listed_rows(capture, passes)
    from gymtap.proxy.store.listed import listed

    return [row for row in listed(capture) if passes(row)]


@dataclass(frozen=True)
class _Found:
    """A row; what to type for it; the exchanges in which a search found its text."""

    row: "Listed"
    name: str
    hits: list[str] = field(default_factory=list)


def _found(capture: "Capture", rows: "Sequence[Listed]", search: str | None, agent: str | None) -> list[_Found]:
    from gymtap.proxy.store.search import row_hits

    names = _names([row.line.key for row in rows], agent)
    if search is None:
        return [_Found(row, names[row.line.key]) for row in rows]
    found = (_Found(row, names[row.line.key], row_hits(capture, row.line.key, search)) for row in rows)
    return [one for one in found if one.hits]


def _names(keys: "list[RowKey]", agent: str | None) -> "dict[RowKey, str]":
    """What to type for each row: its label, with the agent where that alone may name several rows."""
    counts = Counter(key.label for key in keys)

    def name(key: "RowKey") -> str:
        needed = key.agent is not None and (agent is not None or counts[key.label] > 1)
        return f"{key.label}~{key.agent}" if needed else key.label

    return {key: name(key) for key in keys}


def _document(capture: "Capture", found: list[_Found]) -> dict[str, Any]:
    from gymtap.proxy.store.listed import as_row
    from gymtap.proxy.views.answers import row_message

    findings = capture.error_findings()
    rows = [(one, as_row(one.row.line)) for one in found]
    return {
        "capture": str(capture.path),
        "gaps": [gap.model_dump(mode="json") for gap in capture.gaps()],
        "rows": [
            {
                "label": one.name,
                "message": row_message(capture, row),
                "error_findings": findings.get(row.key, 0),
                "layer": one.row.layer,
                "cause": one.row.cause,
                "marked": one.row.marked,
                "comment": one.row.note.comment,
                "hits": one.hits,
                **row.model_dump(mode="json"),
            }
            for one, row in rows
        ],
    }


def _draw(capture: "Capture", found: list[_Found]) -> None:
    """What was noted and what was searched for stand before the message."""
    from gymtap.proxy.store.listed import as_row

    said = {one.row.line.key: _said(one) for one in found}
    show_rows(screen.out(), capture, [as_row(one.row.line) for one in found], lambda row: said[row.key])


def _said(one: _Found) -> str:
    told = ["*"] if one.row.marked else []
    told += [f"“{one.row.note.comment}”"] if one.row.note.comment else []
    told += [f"⌕ {', '.join(one.hits[:3])}"] if one.hits else []
    return " ".join(told)


def show_rows(
    out: "Console", capture: "Capture", rows: "list[Row]", before: "Callable[[Row], str]" = lambda _: ""
) -> None:
    """Draw rows, each with the innermost message of its failure, and `before` that; their sum goes to stderr."""
    from gymtap.proxy.views.answers import row_message
    from gymtap.proxy.views.rows_view import rows_summary, rows_table

    told = [
        row.model_copy(update={"error": " ".join(filter(None, (before(row), row_message(capture, row)))) or None})
        for row in rows
    ]
    if told:
        out.print(rows_table(told, time.time_ns(), capture.error_findings()))
    screen.note(rows_summary(told))


def _ordered(rows: "Sequence[Listed]", sort: Sort, *, reverse: bool) -> "list[Listed]":
    """In the asked order; equals stay in the order in which they began."""
    from gymtap.proxy.store.listed import SORT_KEYS, Order

    by = Order.HOPS if sort is Sort.CALLS else Order(sort)
    found = sorted(rows, key=SORT_KEYS[by])
    return found[::-1] if reverse else found
