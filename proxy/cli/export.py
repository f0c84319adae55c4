"""`gymtap export`: a capture, or one exchange of it, in everyone else's formats."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureArgument, FilterOption
from gymtap.proxy.core.formats import BINARY, OF_ONE, Format

if TYPE_CHECKING:
    from gymtap.proxy.core.filter import Filter
    from gymtap.proxy.export import Chosen
    from gymtap.proxy.store import Capture
    from gymtap.schemas import Row, RowKey

_INCOMPLETE_TOLD = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(_export)


def _export(
    capture: CaptureArgument = None,
    *,
    to: Annotated[Format, typer.Option("--format", "-f", help="The format; see docs/exports.md.")] = Format.JSONL,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write; stdout by default.")] = None,
    exchange: Annotated[
        list[str] | None, typer.Option("--exchange", "-x", help="Only this exchange, as a42. May be repeated.")
    ] = None,
    row: Annotated[str | None, typer.Option(help="Only this row's, as 12.3.")] = None,
    call: Annotated[str | None, typer.Option(help="Only such calls, as in provider, model, tool.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only what such servers answered, as in resources.")] = None,
    server: Annotated[str | None, typer.Option(help="Only what this server answered.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only exchanges (or rows) that failed.")] = False,
    wanted: FilterOption = "",
) -> None:
    """Write exchanges or rows as HAR, JSON lines, .mitm, Parquet, or one exchange as curl or Python."""
    from gymtap.proxy.cli.choose import open_capture, parse_row
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.core.filter import parse
    from gymtap.proxy.core.named import one_of
    from gymtap.proxy.export import Chosen, Wanted
    from gymtap.proxy.export.write import write
    from gymtap.schemas import Call, ServerKind

    ids = tuple(exchange or ())
    if to in OF_ONE and len(ids) != 1:
        raise UsageError(f"--format {to} is of one exchange", "name it, as in --exchange a42")
    if to in BINARY and output is None and sys.stdout.isatty():
        raise UsageError(f"--format {to} is binary and stdout is a terminal", "name a file with --output")
    if to is Format.ROWS and (ids or call or kind or server):
        raise UsageError("rows are chosen by --row, --filter and --failed only", "exchanges are --format jsonl")
    passes, key = parse(wanted), parse_row(row) if row is not None else None
    opened = open_capture(capture)
    rows = _rows(opened, key, passes) if key is not None or passes.tests else None
    keys = None if rows is None else frozenset(one.key for one in rows)
    chosen = Chosen(opened, Wanted(ids, keys, one_of(Call, call), one_of(ServerKind, kind), server, failed or None))
    with _opened(output) as out:
        write(to, chosen, _failing(opened.rows() if rows is None else rows, failed=failed), out)
    _tell(chosen, to, output)


def _rows(capture: "Capture", key: "RowKey | None", passes: "Filter") -> "list[Row]":
    """Those that pass; or the one that is named, if it does. Raises CaptureError where that is not there."""
    if not passes.tests:
        return [] if key is None else [capture.row(key)]
    from gymtap.proxy.diagnose.listing import listed_rows
    from gymtap.proxy.store.listed import as_row

    found = [as_row(one.line) for one in listed_rows(capture, passes)]
    named = None if key is None else capture.row(key).key
    return [row for row in found if named in {None, row.key}]


def _failing(rows: "Iterable[Row]", *, failed: bool) -> "Iterator[Row]":
    return (row for row in rows if not failed or row.state == "failed")


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """The file, or stdout."""
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from gymtap.proxy.export.write import whole

    with whole(output) as out:
        yield out


def _tell(chosen: "Chosen", to: Format, output: Path | None) -> None:
    """On stderr: how much was written, and what of it was not whole."""
    from gymtap.proxy.views.words import counted

    if chosen.incomplete:
        screen.note(f"! {counted(len(chosen.incomplete), 'exchange')} not whole in the capture, and so not here:")
        for name, why in list(chosen.incomplete.items())[:_INCOMPLETE_TOLD]:
            screen.note(f"  {name}: {why}")
    if output is not None and to is not Format.ROWS:
        screen.note(f"{counted(chosen.count, 'exchange')} in {output}")
