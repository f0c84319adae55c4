"""`gymtap show`: one exchange, both sides of it, parsed or as the bytes that were recorded."""

import sys
import time
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureOption, JsonOption

if TYPE_CHECKING:
    from rich.console import Console
    from rich.rule import Rule

    from gymtap.proxy.store import Capture
    from gymtap.proxy.views.exchange_view import Side
    from gymtap.schemas import Body, Exchange


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(_show)


def _show(
    exchange: Annotated[str, typer.Argument(metavar="EXCHANGE", help="An exchange's id, as in a42.")],
    *,
    request: Annotated[bool, typer.Option("--request", help="Only the request.")] = False,
    response: Annotated[bool, typer.Option("--response", help="Only the response.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the recorded body's bytes (the response's) to stdout.")
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Show the headers.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Leave nothing out.")] = False,
    capture: CaptureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one exchange: what was asked and what was answered."""
    from gymtap.proxy.cli.choose import is_exchange_id, open_capture
    from gymtap.proxy.core.errors import UsageError

    if not is_exchange_id(exchange):
        raise UsageError(f"{exchange!r} is not an exchange's id, as in a42", f"`gymtap tree {exchange}` lists a row's")
    if raw and (as_json or (request and response)):
        raise UsageError("--raw writes one body", "add --request or --response, and leave --json out")
    opened = open_capture(capture)
    found = opened.exchange(exchange)
    sides = {"request": request or not response, "response": response or not request}
    if raw:
        _write_raw(opened, found, request)
    elif as_json:
        screen.write_json(_document(opened, found))
    else:
        show_exchange(
            screen.out(), opened, found, [name for name, wanted in sides.items() if wanted], headers=headers, full=full
        )


def _body(exchange: "Exchange", request: bool) -> "Body | None":
    if request:
        return exchange.request.body
    return exchange.response.body if exchange.response else None


def _write_raw(capture: "Capture", exchange: "Exchange", request: bool) -> None:
    """The bytes as they were recorded; what makes them differ from the wire goes to stderr."""
    body = _body(exchange, request)
    if body is None:
        screen.note(f"{exchange.id} has no {'request' if request else 'response'} body")
        return
    for told in _differences(body):
        screen.note(told)
    for chunk in capture.body_chunks(body):
        screen.write_bytes(chunk)
    if sys.stdout.isatty():
        screen.note("")


def _differences(body: "Body") -> list[str]:
    from gymtap.proxy.views.words import counted, size

    told = [f"decoded from {body.encoding}"] if body.encoding else []
    told += [f"{counted(body.redacted, 'secret')} redacted"] if body.redacted else []
    return told + ([f"{size(body.missing_bytes)} not kept"] if body.missing_bytes else [])


def _document(capture: "Capture", exchange: "Exchange") -> dict[str, Any]:
    from gymtap.proxy.core.unwrap import unwrap
    from gymtap.proxy.export.encoding import content

    answered = capture.body(_body(exchange, request=False))
    unwrapped = unwrap(answered) if answered and exchange.failed else None
    return {
        "capture": str(capture.path),
        "gaps": [gap.model_dump(mode="json") for gap in capture.gaps()],
        "exchange": exchange.model_dump(mode="json"),
        "request_body": content(capture.body(exchange.request.body)),
        "response_body": content(answered),
        "innermost": unwrapped.model_dump(mode="json") if unwrapped else None,
        "findings": [finding.model_dump(mode="json") for finding in capture.findings(exchange=exchange.id)],
    }


def show_exchange(
    out: "Console",
    capture: "Capture",
    exchange: "Exchange",
    sides: Sequence[str] = ("request", "response"),
    *,
    headers: bool = False,
    full: bool = False,
) -> None:
    """Draw a heading, the sides that are asked for, and what checks said."""
    from rich.text import Text

    from gymtap.proxy.views import exchange_view as view

    look = view.Look(headers, full)
    lines: list[Text | Rule] = [*view.heading(exchange, time.time_ns())]
    for name in sides:
        side = _side(capture, exchange, name, full)
        lines += view.side_view(side, look) if side else view.no_answer(exchange)
    for line in chain(lines, view.findings_view(capture.findings(exchange=exchange.id))):
        out.print(line, width=None if isinstance(line, Text) else screen.rule_width(out))


def _side(capture: "Capture", exchange: "Exchange", name: str, full: bool) -> "Side | None":
    """The request or the response; None for a response that is not there."""
    from gymtap.proxy.core.unwrap import unwrap
    from gymtap.proxy.views.answers import body_start
    from gymtap.proxy.views.exchange_view import Side

    source = exchange.request if name == "request" else exchange.response
    if source is None:
        return None
    data, whole = (capture.body(source.body), True) if full else body_start(capture, source.body)
    failed = name == "response" and exchange.failed
    return Side(name, source.headers, source.body, data, whole, unwrap(data) if data and failed else None)
