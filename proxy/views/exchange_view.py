"""Draws one exchange: a heading, its row and place, and each side's body.

A response that wraps others is shown as it crossed the wire, and beneath it the innermost body with the
servers that wrapped it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.rule import Rule
from rich.text import Text

from gymtap.proxy.views.body_view import Drawing, draw_body
from gymtap.proxy.views.marks import FAILED_STYLE, ID_STYLE, OPEN_STYLE, SEVERITY, exchange_mark, status_style
from gymtap.proxy.views.plain import one_line, printable
from gymtap.proxy.views.words import age_ms, counted, doubt, duration, exchange_status, size
from gymtap.schemas import Body, Exchange, Finding, Headers, LeafKind, State, Unwrapped


@dataclass(frozen=True)
class Side:
    """A request or a response: `data` is the recorded body, None when there is none or it was not kept.

    `whole`: nothing follows `data`; of a very large body only the beginning is drawn.
    """

    name: str
    headers: Headers
    body: Body | None
    data: bytes | None
    whole: bool = True
    unwrapped: Unwrapped | None = None


@dataclass(frozen=True)
class Look:
    """How much to draw."""

    headers: bool = False
    full: bool = False


def heading(exchange: Exchange, now_ns: int) -> Iterator[Text]:
    """Three lines: what and how it went; which row and where in its tree; how it ended, when badly."""
    is_open = exchange.state is State.OPEN
    took = age_ms(exchange.started_ns, now_ns) if is_open else exchange.duration_ms
    request = f"{printable(exchange.request.method)} {printable(exchange.request.target)}"
    reason = f" {printable(exchange.response.reason)}" if exchange.response and not exchange.error else ""
    yield Text.assemble(
        (exchange.id, ID_STYLE), " ", exchange_mark(exchange), " ", (request, "bold"),
        f" → {printable(exchange.server)}",
        "  ", (exchange_status(exchange) + reason, status_style(exchange)), "  ", duration(took),
    )  # fmt: skip
    yield Text(" · ".join(_place(exchange)), "dim")
    if exchange.error is not None:
        yield Text(f"{exchange_status(exchange)}: {one_line(exchange.error.message)}", FAILED_STYLE)


def _place(exchange: Exchange) -> Iterator[str]:
    attribution = exchange.attribution
    yield f"row {attribution.row.label}" if attribution.row else "no row"
    if note := doubt(attribution):
        yield note
    if attribution.evidence:
        yield printable(attribution.evidence)
    yield printable(exchange.boundary).replace("->", " → ")
    yield f"caused by {exchange.parent}" if exchange.parent else "cause not seen"
    if exchange.attempt:
        yield f"retry {exchange.attempt}"


def side_view(side: Side, look: Look) -> Iterator[Text | Rule]:
    """A rule with the side's name and size, its headers if asked for, and its body."""
    yield Rule(Text.assemble((side.name, "bold"), (_measure(side), "dim")), align="left", style="dim")
    if look.headers:
        for name, value in side.headers:
            yield Text.assemble((printable(name), "cyan"), (": ", "dim"), printable(value))
        yield Text("")
    if side.data:
        yield from _drawn(draw_body(side.data, full=look.full, whole=side.whole), look)
    else:
        yield Text(_absence(side.body), "dim")
    if side.unwrapped is not None and side.unwrapped.wrappers:
        yield from _unwrapped(side.unwrapped, look)


def no_answer(exchange: Exchange) -> Iterator[Text | Rule]:
    """What stands where a response would."""
    yield Rule(Text("response", "bold"), align="left", style="dim")
    waiting = "none yet: it is still open" if exchange.state is State.OPEN else "none: the exchange ended without one"
    yield Text(waiting, OPEN_STYLE)


def _measure(side: Side) -> str:
    kind = next((value for name, value in side.headers if name.lower() == "content-type"), "")
    parts = [counted(len(side.headers), "header")]
    if side.body is not None:
        parts = [size(side.body.size_bytes), printable(kind.partition(";")[0]), *parts]
        parts += [f"decoded from {side.body.encoding}"] if side.body.encoding else []
        parts += [f"{size(side.body.missing_bytes)} not kept"] if side.body.missing_bytes else []
        parts += [f"{counted(side.body.redacted, 'secret')} redacted"] if side.body.redacted else []
    return "".join(f" · {part}" for part in parts if part)


def _absence(body: Body | None) -> str:
    if body is None or (body.size_bytes == 0 and not body.missing_bytes):
        return "no body"
    return f"the body ({size(body.size_bytes)}) was not kept"


def _drawn(drawing: Drawing, look: Look) -> Iterator[Text]:
    yield from drawing.lines
    if told := drawing.cuts.told():
        yield Text(f"{told} (--full shows it, --raw writes the bytes)" if not look.full else told, "dim italic")


def _unwrapped(unwrapped: Unwrapped, look: Look) -> Iterator[Text | Rule]:
    named = [wrapper.server or wrapper.kind.replace("_", " ") for wrapper in unwrapped.wrappers]
    yield Text("")
    yield Text.assemble(
        ("innermost", "bold"), (f", inside {counted(len(named), 'wrapper')}: {printable(' → '.join(named))}", "dim")
    )
    leaf = unwrapped.leaf
    if leaf.kind is LeafKind.EMPTY:
        yield Text("an empty body", "dim")
    else:
        yield from _drawn(draw_body(leaf.text.encode(errors="surrogateescape"), full=look.full), look)
    if unwrapped.truncated:
        yield Text("it was cut before it came here, so its end is missing", OPEN_STYLE)


def findings_view(findings: Iterable[Finding]) -> Iterator[Text | Rule]:
    """What checks said, one finding a paragraph; nothing at all where they were silent."""
    told = list(findings)
    if told:
        yield Rule(Text(counted(len(told), "finding"), "bold"), align="left", style="dim")
    for finding in told:
        mark, style = SEVERITY[finding.severity]
        where = f" at {finding.pointer or '/'}" if finding.pointer is not None else ""
        yield Text.assemble(
            (f"{mark} ", style), (finding.rule, "bold"), printable(where), "  ", printable(finding.message)
        )
        if finding.expected is not None:
            yield Text(f"  expected {printable(finding.expected)}", "dim")
        if finding.found is not None:
            yield Text(f"  found {printable(finding.found)}", "dim")
        if finding.fix:
            yield Text(f"  → {printable(finding.fix)}", "dim")
