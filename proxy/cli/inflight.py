"""`gymtap inflight`: what is open now, for how long, at which boundary, and which rows wait on it.

From the capture alone, so that looking cannot disturb what hangs. Exit status: 0 nothing to worry about, 1 an alarm.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureArgument, JsonOption

if TYPE_CHECKING:
    from gymtap.proxy.core.in_flight import Alarm, Wait
    from gymtap.proxy.store import Capture

_SHOWN = 40
_WATCH_S = 2.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inflight")(_inflight)


def _inflight(
    capture: CaptureArgument = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until the tap ends.")] = False,
    quiet: Annotated[
        float, typer.Option("--quiet", metavar="SECONDS", help="Nothing answered for so long is a wedge.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Show what is open now and which rows wait on it, with alarms: a wedge, a retry storm, a dead upstream.

    The exit status is 1 with an alarm, else 0.
    """
    from gymtap.proxy.cli.choose import open_capture

    opened = open_capture(capture)
    alarmed = _look(opened, capture, quiet * 1_000, as_json)
    while watch and opened.live():
        time.sleep(_WATCH_S)
        alarmed = _look(opened, capture, quiet * 1_000, as_json)
    raise typer.Exit(1 if alarmed else 0)


def _look(capture: "Capture", name: str | None, quiet_ms: float, as_json: bool) -> bool:
    """Look once and show it; whether there is an alarm. `name` is what a person called the capture by."""
    from gymtap.proxy.core.in_flight import alarms, waits
    from gymtap.proxy.store.lately import lately

    now_ns = time.time_ns()
    live, opened, recent, at_ns = lately(capture, now_ns)
    waiting = waits(opened, recent, at_ns)
    found = alarms(opened, recent, at_ns, quiet_ms=quiet_ms)
    if as_json:
        screen.write_json(_document(capture, live, waiting, found, now_ns))
    else:
        _draw(live, waiting, found)
        if found:
            screen.hint(f"show {found[0].exchange}", name)
    return bool(found) and live


def _document(
    capture: "Capture", live: bool, waiting: "list[Wait]", found: "list[Alarm]", now_ns: int
) -> dict[str, Any]:
    return {
        "capture": str(capture.path),
        "live": live,
        "at_ns": now_ns,
        "open": [_open_document(wait) for wait in waiting],
        "rows_waiting": sorted({wait.row for wait in waiting if wait.row}),
        "alarms": [_alarm_document(alarm) for alarm in found],
    }


def _open_document(wait: "Wait") -> dict[str, Any]:
    one = wait.exchange
    return {
        "exchange": one.id,
        "age_ms": round(wait.age_ms, 1),
        "boundary": one.boundary,
        "call": str(one.call),
        "server": one.server,
        "row": wait.row,
        "failed_tries": wait.tries,
        "last_error": wait.last_error or None,
    }


def _alarm_document(alarm: "Alarm") -> dict[str, Any]:
    return {**vars(alarm), "kind": str(alarm.kind), "rows": list(alarm.rows), "fix": alarm.finding().fix}


def _draw(live: bool, waiting: "list[Wait]", found: "list[Alarm]") -> None:
    from rich.text import Text

    from gymtap.proxy.views.plain import one_line
    from gymtap.proxy.views.words import counted, duration

    out = screen.out()
    for alarm in found:
        rows = f"  rows {', '.join(alarm.rows[:5])}{', …' if len(alarm.rows) > 5 else ''}" if alarm.rows else ""
        out.print(
            Text(f"! {str(alarm.kind).replace('_', ' ')}: {one_line(alarm.message)}{rows}", "bold red"), soft_wrap=True
        )
    for wait in waiting[:_SHOWN]:
        one = wait.exchange
        tries = f"  {wait.tries} failed tries, the last {wait.last_error}" if wait.tries else ""
        what = f"{one.call} {one.boundary} ({one.server}){tries}"
        line = f"{duration(wait.age_ms):>9}  {one.id:<7} {wait.row or '-':<10} {one_line(what)}"
        out.print(Text(line), soft_wrap=True)
    if len(waiting) > _SHOWN:
        screen.note(f"… and {len(waiting) - _SHOWN:,} more: --json has them")
    rows_waiting = len({wait.row for wait in waiting if wait.row})
    left = "this is what it left open" if waiting else "it left nothing open"
    about = "" if live else f": its tap has ended; {left}"
    screen.note(f"{counted(len(waiting), 'call')} open, {counted(rows_waiting, 'row')} waiting{about}")
