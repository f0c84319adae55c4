"""`gymtap demo`: what gymtap shows, on a miniature of Gym that fails in a dozen ways."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureDirectory, JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from gymtap.proxy.store import Capture

ROW = "2.0"
"""The row whose tree is shown: its provider refuses a tool's schema."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(_demo)


def _demo(
    capture: CaptureDirectory = None,
    as_json: JsonOption = False,
) -> None:
    """See it work without Gym: twenty rows, some of which fail."""
    import asyncio

    from gymtap.proxy.cli.choose import tell_gaps
    from gymtap.proxy.demo.play import play
    from gymtap.proxy.store import Capture
    from gymtap.proxy.tap import GAPS_EXIT_CODE, new_event_loop

    screen.note("twenty rows through a miniature of Gym, a tap at every boundary …")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        opened = Capture(runner.run(play(capture)))
    gaps = opened.gaps()
    tell_gaps(gaps)
    if as_json:
        screen.write_json({"capture": str(opened.path), "info": opened.info().model_dump(mode="json")})
    elif not gaps:  # what there is to see may be what is missing
        _tour(opened)
    if gaps:
        raise typer.Exit(GAPS_EXIT_CODE)


def _tour(capture: "Capture") -> None:
    """Rows, one call tree, one failing exchange, and what to type next."""
    from gymtap.proxy.cli.rows import show_rows
    from gymtap.proxy.cli.show import show_exchange
    from gymtap.proxy.cli.tree import see, show_tree

    out = screen.out()
    _typed(out, "gymtap rows")
    show_rows(out, capture, sorted(capture.rows(), key=lambda row: row.key.task or 0))
    _typed(out, f"gymtap tree {ROW}")
    show_tree(out, seen := see(capture, ROW))
    if (failure := seen.deepest_failure) is not None:
        _typed(out, f"gymtap show {failure}")
        show_exchange(out, capture, capture.exchange(failure))
    here = called(sys.argv[0])
    screen.note(f"\nthe capture is {capture.path}")
    screen.note(f"look around: {here} rows, {here} tree 9.0, {here} tree 17.0")
    screen.note(f"and in front of a run of yours: {here} run -- gym eval run …")


def called(program: str) -> str:
    """What to type to have gymtap: after `make demo` it is in an environment that no shell looks into."""
    return program if Path(program).name == "gymtap" and shutil.which("gymtap") is None else "gymtap"


def _typed(out: "Console", command: str) -> None:
    out.print(f"\n$ {command}", style="bold")
