"""`gymtap env`: the variables that put a run behind a tap which stands already."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from gymtap.proxy.cli.options import JsonOption, NoCausality, NoEgress, NoTakeover


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("env")(_env)


def _env(
    *,
    capture: Annotated[
        Path | None, typer.Option("--capture", "-c", help="The standing tap's capture; the newest by default.")
    ] = None,
    control: Annotated[
        str | None, typer.Option(help="The control address, where no capture can be read here.", metavar="URL")
    ] = None,
    token: Annotated[str, typer.Option(envvar="GYMTAP_TOKEN", help="The token, with --control.")] = "",
    no_takeover: NoTakeover = False,
    no_causality: NoCausality = False,
    no_egress: NoEgress = False,
    as_json: JsonOption = False,
) -> None:
    """Print export lines for a launcher that cannot be wrapped: a Slurm script, a Ray runtime_env."""
    import os

    from gymtap.proxy.cli.screen import write_json
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.store import Capture, resolve
    from gymtap.proxy.wiring.environment import Parts, wiring_variables
    from gymtap.proxy.wiring.standing import read_control

    if control is None:
        where = resolve(capture)
        address = read_control(where)
        if not Capture(where).live():
            raise UsageError(f"the tap that recorded into {where} is gone", "start one with: gymtap up --takeover")
        control, token = address.url, address.token
    elif not token:
        raise UsageError("--control needs the tap's token", "give --token, the same as to `gymtap up --takeover`")
    parts = Parts(takeover=not no_takeover, causality=not no_causality, egress=not no_egress)
    variables = wiring_variables(control, token, parts, os.environ)
    if as_json:
        write_json(variables)
        return
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
