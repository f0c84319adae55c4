"""Draws what the doctor says of each step: its outcome, why, and the first things that were seen in it."""

from collections.abc import Iterator

from rich.text import Text

from gymtap.proxy.doctor.report import Outcome, Step
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE
from gymtap.proxy.views.plain import one_line

_NOTES_SHOWN = 3
_MARKS = {Outcome.OK: ("✓", OK_STYLE), Outcome.PROBLEM: ("✗", FAILED_STYLE)}


def step_lines(step: Step) -> Iterator[Text]:
    """One step."""
    mark, style = _MARKS.get(step.outcome, ("-", "dim"))
    yield Text.assemble(
        (f"{mark} {step.number} {step.name:<22}", style), f" {step.outcome:<12}", one_line(step.why)[:400]
    )
    shown = [note for note in step.notes if note.severity != "note" or note.rule.startswith("doctor.")]
    for note in shown[:_NOTES_SHOWN]:
        yield Text(f"      {note.severity} {note.rule}  {note.where}: {one_line(note.text)[:300]}", "dim")
