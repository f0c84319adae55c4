"""`gymtap replay`: send a row or an exchange again, and say whether it does the same."""

from pathlib import Path
from typing import Annotated

import typer

from gymtap.proxy.cli.options import CaptureOption, FilterOption, JsonOption, Misses


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(_replay)


def _replay(
    what: Annotated[
        str | None,
        typer.Argument(metavar="ROW|EXCHANGE|BUNDLE", help="A row (12.3), an exchange (a42), or a bundle's file."),
    ] = None,
    *,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HOP",
            help="Where to begin: run, seed, verify, model[:K], tool[:K], provider[:K], …, or an exchange's id.",
        ),
    ] = None,
    times: Annotated[int, typer.Option("-n", min=1, help="How often.")] = 1,
    failed: Annotated[bool, typer.Option("--failed", help="Every row that failed.")] = False,
    cause: Annotated[str | None, typer.Option(metavar="FINGERPRINT", help="Every row with this cause.")] = None,
    wanted: FilterOption = "",
    rows: Annotated[Path | None, typer.Option(metavar="FILE", help="The rows of a file, one a line.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many rows at once.")] = 4,
    to: Annotated[list[str] | None, typer.Option(metavar="NAME=URL", help="Where a server is.")] = None,
    gym: Annotated[str | None, typer.Option(metavar="HEAD_URL", help="Replay against the Gym of this head.")] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="URL", help="The provider's base URL.")] = None,
    api_key_env: Annotated[str | None, typer.Option(metavar="NAME", help="The variable that holds the key.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Ask this model.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="POINTER=VALUE", help="Change a place in the body.")
    ] = None,
    patch: Annotated[Path | None, typer.Option(metavar="FILE", help="Apply a JSON patch (RFC 6902).")] = None,
    edit: Annotated[bool, typer.Option("--edit", help="Change the body in $EDITOR.")] = False,
    tools: Annotated[
        bool | None,
        typer.Option("--tools/--no-tools", help="Repeat the session's tool calls; by default where it may keep state."),
    ] = None,
    stub: Annotated[
        str | None, typer.Option(metavar="KINDS", help="Answer for these from the capture: provider, judge, …")
    ] = None,
    stub_loose: Annotated[bool, typer.Option("--stub-loose", help="Accept requests that differ.")] = False,
    stub_miss: Annotated[Misses, typer.Option(help="What happens to a request that was not recorded.")] = Misses.FAIL,
    stub_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the stub listens, if not where the provider was.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Ignore this key when comparing.")] = None,
    into: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to keep what was sent and answered.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    capture: CaptureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a row, or a part of it, again, and say whether it does the same."""
    from gymtap.proxy.cli.replay_command import Asked, run
    from gymtap.proxy.replay.options import Options

    options = Options(
        start=start,
        times=times,
        concurrency=concurrency,
        to=tuple(to or ()),
        gym=gym,
        endpoint=endpoint,
        api_key_env=api_key_env,
        model=model,
        assignments=tuple(assignments or ()),
        patch=patch,
        tools=tools,
        stub=stub,
        stub_loose=stub_loose,
        stub_pass=stub_miss is Misses.PASS_ON,
        stub_listen=stub_listen,
        ignore=tuple(ignore or ()),
        into=into,
    )
    asked = Asked(
        what=what,
        failed=failed,
        cause=cause,
        wanted=wanted,
        rows=rows,
        edit=edit,
        yes=yes,
        capture=capture,
        as_json=as_json,
        options=options,
    )
    raise typer.Exit(run(asked))
