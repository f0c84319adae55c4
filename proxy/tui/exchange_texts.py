"""What stands in an exchange's tabs that is text: the conversation, headers, timing with attribution, events, findings.

Pure: an exchange and its bodies in, paragraphs out.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice, zip_longest

import orjson
from rich.text import Text

from gymtap.proxy.core.event_stream import blocks
from gymtap.proxy.tui.content import NOT_JSON, Content, Loaded
from gymtap.proxy.views.conversation import conversation
from gymtap.proxy.views.marks import FAILED_STYLE, OPEN_STYLE
from gymtap.proxy.views.plain import one_line, printable
from gymtap.proxy.views.words import age_ms, counted, duration, size
from gymtap.schemas import Exchange, Finding, Headers, Severity, State

_EVENTS_SHOWN = 50_000
_DELTA_CHARACTERS = 20_000
_NAME_CELLS = 13
_ROLE_STYLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow", "reasoning": "bold magenta"}
_MARKS = {Severity.ERROR: ("✗", FAILED_STYLE), Severity.WARNING: ("!", OPEN_STYLE), Severity.NOTE: ("·", "dim")}


def chat(loaded: Loaded) -> Iterator[Text]:
    """The conversation of both bodies, a rule between what was sent and what was answered."""
    for name, side in (("request", loaded.request), ("response", loaded.response)):
        turns = conversation(side.value)[0] if side is not None and side.value is not NOT_JSON else []
        yield Text(f"── {name}: {counted(len(turns), 'turn')} " if turns else f"── {name}: no conversation", "dim")
        for turn, after in zip_longest(turns, turns[1:]):
            if not turn.text and after is not None and after.role == turn.role:
                continue  # a message that only calls tools: the calls follow
            yield Text(one_line(turn.role), _ROLE_STYLES.get(turn.role, "bold"))
            for line in printable(turn.text).split("\n"):
                yield Text("  " + line)


def headers(exchange: Exchange) -> Iterator[Text]:
    """Both sides' headers, as they crossed the wire."""
    request, response = exchange.request, exchange.response
    yield Text(printable(f"{request.method} {request.target} HTTP/{request.http_version}"), "bold")
    yield from _fields(request.headers)
    yield Text("")
    if response is None:
        yield Text("no response", OPEN_STYLE)
        return
    yield Text(printable(f"{response.status} {response.reason}"), "bold")
    yield from _fields(response.headers)


def _fields(found: Headers) -> Iterator[Text]:
    for name, value in found:
        yield Text.assemble((printable(name), "cyan"), (": ", "dim"), printable(value))


def timing(exchange: Exchange, now_ns: int) -> Iterator[Text]:
    """When what happened, then which row it belongs to and how that is known."""
    started = datetime.fromtimestamp(exchange.started_ns / 1e9, UTC)
    response = exchange.response
    open_for = duration(age_ms(exchange.started_ns, now_ns)) if exchange.state is State.OPEN else ""
    yield _named("started", f"{started:%Y-%m-%d %H:%M:%S.%f} UTC")
    yield _named("request sent", duration(exchange.request_done_ms))
    yield _named("first byte", duration(response.first_byte_ms) if response else "")
    yield _named("last byte", duration(response.ended_ms) if response else "")
    yield _named("took", duration(exchange.duration_ms) or f"open for {open_for}")
    if exchange.error is not None:
        yield _named("ended by", f"{exchange.error.kind}: {one_line(exchange.error.message)}")
    yield _named("sent", size(exchange.request.body.size_bytes if exchange.request.body else 0))
    yield _named("received", size(response.body.size_bytes if response and response.body else 0))
    yield Text("")
    yield from _attribution(exchange)


def _attribution(exchange: Exchange) -> Iterator[Text]:
    said = exchange.attribution
    yield _named("boundary", exchange.boundary)
    yield _named("caused by", exchange.parent or "not seen")
    yield _named("attempt", str(exchange.attempt))
    yield _named("row", said.row.label if said.row else "none")
    yield _named("found by", f"{said.method}, confidence {said.confidence}")
    yield _named("evidence", one_line(said.evidence))
    if said.candidates:
        yield _named("candidates", ", ".join(key.label for key in said.candidates))


def _named(name: str, text: str) -> Text:
    return Text.assemble((name.ljust(_NAME_CELLS), "dim"), printable(text))


def events(content: Content) -> Iterator[tuple[Text, str | None]]:
    """A stream's events one by one, numbered; each begins with what it adds to the answer, where it says that."""
    if not isinstance(content.data, bytes):
        yield Text("the stream is too large to be taken apart: Raw shows it", OPEN_STYLE), None
        return
    for number, (kind, data) in enumerate(blocks(content.data), start=1):
        if number > _EVENTS_SHOWN:
            yield Text(f"… only the first {_EVENTS_SHOWN:,} are shown: Raw has all", "dim"), None
            return
        line = Text.assemble((f"{number:>5} ", "dim"), (f"{one_line(kind)} " if kind else "", "bold"), no_wrap=True)
        added = _added(data)
        line.append(f"{one_line(added)}  " if added else "", "bold").append(one_line(data), "dim" if added else "")
        yield line, str(number)


def event(content: Content, number: int) -> Iterator[Text]:
    """One event of a stream, laid out."""
    kind, data = next(islice(blocks(bytes(content.data)), number - 1, None))
    if kind:
        yield Text(one_line(kind), "bold")
    with suppress(orjson.JSONDecodeError):
        data = json.dumps(orjson.loads(data), indent=2, ensure_ascii=False)
    yield from (Text(line) for line in printable(data).split("\n"))


def _added(data: str) -> str:
    """The delta of a chunk: of chat completions, or of the Responses API."""
    if len(data) > _DELTA_CHARACTERS or '"delta"' not in data:
        return ""
    try:
        chunk = orjson.loads(data)
        delta = chunk["delta"] if "delta" in chunk else chunk["choices"][0]["delta"]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return ""
    return delta if isinstance(delta, str) else orjson.dumps(delta).decode()


def findings(found: Iterable[Finding]) -> Iterator[Text]:
    """What checks said, a line each."""
    for finding in found:
        mark, style = _MARKS[finding.severity]
        where = f" at {finding.pointer or '/'}" if finding.pointer is not None else ""
        yield Text.assemble(
            (f"{mark} ", style), (finding.rule, "bold"), printable(where), "  ", one_line(finding.message)
        )
        if finding.fix:
            yield Text(f"  → {one_line(finding.fix)}", "dim")


def flat(content: Content) -> Iterator[Text]:
    """A body that is no JSON, or that is not there, in words."""
    if content.large:
        yield Text(f"{size(len(content.data))}: too large for a tree; Raw and Hex show it, / searches it")
    elif content.data:
        yield from (Text(line) for line in printable(bytes(content.data).decode("utf-8", "replace")).split("\n"))
    else:
        yield Text("no body" if content.body is None or not content.body.size_bytes else "the body was not kept", "dim")
