"""`gymtap import`: exchanges from other places, in a capture, so that everything else works on them."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(_import)


def _import(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files to read; the format is told from each.")
    ],
    *,
    capture: Annotated[
        Path | None, typer.Option("--capture", "-c", help="Where to put them; a new capture by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read exchanges from elsewhere: HAR, .mitm, our JSON lines, Gym's *.capture.jsonl, recorded lists."""
    import time

    from gymtap.proxy.imports import import_files
    from gymtap.proxy.store import Capture, captures_root, fresh
    from gymtap.proxy.tap import GAPS_EXIT_CODE
    from gymtap.proxy.views.words import counted

    done = import_files(files, capture or fresh(captures_root(), time.time_ns()))
    info = Capture(done.path).info()
    for line in done.left_out:
        screen.note(f"! left out: {line}")
    if as_json:
        screen.write_json({"capture": str(done.path), "exchanges": done.exchanges, "left_out": done.left_out})
    else:
        rows = f"{counted(info.rows, 'row')}, {info.failed_rows} failed"
        screen.note(f"{counted(done.exchanges, 'exchange')} from {counted(done.files, 'file')}; {rows} in {done.path}")
        screen.note(f"next: gymtap rows {shlex.quote(str(done.path))}")
    if not done.whole:
        raise typer.Exit(GAPS_EXIT_CODE)
