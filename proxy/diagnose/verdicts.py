"""Reads what a verify's answer tells beside a reward of 0: that the verifier or its judge broke, or only its verdict.

A verdict gives reasons, and its reasons speak of errors: of the answer, or of the program that the model wrote. Only a
field of the verifier's own work counts, or any field that tells of an exception, a connection or a time limit.
"""

import re
from collections.abc import Iterator
from typing import Any

from gymtap.proxy.diagnose.evidence import listed
from gymtap.proxy.diagnose.rule import View
from gymtap.schemas import Call

_BROKE = re.compile(r"judge|exception|traceback|timed? ?out|\w+Error\b|connect|unavailable|internal", re.IGNORECASE)
_OF_THE_PROGRAM = re.compile(r"exec|compil|runtime|test|program|code|std(?:out|err)|candidate|solution", re.IGNORECASE)
"""Fields about the program that the model wrote and the verifier ran: what it raises is its own."""
_OF_THE_ANSWER = re.compile(r"^errors$|failure_reason|parse_|extract|format|syntax|answer", re.IGNORECASE)
"""Fields that say what is wrong with the answer, as long as they tell of nothing that broke."""
_FAILURE_FIELD = re.compile(
    r"(?:^|_)(?:error|exception|traceback|failure_reason|failure_kind|judge_error|parse_error|verifier_error)s?$"
)
_CHECKED = re.compile(r"grad|judg|verif|scor|reward|check|eval|extract|pars|compar|match", re.IGNORECASE)
"""Names of what the verifier did itself; a program's own stdout or stderr is the model's doing."""
_RAISED = re.compile(r"^\s*Traceback \(most recent call last\)|^\s*(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b\s*[:(]")
_JUDGE = re.compile(r"judg|grader|verifier", re.IGNORECASE)
_MOST_PARTS = 50


def told_failures(view: View) -> Iterator[tuple[str, str, float, str]]:
    """Every good verify, or row, whose body tells that its check broke: source, where, order, and what it tells."""
    bodies: list[tuple[str, str, float, Any]] = [
        ("exchange", e.id, float(view.tree.order(e)), e.response_json)
        for e in view.material.of(Call.VERIFY)
        if (e.status or 500) < 400
    ]
    bodies += [(source, where, 0.0, row) for source, where, row in view.result_rows]
    for source, where, order, body in bodies:
        told = told_failure(body)
        if told:
            yield source, where, order, told


def told_failure(body: Any) -> str | None:
    """`field: words` of the field that tells that a check broke, in a body with a reward of 0; None where none does."""
    if not isinstance(body, dict) or body.get("reward") != 0:
        return None
    for name, item in body.items():
        gyms_own = body.get("failure_kind") and str(name).startswith("failure_")  # then Gym's own word speaks
        if gyms_own or _OF_THE_PROGRAM.search(str(name)):
            continue
        told = _told(str(name), item) or (_within(str(name), item) if _JUDGE.search(str(name)) else None)
        if told:
            return told
    return None


def _told(name: str, item: Any) -> str | None:
    named = _FAILURE_FIELD.search(name) and isinstance(item, str | dict | list) and item
    if named and (not _OF_THE_ANSWER.search(name) or _BROKE.search(str(item))):
        return f"{name}: {item}"
    if isinstance(item, str) and _CHECKED.search(name) and _RAISED.search(item):
        return f"{name}: {item.strip().splitlines()[-1]}"
    return None


def _within(name: str, item: Any) -> str | None:
    """The error inside what a judge's field holds: an object, or a list of objects, one for each judgement."""
    for part in (listed(item) or [item])[:_MOST_PARTS]:
        for key, found in part.items() if isinstance(part, dict) else ():
            if isinstance(found, str) and _FAILURE_FIELD.search(str(key)) and _BROKE.search(found):
                return f"{name}.{key}: {found}"
    return None
