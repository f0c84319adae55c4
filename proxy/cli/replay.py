"""`gymtap replay`: send a row or an exchange again, and say whether it does the same."""

from pathlib import Path
from typing import Annotated

import typer

from gymtap.proxy.cli.options import CaptureOption, FilterOption, JsonOption, Misses

# What is sent again.

What = Annotated[
    str | None,
    typer.Argument(metavar="ROW|EXCHANGE|BUNDLE", help="A row (12.3), an exchange (a42), or a bundle's file."),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="HOP",
        help="Where to begin: run, seed, verify, model[:K], tool[:K], provider[:K], …, or an exchange's id.",
    ),
]
Times = Annotated[int, typer.Option("-n", min=1, help="How often.")]
Failed = Annotated[bool, typer.Option("--failed", help="Every row that failed.")]
Cause = Annotated[str | None, typer.Option(metavar="FINGERPRINT", help="Every row with this cause.")]
Rows = Annotated[Path | None, typer.Option(metavar="FILE", help="The rows of a file, one a line.")]
Concurrency = Annotated[int, typer.Option(min=1, help="How many rows at once.")]

# Where it goes.

To = Annotated[list[str] | None, typer.Option(metavar="NAME=URL", help="Where a server is.")]
GymHead = Annotated[str | None, typer.Option(metavar="HEAD_URL", help="Replay against the Gym of this head.")]
Endpoint = Annotated[str | None, typer.Option(metavar="URL", help="The provider's base URL.")]
ApiKeyEnv = Annotated[str | None, typer.Option(metavar="NAME", help="The variable that holds the key.")]

# With which changes.

Model = Annotated[str | None, typer.Option(metavar="NAME", help="Ask this model.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="POINTER=VALUE", help="Change a place in the body.")
]
Patch = Annotated[Path | None, typer.Option(metavar="FILE", help="Apply a JSON patch (RFC 6902).")]
Edit = Annotated[bool, typer.Option("--edit", help="Change the body in $EDITOR.")]
Tools = Annotated[
    bool | None,
    typer.Option("--tools/--no-tools", help="Repeat the session's tool calls; by default where it may keep state."),
]

# Who answers from the capture.

StubKinds = Annotated[
    str | None, typer.Option(metavar="KINDS", help="Answer for these from the capture: provider, judge, …")
]
StubLoose = Annotated[bool, typer.Option("--stub-loose", help="Accept requests that differ.")]
StubMiss = Annotated[Misses, typer.Option(help="What happens to a request that was not recorded.")]
StubListen = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where the stub listens, if not where the provider was.")
]

# What is made of it.

Ignore = Annotated[list[str] | None, typer.Option(metavar="KEY", help="Ignore this key when comparing.")]
Into = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to keep what was sent and answered.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(_replay)


def _replay(
    what: What = None,
    *,
    start: From = None,
    times: Times = 1,
    failed: Failed = False,
    cause: Cause = None,
    wanted: FilterOption = "",
    rows: Rows = None,
    concurrency: Concurrency = 4,
    to: To = None,
    gym: GymHead = None,
    endpoint: Endpoint = None,
    api_key_env: ApiKeyEnv = None,
    model: Model = None,
    assignments: Assignments = None,
    patch: Patch = None,
    edit: Edit = False,
    tools: Tools = None,
    stub: StubKinds = None,
    stub_loose: StubLoose = False,
    stub_miss: StubMiss = Misses.FAIL,
    stub_listen: StubListen = None,
    ignore: Ignore = None,
    into: Into = None,
    yes: Yes = False,
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
