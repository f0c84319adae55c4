"""`gymtap why`: why a row failed, or silently should not count, in the fixed form of a report."""

import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureOption, JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from gymtap.proxy.store import Capture
    from gymtap.schemas import Diagnosis, Exchange, Row, Unwrapped

_ROWS_LOOKED_INTO = 500
_BODY_LINES = 24
_TRACEBACK_LINES = 8


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("why")(_why)


def _why(
    what: Annotated[
        str | None,
        typer.Argument(metavar="ROW|EXCHANGE", help="A row, or an exchange in one; the first failed row if left out."),
    ] = None,
    *,
    capture: CaptureOption = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(
            "--log", metavar="PATH", help="A log, or a directory of logs, instead of a capture. May be repeated."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="A run's rollouts, with its files beside it, instead of a capture."
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--source", metavar="FILE", help="The source data that --output was made from.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a row failed: the layer, the innermost body, the likely cause and what to do next."""
    if what is not None and Path(what).is_file():  # a bundle
        capture, what = what, None
    if log or output or source:
        diagnosis, beside = _of_paths(log or [], output, source), None
    else:
        diagnosis, beside = _of_capture(capture, what)
    if as_json:
        from gymtap.proxy.diagnose.document import document

        screen.write_json({**document(diagnosis), "sibling": beside})
        return
    show_diagnosis(screen.out(), diagnosis, beside, capture=capture)


def _of_paths(logs: list[Path], output: Path | None, source: Path | None) -> "Diagnosis":
    from gymtap.proxy.doctor.looked import Given
    from gymtap.proxy.doctor.walk import examine

    given = Given(logs=tuple(logs), output=output, source=source)
    return examine(given, now_ns=time.time_ns()).diagnosis


def _of_capture(name: str | None, what: str | None) -> "tuple[Diagnosis, str | None]":
    from gymtap.proxy.cli.choose import open_capture, row_of
    from gymtap.proxy.diagnose.capture import diagnose_beside

    capture = open_capture(name)
    now_ns = time.time_ns()
    row = _first_bad_row(capture, now_ns) if what is None else row_of(capture, what)
    if row is not None:
        return diagnose_beside(capture, row, now_ns=now_ns)
    if what is not None:
        return _rowless(capture, [capture.exchange(what)], now_ns), None
    return _no_bad_row(capture, now_ns), None


def _first_bad_row(capture: "Capture", now_ns: int) -> "Row | None":
    """The first failed row; where none failed, the first of which something was silently lost."""
    from gymtap.proxy.diagnose.capture import diagnose_row

    failed = next(capture.rows(failed=True, limit=1), None)
    if failed is not None:
        return failed
    looked_into = islice(capture.rows(), _ROWS_LOOKED_INTO)
    return next((row for row in looked_into if diagnose_row(capture, row, now_ns=now_ns).rule is not None), None)


def _no_bad_row(capture: "Capture", now_ns: int) -> "Diagnosis":
    """Of a capture in which no row failed: what is known, which may be nothing, and where to look instead."""
    from gymtap.proxy.views.words import counted
    from gymtap.schemas import Diagnosis, Layer, RowState

    rows = capture.info().rows
    running = sum(1 for _ in capture.rows(state=RowState.RUNNING))
    if not rows:
        return _no_row(capture, now_ns)
    if running:
        return Diagnosis(
            symptom=f"of {counted(rows, 'row')} none failed, and {running:,} have no answer yet",
            layer=Layer.UNKNOWN,
            cause="Nothing has failed so far.",
            next_action="See what is open, and for how long: `gymtap inflight`.",
        )
    return Diagnosis(
        symptom=f"of {counted(rows, 'row')} none failed",
        layer=Layer.NONE,
        cause=f"Nothing failed, and nothing was silently lost in the first {min(rows, _ROWS_LOOKED_INTO):,} rows.",
        next_action="Name a row to look into it (`gymtap rows` lists them), or look into all: `gymtap causes --all`.",
    )


def _no_row(capture: "Capture", now_ns: int) -> "Diagnosis":
    """Of a capture without rows: of its exchanges, if one failed; else that the tap knows nothing of a failure."""
    from gymtap.proxy.views.words import counted
    from gymtap.schemas import Diagnosis, Layer

    found = _rowless(capture, list(capture.exchanges(limit=_ROWS_LOOKED_INTO)), now_ns)
    if found.layer is not Layer.NONE:
        return found
    return Diagnosis(
        symptom=f"no row was sent; {counted(capture.info().exchanges, 'exchange')} and none of them failed",
        layer=Layer.UNKNOWN,
        cause="If something stopped the run, it did not cross the tap.",
        next_action="Look into its log, `gymtap why --log LOG`, or its configuration, `gymtap doctor --config FILE`.",
    )


def _rowless(capture: "Capture", exchanges: "list[Exchange]", now_ns: int) -> "Diagnosis":
    """The diagnosis of exchanges that belong to no row."""
    from gymtap.proxy.diagnose import diagnose
    from gymtap.proxy.diagnose.capture import material_of

    return diagnose(material_of(capture, exchanges, now_ns=now_ns))


# --- the report ------------------------------------------------------------------------------------------------


def show_diagnosis(
    out: "Console", diagnosis: "Diagnosis", beside: str | None = None, *, capture: str | None = None
) -> None:
    """Draw a report: symptom, layer, evidence, cause, next action, the chain, and the innermost body.

    `capture` is what a person called it by, for the hint at the end; None where it was the newest.
    """
    from rich.text import Text

    from gymtap.proxy.views.diagnosis_view import NAME_CELLS, diagnosis_lines

    if diagnosis.row:
        out.print(Text.assemble(("row".ljust(NAME_CELLS), "dim"), diagnosis.row), soft_wrap=True)
    for line in diagnosis_lines(diagnosis, beside):
        out.print(line, soft_wrap=True)
    if diagnosis.innermost is not None:
        _body(out, diagnosis.innermost)
    if diagnosis.exchange is not None:
        screen.hint(f"show {diagnosis.exchange}", capture, "   (the whole exchange)")


def _body(out: "Console", innermost: "Unwrapped") -> None:
    from rich.text import Text

    from gymtap.proxy.core.unwrap import LEAF_MAX_CHARS
    from gymtap.proxy.views.diagnosis_view import draw_leaf, leaf_title

    leaf = innermost.leaf
    out.print(leaf_title(innermost), soft_wrap=True)
    drawing = draw_leaf(leaf)
    lines = drawing.lines if leaf.text else [Text("(empty)")]
    raised = "Traceback" in leaf.text.partition("\n")[0]  # the exception is at the end
    shown = lines[-_TRACEBACK_LINES:] if raised else lines[:_BODY_LINES]
    for line in shown:
        out.print(Text("  ").append_text(line), soft_wrap=True)
    drawing.cuts.lines += len(lines) - len(shown)
    if told := drawing.cuts.told():
        screen.note(f"  {told}; --json has {'all of it' if len(leaf.text) < LEAF_MAX_CHARS else 'more'}")
