"""`gymtap playback`: stand where the provider stood, and answer from a capture."""

from typing import Annotated

import typer

from gymtap.proxy.cli.options import CaptureArgument, JsonOption, Misses


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("playback")(_playback)


def _playback(
    capture: CaptureArgument = None,
    *,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to listen; where the provider was, if left out.")
    ] = None,
    stub: Annotated[str, typer.Option(metavar="KINDS", help="Whose answers to play: kinds or names.")] = "provider",
    loose: Annotated[bool, typer.Option("--loose", help="Accept requests that differ from the recorded ones.")] = False,
    miss: Annotated[Misses, typer.Option(help="What happens to a request that was not recorded.")] = Misses.FAIL,
    endpoint: Annotated[str | None, typer.Option(metavar="URL", help="Where `--miss pass` sends them.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer provider calls from a capture, for a run without a model. Ctrl-C ends it."""
    from gymtap.proxy.cli.playback_command import Asked, run

    asked = Asked(capture, listen, stub, loose, miss is Misses.PASS_ON, endpoint, as_json)
    raise typer.Exit(run(asked))
