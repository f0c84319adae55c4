"""The options that several commands share, so that they are called and explained the same everywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

CaptureArgument = Annotated[
    str | None,
    typer.Argument(metavar="CAPTURE", help="A capture's path or name, with or without -c; the newest if left out."),
]
CaptureOption = Annotated[
    str | None,
    typer.Option("--capture", "-c", metavar="CAPTURE", help="A capture's path or name; the newest if left out."),
]
FilterOption = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="EXPRESSION",
        help="Only rows that pass, as in 'layer:config status:5xx dur>2s ~timeout' (see docs/tui.md).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON instead (see docs/cli.md).")]
EnginesOption = Annotated[
    str | None,
    typer.Option("--engines-python", metavar="PYTHON", help="An interpreter that has the engines, say vLLM's own."),
]
SourcesArgument = Annotated[
    list[str], typer.Argument(metavar="FILE|CAPTURE...", help="JSON Lines, JSON, a folder of them, or a capture.")
]


class Misses(StrEnum):
    """What becomes of a request that was not recorded, as `--miss` and `--stub-miss` name it."""

    FAIL = "fail"
    PASS_ON = "pass"  # noqa: S105 - to pass on, not a password


# What a tap is started with.

CaptureDirectory = Annotated[
    Path | None, typer.Option("--capture", "-c", help="Where to keep the capture; a new directory by default.")
]
UpstreamCa = Annotated[Path | None, typer.Option(help="A PEM file to trust beside the system's.")]
StrictCapture = Annotated[
    bool, typer.Option("--strict-capture", help="Stop the traffic rather than let any pass unrecorded.")
]
KeepCookies = Annotated[bool, typer.Option("--keep-cookies", help="Keep session cookies whole, for replays.")]
Without = Annotated[
    list[str] | None,
    typer.Option(help="Leave an addon out, as in --without contracts. May be repeated.", metavar="ADDON"),
]

# Which parts of the wiring a run is without.

NoTakeover = Annotated[bool, typer.Option("--no-takeover", help="Do not listen in the servers' place.")]
NoCausality = Annotated[bool, typer.Option("--no-causality", help="Do not pass the parent exchange on.")]
NoEgress = Annotated[bool, typer.Option("--no-egress", help="Do not capture calls that leave Gym.")]
