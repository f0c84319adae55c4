"""Edits to what a replay sends: `--set`, `--patch`, `--model`, `--edit`; applied to values, shown as a diff.

An edit is meant for the judged step. Where a session's seed carries the same field with the same value, it
is the row's field and not the call's, so the seed gets the edit too: a server must not be seeded with the
old row and asked about the new one.
"""

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay import patch
from gymtap.proxy.replay.compare import parse
from gymtap.proxy.replay.plan import Plan, Step
from gymtap.schemas import Call

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, which recorded JSON may hold and no file can: a person sees it escaped."""


@dataclass(frozen=True)
class Assignment:
    """`--set POINTER=VALUE`."""

    pointer: str
    value: Any


def assignment(text: str) -> Assignment:
    """Read `/json/pointer=value`; the value is JSON where it parses as JSON, else a string. Raises UsageError."""
    pointer, equals, written = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} sets nothing", "write --set /json/pointer=value")
    patch.split(pointer)
    try:
        return Assignment(pointer, json.loads(written))
    except ValueError:
        return Assignment(pointer, written)


def edit(plan: Plan, assignments: Sequence[Assignment], operations: Sequence[patch.Operation] = ()) -> Plan:
    """The plan with edited bodies. Raises UsageError when an edit does not apply to the judged step's body."""
    if not assignments and not operations:
        return plan
    document = patch.apply(_document(plan.target), operations)
    for one in assignments:
        document = patch.assign(document, one.pointer, one.value)
    bodies = {plan.judged: write(document)}
    touched = [*_places(operations), *(one.pointer for one in assignments)]
    for index, step in enumerate(plan.steps[: plan.judged]):
        if step.call is Call.SEED_SESSION:
            bodies[index] = write(_row_fields(_document(step), _document(plan.target), document, touched))
    return plan.with_bodies({index: body for index, body in bodies.items() if _changed(plan.steps[index], body)})


def with_body(plan: Plan, text: str) -> Plan:
    """The plan with the judged step's body as a person wrote it. Raises UsageError when it is not JSON."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"what was written is not JSON: {error}", "nothing was sent") from None
    return plan.with_bodies({plan.judged: write(document)})


def editable(step: Step) -> str:
    """The step's body as a person edits it. Raises UsageError when it is not JSON."""
    document = _document(step)
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return json.dumps(document, indent=2) + "\n" if _SURROGATE.search(text) else text


def changes(before: bytes | None, after: bytes | None) -> list[str]:
    """A unified diff of two bodies, without its file lines; empty when they say the same."""
    lines = difflib.unified_diff(_lines(before), _lines(after), n=2, lineterm="")
    return list(lines)[2:]


def write(document: Any) -> bytes:
    """A value as a body; escaped to ASCII, so that lone surrogates in recorded data survive."""
    return json.dumps(document, separators=(",", ":")).encode()


def _document(step: Step) -> Any:
    document = parse(step.body)
    if isinstance(document, str) and not _is_json(step.body):
        raise UsageError(
            f"the body of {step.original.exchange.id} is not JSON", "send it unedited, or use --edit elsewhere"
        )
    if document is patch.MISSING:
        raise UsageError(f"{step.original.exchange.id} has no body to edit")
    return document


def _places(operations: Sequence[patch.Operation]) -> list[str]:
    """The places that a patch touches; what is appended to touches the whole array."""
    found = [str(operation[name]) for operation in operations for name in ("from", "path") if name in operation]
    return [place.removesuffix("/-") for place in found]


def _row_fields(seed: Any, before: Any, after: Any, places: Sequence[str]) -> Any:
    """The seed with the edits to those places that it shares with the judged body."""
    for place in places:
        parent = patch.read(seed, place.rpartition("/")[0])
        if not place or not isinstance(parent, dict | list):
            continue
        held, wanted = patch.read(seed, place), patch.read(after, place)
        if not patch.same(held, patch.read(before, place)) or patch.same(held, wanted):
            continue
        if wanted is patch.MISSING:
            seed = patch.apply(seed, [{"op": "remove", "path": place}])
        else:
            seed = patch.assign(seed, place, wanted)
    return seed


def _changed(step: Step, body: bytes) -> bool:
    return not patch.same(parse(step.body), parse(body))


def _is_json(body: bytes | None) -> bool:
    try:
        json.loads(body or b"")
    except ValueError:
        return False
    return True


def _lines(body: bytes | None) -> list[str]:
    value = parse(body)
    if value is patch.MISSING:
        return []
    return json.dumps(value, indent=2, ensure_ascii=False).splitlines()
