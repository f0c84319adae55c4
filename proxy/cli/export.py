"""`gymtap export`: a capture, or one exchange of it, in everyone else's formats."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureArgument

if TYPE_CHECKING:
    from gymtap.proxy.export import Chosen, Wanted
    from gymtap.proxy.store import Capture
    from gymtap.schemas import Row

_INCOMPLETE_TOLD = 3


class Format(StrEnum):
    """What `--format` names; docs/exports.md has the schema of each."""

    HAR = "har"
    JSONL = "jsonl"
    ROWS = "rows-jsonl"
    MITM = "mitm"
    PARQUET = "parquet"
    CURL = "curl"
    PYTHON = "python"
    OPENAI = "openai"


_BINARY = {Format.MITM, Format.PARQUET}
_OF_ONE = {Format.CURL, Format.PYTHON, Format.OPENAI}


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
) -> None:
    """Write exchanges or rows as HAR, JSON lines, .mitm, Parquet, or one exchange as curl or Python."""
    from gymtap.proxy.cli.choose import open_capture, parse_row  # noqa: PLC0415 - quick `--help`
    from gymtap.proxy.core.errors import UsageError  # noqa: PLC0415 - quick `--help`
    from gymtap.proxy.export import Chosen, Wanted  # noqa: PLC0415 - quick `--help`
    from gymtap.schemas import Call, ServerKind  # noqa: PLC0415 - quick `--help`

    ids = tuple(exchange or ())
    if to in _OF_ONE and len(ids) != 1:
        raise UsageError(f"--format {to} is of one exchange", "name it, as in --exchange a42")
    if to in _BINARY and output is None and sys.stdout.isatty():
        raise UsageError(f"--format {to} is binary and stdout is a terminal", "name a file with --output")
    if to is Format.ROWS and (ids or call or kind or server):
        raise UsageError("rows are chosen by --row and --failed only", "exchanges are --format jsonl")
    key = parse_row(row) if row is not None else None
    opened = open_capture(capture)
    if key is not None:
        key = opened.row(key).key
    chosen = Chosen(opened, Wanted(ids, key, _one_of(Call, call), _one_of(ServerKind, kind), server, failed or None))
    with _opened(output) as out:
        _write(to, chosen, Wanted(row=key, failed=failed or None), out)
    _tell(chosen, to, output)


def _one_of[T: StrEnum](kinds: type[T], text: str | None) -> T | None:
    """The one that is so called. Raises UsageError, with those that there are."""
    from gymtap.proxy.core.errors import UsageError  # noqa: PLC0415 - quick `--help`

    if text is None:
        return None
    try:
        return kinds(text)
    except ValueError:
        raise UsageError(f"there is no {text!r}", f"there are: {', '.join(kinds)}") from None


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """Stdout, or the file, which takes its name only when it is whole."""
    from gymtap.proxy.core.errors import GymtapError  # noqa: PLC0415 - quick `--help`

    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    whole = output.exists() and not output.is_file()  # a pipe or a device is written as it is
    part = output if whole else output.with_name(f"{output.name}.part")
    try:
        with part.open("wb") as out:
            yield out
        if not whole:
            part.replace(output)
    except OSError as error:
        raise GymtapError(f"cannot write {output}: {error.strerror or error}", "name another file") from error
    finally:
        if not whole:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def _write(to: Format, chosen: "Chosen", rows: "Wanted", out: BinaryIO) -> None:
    if to is Format.PARQUET:
        from gymtap.proxy.export.parquet import write_parquet  # noqa: PLC0415 - quick `--help`

        write_parquet(chosen, out)
    elif to is Format.MITM:
        from gymtap.proxy.export.flows import write_flows  # noqa: PLC0415 - loads mitmproxy

        write_flows(chosen, out)
    else:
        out.writelines(_pieces(to, chosen, rows))


def _pieces(to: Format, chosen: "Chosen", rows: "Wanted") -> Iterable[bytes]:
    from importlib.metadata import version  # noqa: PLC0415 - slow, and only needed here

    from gymtap.proxy.export import har, lines, snippet  # noqa: PLC0415 - quick `--help`

    match to:
        case Format.HAR:
            yield from har.har(chosen, version("gymtap"))
        case Format.ROWS:
            yield from lines.row_lines(chosen.capture, _rows(chosen.capture, rows))
        case Format.CURL | Format.PYTHON | Format.OPENAI:
            write = {Format.CURL: snippet.curl, Format.PYTHON: snippet.python, Format.OPENAI: snippet.openai}[to]
            yield from (write(kept).encode() for kept in chosen)
        case _:
            yield from lines.exchange_lines(chosen.capture, chosen)


def _rows(capture: "Capture", wanted: "Wanted") -> "Iterator[Row]":
    found = capture.rows(failed=wanted.failed)
    return (row for row in found if wanted.row is None or row.key == wanted.row)


def _tell(chosen: "Chosen", to: Format, output: Path | None) -> None:
    """On stderr: how much was written, and what of it was not whole."""
    from gymtap.proxy.views.words import counted  # noqa: PLC0415 - quick `--help`

    if chosen.incomplete:
        screen.note(f"! {counted(len(chosen.incomplete), 'exchange')} not whole in the capture, and so not here:")
        for name, why in list(chosen.incomplete.items())[:_INCOMPLETE_TOLD]:
            screen.note(f"  {name}: {why}")
    if output is not None and to is not Format.ROWS:
        screen.note(f"{counted(chosen.count, 'exchange')} in {output}")
