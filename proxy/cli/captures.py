"""`gymtap captures`: what there is to look at, newest first."""

import time
from typing import Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("captures")(_captures)


def _captures(
    *,
    replays: Annotated[bool, typer.Option("--replays", help="Those that replays have kept.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List captures, newest first."""
    from gymtap.proxy.store import captures, captures_root

    root = captures_root() / "replays" if replays else captures_root()
    infos = list(captures(root))
    if as_json:
        screen.write_json({"captures": [info.model_dump(mode="json") for info in infos]})
        return
    if not infos:
        screen.note(f"no captures in {root}")
        screen.note("  begin one with `gymtap run -- <gym command>`, or see one with `gymtap demo`")
        return
    from gymtap.proxy.views.rows_view import captures_table

    screen.out().print(captures_table(infos, time.time_ns()))
    screen.note(f"in {root}")
