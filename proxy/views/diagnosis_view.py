"""Draws a diagnosis in the fixed form: symptom, layer, evidence, cause, next action; then the chain and the leaf."""

import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from gymtap.proxy.views.body_view import Drawing, draw_body
from gymtap.proxy.views.marks import FAILED_STYLE, ID_STYLE
from gymtap.proxy.views.plain import one_line, printable
from gymtap.proxy.views.words import counted, duration, size
from gymtap.schemas import Diagnosis, Hop, Layer, Leaf, LeafKind, Unwrapped

_EVIDENCE_SHOWN = 4
_TEXT_SHOWN = 600
_ECHO_MAX_BYTES = 200
NAME_CELLS = 10
"""How wide the names on the left are."""


def diagnosis_lines(diagnosis: Diagnosis, beside: str | None = None) -> Iterator[Text]:
    """One paragraph a line, unwrapped; `beside` says how a row of the same task that passed went another way."""
    for name, text in _fields(diagnosis, beside):
        yield Text.assemble((name.ljust(NAME_CELLS), "dim"), text)
    yield from _chain(diagnosis)


def _fields(diagnosis: Diagnosis, beside: str | None) -> Iterator[tuple[str, Text]]:
    yield "symptom", _said(diagnosis.symptom, "bold")
    yield "layer", _layer(diagnosis)
    for item in diagnosis.evidence[:_EVIDENCE_SHOWN]:
        yield "evidence", _said(f"{item.source} {item.where}: {item.text}")
    yield "cause", _said(diagnosis.cause)
    yield "next", _said(diagnosis.next_action, "bold")
    if beside:
        yield "sibling", _said(beside)
    if diagnosis.rule:
        yield "rule", Text(f"{diagnosis.rule}, fingerprint {diagnosis.fingerprint}", "dim")


def _said(text: str, style: str = "") -> Text:
    return Text(one_line(text)[:_TEXT_SHOWN], style)


def _layer(diagnosis: Diagnosis) -> Text:
    style = "" if diagnosis.layer is Layer.NONE else FAILED_STYLE
    kind = f", {diagnosis.failure_kind}" if diagnosis.failure_kind else ""
    beside = f" (or {diagnosis.runner_up})" if diagnosis.runner_up else ""
    return Text.assemble((str(diagnosis.layer), style), (f"{beside}{kind}", "dim"))


def _chain(diagnosis: Diagnosis) -> Iterator[Text]:
    for number, hop in enumerate(diagnosis.chain):
        last = hop.exchange == diagnosis.exchange
        yield Text.assemble(
            (("chain" if number == 0 else "").ljust(NAME_CELLS), "dim"),
            ("  " * (number - 1) + ("└─ " if number else ""), "dim"),
            (hop.exchange, ID_STYLE),
            f" {hop.call} {printable(hop.boundary)} ",
            (_ended(hop), FAILED_STYLE if hop.error or (hop.status or 0) >= 400 else ""),
            ("".join(f" {part}" for part in (duration(hop.duration_ms), size(hop.response_bytes)) if part), "dim"),
            (" ◀" if last else "", "bold"),
        )


def _ended(hop: Hop) -> str:
    """A status, how the exchange ended otherwise, or both: a response can break off after its status."""
    if hop.status is None and hop.error is None:
        return "open"
    return " ".join(one_line(str(part)) for part in (hop.status, hop.error) if part is not None)


def leaf_lines(innermost: Unwrapped | None) -> Iterator[Text]:
    """What the innermost body is, then the body, bounded; nothing where there is none."""
    if innermost is None or innermost.leaf.kind is LeafKind.EMPTY:
        return
    yield Text()
    yield leaf_title(innermost)
    for line in draw_leaf(innermost.leaf).lines:
        yield Text("  ").append_text(line)


def leaf_title(innermost: Unwrapped) -> Text:
    """The kind of the innermost body, and how deep it was wrapped."""
    inside = f", inside {counted(len(innermost.wrappers), 'wrapper')}" if innermost.wrappers else ""
    about = str(innermost.leaf.kind).replace("_", " ") + inside + (", cut" if innermost.truncated else "")
    return Text.assemble(("innermost".ljust(NAME_CELLS), "dim"), about)


def draw_leaf(leaf: Leaf) -> Drawing:
    """The innermost body, bounded. FastAPI's 422 repeats the body that it refuses in `input`: only its size is told."""
    text, detail = leaf.text, leaf.value.get("detail") if isinstance(leaf.value, dict) else None
    if leaf.kind is LeafKind.DETAIL and isinstance(detail, list):
        text = json.dumps({**leaf.value, "detail": [_without_echo(item) for item in detail]})
    return draw_body(text.encode(errors="surrogateescape"))


def _without_echo(item: Any) -> Any:
    echo = item.get("input") if isinstance(item, dict) else None
    if not isinstance(echo, dict | list):
        return item
    echo_bytes = len(json.dumps(echo))
    return item if echo_bytes <= _ECHO_MAX_BYTES else {**item, "input": f"… {size(echo_bytes)} of the refused body"}
