"""`gymtap up`: a tap that stands until it is stopped."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gymtap.proxy.cli.options import CaptureDirectory, KeepCookies, StrictCapture, UpstreamCa, Without

if TYPE_CHECKING:
    from gymtap.proxy.wiring.origin import Origin


class Engine(StrEnum):
    """What `--engine` names."""

    REVERSE = "reverse"
    MITM = "mitm"


# What to stand in front of.

Mappings = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help="A boundary by hand: 'NAME[:KIND]=LISTEN->UPSTREAM', in quotes. May be repeated.",
        metavar="MAP",
    ),
]
GymHead = Annotated[
    str | None, typer.Option(help="The head of a running Gym: one boundary for each of its servers.", metavar="URL")
]
Takeover = Annotated[
    bool, typer.Option("--takeover", help="Listen in the place of servers that ask for it; see `gymtap env`.")
]
ControlPort = Annotated[
    int, typer.Option(min=0, max=65535, help="The port at which they ask; any free one by default.")
]
Token = Annotated[str, typer.Option(envvar="GYMTAP_TOKEN", help="What they have to know; a new one by default.")]
Expose = Annotated[
    bool, typer.Option("--expose", help="Allow --map and --mode to listen where other machines reach it.")
]

# The second engine.

EngineOption = Annotated[
    Engine, typer.Option(help="mitm: mitmproxy, for clients that only a proxy reaches; see docs/mitmproxy.md.")
]
Modes = Annotated[
    list[str] | None,
    typer.Option("--mode", help="mitmproxy's mode, as in regular@8080. May be repeated.", metavar="MODE"),
]
ProxyAuth = Annotated[
    str,
    typer.Option(envvar="GYMTAP_PROXY_AUTH", help="What clients of --mode have to give.", metavar="USER:PASSWORD"),
]
UpstreamAuth = Annotated[
    str,
    typer.Option(envvar="GYMTAP_UPSTREAM_AUTH", help="What the upstream of --mode is given.", metavar="USER:PASSWORD"),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(_up)


def _up(  # noqa: PLR0917 - typer calls it by name
    mappings: Mappings = None,
    gym: GymHead = None,
    takeover: Takeover = False,
    engine: EngineOption = Engine.REVERSE,
    modes: Modes = None,
    proxy_auth: ProxyAuth = "",
    upstream_auth: UpstreamAuth = "",
    control_port: ControlPort = 0,
    token: Token = "",
    capture: CaptureDirectory = None,
    upstream_ca: UpstreamCa = None,
    expose: Expose = False,
    strict_capture: StrictCapture = False,
    keep_cookies: KeepCookies = False,
    without: Without = None,
) -> None:
    """Stand between clients and servers that already run, or that ask for it as they start."""
    import asyncio

    from gymtap.proxy.cli.screen import note
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.mitm.settings import MitmSettings
    from gymtap.proxy.tap import TapSettings, new_event_loop
    from gymtap.proxy.wiring.mapping import parse_mapping
    from gymtap.proxy.wiring.stand import Standing, stand

    if modes and engine is not Engine.MITM:
        raise UsageError("--mode is one of mitmproxy's", "add --engine mitm")
    second = MitmSettings(
        modes or ["regular@8080"],
        upstream_ca=upstream_ca,
        expose=expose,
        proxy_auth=proxy_auth,
        upstream_auth=upstream_auth,
    )
    standing = Standing(
        tap=TapSettings(
            capture=capture,
            strict=strict_capture,
            keep_cookies=keep_cookies,
            upstream_ca=upstream_ca,
            without=tuple(without or ()),
        ),
        mappings=[parse_mapping(text) for text in mappings or ()],
        gym=_head(gym) if gym else None,
        takeover=takeover,
        control_port=control_port,
        token=token,
        expose=expose,
        mitm=second if engine is Engine.MITM else None,
    )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        raise typer.Exit(runner.run(stand(standing, note)))


def _head(gym: str) -> "Origin":
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.wiring.origin import Origin

    try:
        return Origin.parse(gym)
    except ValueError as error:
        raise UsageError(f"--gym: {error}", "as in --gym http://127.0.0.1:11000") from None
