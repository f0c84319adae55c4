"""What the doctor says: the eight steps, each with its outcome and why, and the one diagnosis they come to."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gymtap.proxy.diagnose.document import document
from gymtap.schemas import Diagnosis, Layer

HEALTHY, PROBLEM_FOUND, COULD_NOT_LOOK = 0, 1, 2
"""Exit statuses."""


class Outcome(StrEnum):
    """`not checked`: nothing that was given tells."""

    OK = "ok"
    PROBLEM = "problem"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Note:
    """One thing that was seen in a step: `severity` is error, warning or note; `where` a file and line, an exchange."""

    rule: str
    severity: str
    where: str
    text: str
    cause: str = ""
    next_action: str = ""


@dataclass(frozen=True)
class Step:
    """One of the eight. `why` says what was looked at, or why nothing was."""

    number: int
    name: str
    outcome: Outcome
    why: str
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Report:
    """All of it. `given` names what was looked at."""

    given: tuple[str, ...]
    steps: tuple[Step, ...]
    diagnosis: Diagnosis

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 a problem was found, 2 nothing could be looked at."""
        if self.diagnosis.layer is not Layer.NONE or any(step.outcome is Outcome.PROBLEM for step in self.steps):
            return PROBLEM_FOUND
        return COULD_NOT_LOOK if all(step.outcome is Outcome.NOT_CHECKED for step in self.steps) else HEALTHY

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {
            "healthy": self.exit_code == HEALTHY,
            "given": list(self.given),
            "steps": [
                {
                    "number": step.number,
                    "name": step.name,
                    "outcome": str(step.outcome),
                    "why": step.why,
                    "notes": [vars(note) for note in step.notes],
                }
                for step in self.steps
            ],
            "diagnosis": document(self.diagnosis),
        }
