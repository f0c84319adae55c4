"""`gymtap bundle`: one row in one file, fit to attach to a bug report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureOption, JsonOption

if TYPE_CHECKING:
    from gymtap.proxy.replay.bundle import Contents


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bundle")(_bundle)


def _bundle(
    row: Annotated[
        str,
        typer.Argument(
            metavar="ROW|EXCHANGE|FILE",
            help="A row (12.3), by an exchange of it (a42) too; or a bundle, to say what is in it.",
        ),
    ],
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    capture: CaptureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one row's exchanges to one small redacted file, and say what is in it."""
    from gymtap.proxy.cli.choose import open_capture, row_of
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.diagnose.capture import sibling
    from gymtap.proxy.replay.bundle import contents, make

    if output is None:
        said = contents(Path(row)) if Path(row).is_file() else None
        if said is None:
            raise UsageError("no file to write to", "add -o FILE; or name a bundle, to say what is in it")
        _tell(said, Path(row), as_json=as_json)
        return
    opened = open_capture(capture)
    found = row_of(opened, row)
    if found is None:
        raise UsageError(f"{row} belongs to no row", "name a row: `gymtap rows` lists them")
    made = make(opened, found, output, beside=sibling(opened, found), overwrite=force)
    _tell(made, output, as_json=as_json)


def _tell(said: "Contents", file: Path, *, as_json: bool) -> None:
    from gymtap.proxy.views.words import counted, size

    if as_json:
        screen.write_json({"file": str(file), "size_bytes": file.stat().st_size, **said.model_dump(mode="json")})
        return
    inside = f"row {said.row}" + (f", and {said.beside}, which went well" if said.beside else "")
    bodies = f"{counted(said.exchanges, 'exchange')}, {said.bodies:,} bodies of {size(said.body_bytes)}"
    out = screen.out()
    out.print(f"{file}  {size(file.stat().st_size)}")
    out.print(f"  inside: {inside}: {bodies}")
    out.print(f"  removed: {counted(said.redacted, 'secret')} (keys, tokens, cookies' signatures)")
    if said.missing_bytes:
        out.print(f"  missing: {size(said.missing_bytes)} that the tap had not kept")
    left = f"{counted(said.left_out_rows, 'row')} and {counted(said.left_out_exchanges, 'exchange')}"
    out.print(f"  left out: {left} of the same capture")
    out.print("  prompts, answers and tool results are in it as they were: read it before you share it")
    screen.note(f"next: gymtap why {file}; gymtap replay {file} --stub provider")
