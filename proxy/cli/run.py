"""`gymtap run`: a tap around any Gym command."""

from typing import Annotated

import typer

from gymtap.proxy.cli.options import (
    CaptureDirectory,
    KeepCookies,
    NoCausality,
    NoEgress,
    NoTakeover,
    StrictCapture,
    UpstreamCa,
    Without,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", context_settings={"allow_interspersed_args": False})(_run)


def _run(
    command: Annotated[
        list[str], typer.Argument(help="The command to run, as in: -- gym eval run ...", metavar="-- COMMAND...")
    ],
    *,
    capture: CaptureDirectory = None,
    no_takeover: NoTakeover = False,
    no_causality: NoCausality = False,
    no_egress: NoEgress = False,
    proxy_env: Annotated[
        bool,
        typer.Option("--proxy-env", help="Be an HTTPS proxy too, and set its variables and CA; see docs/mitmproxy.md."),
    ] = False,
    upstream_ca: UpstreamCa = None,
    strict_capture: StrictCapture = False,
    keep_cookies: KeepCookies = False,
    without: Without = None,
    tui: Annotated[bool, typer.Option("--tui", help="Show the run in the terminal UI while it runs.")] = False,
) -> None:
    """Run a command with a tap at every boundary; the exit status is the command's."""
    if tui:
        import sys

        from gymtap.proxy.cli.run_tui import run_in_tui

        raise typer.Exit(run_in_tui(sys.argv[1:], capture))
    import asyncio

    from gymtap.proxy.cli.screen import note
    from gymtap.proxy.mitm.settings import MitmSettings
    from gymtap.proxy.tap import TapSettings, new_event_loop
    from gymtap.proxy.wiring.environment import Parts
    from gymtap.proxy.wiring.wrap import Wrapping, wrap

    settings = TapSettings(
        capture=capture,
        command=tuple(command),
        strict=strict_capture,
        keep_cookies=keep_cookies,
        upstream_ca=upstream_ca,
        without=tuple(without or ()),
    )
    parts = Parts(takeover=not no_takeover, causality=not no_causality, egress=not no_egress)
    proxy = MitmSettings(upstream_ca=upstream_ca) if proxy_env else None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        raise typer.Exit(runner.run(wrap(Wrapping(command, settings, parts, proxy), note)))
