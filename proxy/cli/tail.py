"""`gymtap tail`: exchanges as they end, for as long as the tap runs.

It reads the capture, as everything else does, and asks it again a few times a second: it cannot slow the
traffic down, and a finished capture looks like a running one.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureArgument, FilterOption, JsonOption

if TYPE_CHECKING:
    from gymtap.proxy.core.filter import Filter
    from gymtap.proxy.store import Capture
    from gymtap.schemas import Exchange

_POLL_S = 0.2
_QUIET_POLLS = 5  # then it is asked whether the tap still runs, which costs more than asking for changes


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tail")(_tail)


def _tail(
    capture: CaptureArgument = None,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Only exchanges that failed.")] = False,
    wanted: FilterOption = "",
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin with what is there already.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Follow a running tap; ends when the tap ends, or with Ctrl-C."""
    from gymtap.proxy.cli.choose import open_capture, tell_gaps
    from gymtap.proxy.core.filter import parse

    passes = parse(wanted)
    opened = open_capture(capture)
    known_gaps = len(opened.gaps())
    if not from_start and not opened.info().live:
        screen.note("its tap has ended: --from-start shows what it saw")
        return
    for exchange in _follow(opened, from_start):
        if (failed and not exchange.failed) or not _passes(opened, exchange, passes):
            continue
        if as_json:
            screen.write_json_line(exchange.model_dump(mode="json"))
        elif exchange.state != "open":
            _draw(opened, exchange)
    tell_gaps(opened.gaps()[known_gaps:])


def _passes(capture: "Capture", exchange: "Exchange", passes: "Filter") -> bool:
    """Whether its row passes, as that is now; an exchange without a row passes no filter."""
    if not passes.tests:
        return True
    from gymtap.proxy.diagnose.listing import listed_row

    key = exchange.attribution.row
    row = None if key is None else listed_row(capture, key, diagnosed=passes.knows)
    return row is not None and passes(row)


def _follow(capture: "Capture", from_start: bool) -> "Iterator[Exchange]":
    """Every exchange that is made or changes, until the tap ends and all is told."""
    changed, cursor = capture.changes(None, from_start=from_start)
    yield from changed
    quiet = _QUIET_POLLS
    while True:
        ended = quiet >= _QUIET_POLLS and not capture.info().live  # asked first, so that nothing comes between
        changed, cursor = capture.changes(cursor)
        yield from changed
        if ended and not changed:
            return
        quiet = 0 if changed or quiet >= _QUIET_POLLS else quiet + 1
        time.sleep(_POLL_S)


def _draw(capture: "Capture", exchange: "Exchange") -> None:
    from gymtap.proxy.cli.tail_view import tail_lines
    from gymtap.proxy.views.answers import message_of

    out = screen.out()
    for line in tail_lines(exchange, message_of(capture, exchange) if exchange.failed else ""):
        out.print(line)
