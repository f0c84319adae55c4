"""`gymtap tui`: a capture in the terminal UI, or in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from gymtap.proxy.cli.options import CaptureArgument


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tui")(_tui)


def _tui(
    capture: CaptureArgument = None,
    *,
    web: Annotated[bool, typer.Option("--web", help="Serve it to a browser on this machine.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where --web listens; 0 finds a free port.")] = 0,
) -> None:
    """Look into a capture, live or finished, in the terminal."""
    import gc
    import sys

    gc.disable()  # a tenth of the time to load it all; the app enables it when the rows are read
    from gymtap.proxy.cli import screen
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.store import Capture, resolve

    path = resolve(capture)
    Capture(path).close()
    if web:
        from gymtap.proxy.tui.web import serve

        gc.enable()  # each page is a process of its own, which does as above
        serve(path, port, screen.note)
        return
    if not sys.stdout.isatty():
        raise UsageError("the terminal UI needs a terminal", "`gymtap rows` and `gymtap causes` write to a pipe")
    from gymtap.proxy.tui.app import GymtapTui

    following: Path | None = path
    while following is not None:
        ended = GymtapTui(following)
        following = ended.run()
        if following is None:
            gc.freeze()  # Python looks at all objects once more when it ends: seconds, where bodies were large
        if ended.crash is not None:
            raise ended.crash
        if ended.return_code:
            raise typer.Exit(ended.return_code)
