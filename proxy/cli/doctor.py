"""`gymtap doctor`: the eight steps of the debug order over whatever is left of a run. It only ever reads.

Exit status: 0 healthy, 1 a problem was found, 2 nothing could be looked at.
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import JsonOption

if TYPE_CHECKING:
    from gymtap.proxy.doctor.report import Report
    from gymtap.proxy.store import Capture


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(_doctor)


def _doctor(
    capture: Annotated[
        str | None,
        typer.Argument(
            metavar="CAPTURE", help="A capture's path or name, with or without -c; the newest if nothing else is given."
        ),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="A run's rollouts (X.jsonl); its other files are found beside it."
        ),
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(
            "--log", metavar="PATH", help="A log of Gym, vLLM, Ray or Slurm, or a directory of logs. May be repeated."
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--source", metavar="FILE", help="The data that the inputs were materialized from.")
    ] = None,
    gym: Annotated[
        str | None,
        typer.Option("--gym", metavar="URL", help="The head server of a run that is up, as in http://127.0.0.1:11000."),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option("--provider", metavar="URL", help="A model provider's base URL, as in http://127.0.0.1:8000/v1."),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", metavar="FILE", help="A Gym configuration, or env.yaml. May be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Walk the debug order, step by step, over whatever is given; never change anything.

    The exit status is 0 for healthy, 1 for a problem, 2 where nothing could be looked at.
    """
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.doctor.looked import Given
    from gymtap.proxy.doctor.walk import examine

    alone = not any((output, log, source, gym, provider, config))
    if source is not None and not source.is_file():
        raise UsageError(f"{source}: no such file", "--source takes the data set, as JSON Lines")
    given = Given(
        capture=_opened(capture) if capture is not None or alone else None,
        output=output,
        logs=tuple(log or ()),
        source=source,
        gym=gym,
        provider=provider,
        configs=tuple(config or ()),
        environment=os.environ,
    )
    report = examine(given, now_ns=time.time_ns())
    if as_json:
        screen.write_json(report.as_json())
    else:
        _draw(report, capture)
    raise typer.Exit(report.exit_code)


def _opened(name: str | None) -> "Capture":
    from gymtap.proxy.cli.choose import open_capture
    from gymtap.proxy.core.errors import CaptureError

    try:
        return open_capture(name)
    except CaptureError as error:
        if name is not None:
            raise
        way_out = "a run that was not captured: name its --output and --log, or --config, --gym, --provider"
        raise CaptureError(str(error), way_out) from error


def _draw(report: "Report", capture: str | None) -> None:
    """The steps, then the diagnosis; what was looked at is said on stderr."""
    from gymtap.proxy.cli.why import show_diagnosis
    from gymtap.proxy.views.report_view import step_lines

    screen.note(f"looked at {', '.join(report.given)}")
    out = screen.out()
    for line in (line for step in report.steps for line in step_lines(step)):
        out.print(line, soft_wrap=True)
    out.print("")
    show_diagnosis(out, report.diagnosis, capture=capture)
