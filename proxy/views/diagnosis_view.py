"""Draws a diagnosis in the fixed form: symptom, layer, evidence, cause, next action; then the chain and the leaf."""

import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from gymtap.proxy.views.body_view import Drawing, draw_body
from gymtap.proxy.views.marks import FAILED_STYLE, ID_STYLE
from gymtap.proxy.views.plain import one_line, printable
from gymtap.proxy.views.words import duration, size
from gymtap.schemas import Diagnosis, Layer, Leaf, LeafKind

_EVIDENCE_SHOWN = 4
_ECHO_MAX_BYTES = 200
NAME_CELLS = 9
"""How wide the names on the left are."""


def diagnosis_lines(diagnosis: Diagnosis) -> Iterator[Text]:
    """One paragraph a line, unwrapped."""
    yield _named("symptom", Text(one_line(diagnosis.symptom), "bold"))
    yield _named("layer", _layer(diagnosis))
    for item in diagnosis.evidence[:_EVIDENCE_SHOWN]:
        yield _named("evidence", Text(one_line(f"{item.source} {item.where}: {item.text}")))
    yield _named("cause", Text(one_line(diagnosis.cause)))
    yield _named("next", Text(one_line(diagnosis.next_action), "bold"))
    if diagnosis.fingerprint:
        yield _named("print", Text(diagnosis.fingerprint, "dim"))
    yield from _chain(diagnosis)
    yield from _leaf(diagnosis)


def _named(name: str, text: Text) -> Text:
    return Text.assemble((name.ljust(NAME_CELLS), "dim"), text)


def _layer(diagnosis: Diagnosis) -> Text:
    style = "" if diagnosis.layer is Layer.NONE else FAILED_STYLE
    kind = f", {diagnosis.failure_kind}" if diagnosis.failure_kind else ""
    beside = f"  (or {diagnosis.runner_up})" if diagnosis.runner_up else ""
    return Text.assemble((str(diagnosis.layer), style), (f"{beside}{kind}", "dim"))


def _chain(diagnosis: Diagnosis) -> Iterator[Text]:
    for number, hop in enumerate(diagnosis.chain):
        status = hop.error or ("open" if hop.status is None else str(hop.status))
        last = hop.exchange == diagnosis.exchange
        yield Text.assemble(
            (("chain" if number == 0 else "").ljust(NAME_CELLS), "dim"),
            ("  " * number + ("└ " if number else ""), "dim"),
            (hop.exchange, ID_STYLE),
            f" {hop.call} {printable(hop.boundary)} ",
            (one_line(status), FAILED_STYLE),
            (f" {duration(hop.duration_ms)} {size(hop.response_bytes)}", "dim"),
            (" ◀" if last else "", "bold"),
        )


def _leaf(diagnosis: Diagnosis) -> Iterator[Text]:
    if diagnosis.innermost is None or diagnosis.innermost.leaf.kind is LeafKind.EMPTY:
        return
    yield Text("")
    yield Text("innermost", "dim")
    for line in draw_leaf(diagnosis.innermost.leaf).lines:
        yield Text(" " * NAME_CELLS).append_text(line)


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
