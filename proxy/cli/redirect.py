"""`gymtap redirect`: capture a Gym that runs already, untouched, as root."""

from typing import Annotated

import typer

from gymtap.proxy.cli.options import CaptureDirectory, StrictCapture


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("redirect")(_redirect)


def _redirect(
    ports: Annotated[str, typer.Option(help="The ports of Gym's servers, as in 10001-20000.", metavar="A-B")] = "",
    *,
    capture: CaptureDirectory = None,
    gid: Annotated[
        int, typer.Option(min=1, help="The group that the proxy runs with; nothing else may run with it.")
    ] = 65534,
    strict_capture: StrictCapture = False,
    iptables: Annotated[
        bool, typer.Option("--iptables", help="Use iptables and a guard process, as on kernels before 5.12.")
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Only remove rules of iptables behind which nothing listens any more.")
    ] = False,
) -> None:
    """Send the ports of a Gym that runs already through a tap (Linux, root); no rule outlives it."""
    import asyncio

    from gymtap.proxy.cli.screen import note
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.tap import TapSettings
    from gymtap.proxy.wiring import redirect

    if clean:
        redirect.check_system()
        redirect.clean(note)
        return
    if not ports:
        raise UsageError("--ports is missing", "as in --ports 10001-20000, Gym's own port_range_low and _high")
    low, high = redirect.parse_ports(ports)
    settings = TapSettings(capture=capture, strict=strict_capture)
    redirecting = redirect.Redirecting(settings, low, high, gid, iptables)
    raise typer.Exit(asyncio.run(redirect.redirect(redirecting, note)))
