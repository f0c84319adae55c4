"""The options that several commands share, so that they are called and explained the same everywhere."""

from typing import Annotated

import typer

CaptureArgument = Annotated[
    str | None, typer.Argument(metavar="[CAPTURE]", help="A capture's path or name; the newest if left out.")
]
CaptureOption = Annotated[
    str | None,
    typer.Option("--capture", "-c", metavar="CAPTURE", help="A capture's path or name; the newest if left out."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON instead (see docs/cli.md).")]
