"""`gymtap causes`: the rows of a capture that failed or should not count, grouped by why."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureArgument, FilterOption, JsonOption

if TYPE_CHECKING:
    from gymtap.proxy.diagnose.causes import Cause
    from gymtap.schemas import Diagnosis

_ROWS_NAMED = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("causes")(_causes)


def _causes(
    capture: CaptureArgument = None,
    *,
    every_row: Annotated[
        bool, typer.Option("--all", help="Look into every row that ended well, for what only bodies show.")
    ] = False,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"],
            metavar="TIME",
            help="Only causes first seen at this time (UTC) or later, as in 2026-11-30 or 2026-11-30T21:05:00.",
        ),
    ] = None,
    wanted: FilterOption = "",
    as_json: JsonOption = False,
) -> None:
    """Group rows that failed or should not count by cause: how many, since when, an example of each.

    Rows that ended well are looked into where an exchange in them failed, a check found an error, or no reward was
    given.
    """
    from gymtap.proxy.cli.choose import open_capture
    from gymtap.proxy.core.filter import parse
    from gymtap.proxy.diagnose.causes import causes
    from gymtap.proxy.diagnose.listing import listed_rows

    passes = parse(wanted)
    opened = open_capture(capture)
    among = {row.line.key for row in listed_rows(opened, passes)} if passes.tests else None
    found = causes(opened, now_ns=time.time_ns(), every_row=every_row, among=among)
    if since is not None:
        after_ns = int(since.replace(tzinfo=UTC).timestamp() * 1e9)
        found = [cause for cause in found if cause.first_ns >= after_ns]
    if as_json:
        screen.write_json({"capture": str(opened.path), "causes": [_document(cause) for cause in found]})
        return
    for cause in found:
        _show(cause)
    if not found:
        screen.note("no row failed" + ("" if every_row else "; --all looks for what was silently lost"))
    else:
        screen.hint(f"why {found[0].rows[0]}", capture)


def _document(cause: "Cause") -> dict[str, Any]:
    from gymtap.proxy.diagnose.document import document

    return {
        "fingerprint": cause.fingerprint,
        "count": len(cause.rows),
        "first_ns": cause.first_ns,
        "last_ns": cause.last_ns,
        "rows": cause.rows,
        "example": document(cause.example),
    }


def _show(cause: "Cause") -> None:
    from rich.text import Text

    from gymtap.proxy.views.plain import one_line
    from gymtap.proxy.views.words import counted

    layer = str(cause.example.layer)
    more = ", …" if len(cause.rows) > _ROWS_NAMED else ""
    out = screen.out()
    count = (counted(len(cause.rows), "row"), "bold")
    heading = Text.assemble(count, "  ", (layer, "red"), f"  {cause.example.rule or ''}", (_hop(cause.example), "dim"))
    out.print(heading, soft_wrap=True)
    out.print(Text(f"  {one_line(cause.example.cause)}"), soft_wrap=True)
    seen = f"{cause.fingerprint}; first {_time(cause.first_ns)}, last {_time(cause.last_ns)}"
    out.print(Text(f"  {seen}; rows {', '.join(cause.rows[:_ROWS_NAMED])}{more}", "dim"), soft_wrap=True)


def _hop(example: "Diagnosis") -> str:
    """Where it went wrong: `, verify agent->resources 422`."""
    if not example.chain:
        return ""
    hop = example.chain[-1]
    return f", {hop.call} {hop.boundary} {hop.error or hop.status}"


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
