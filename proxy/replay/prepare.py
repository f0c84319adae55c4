"""From what a person asks for to jobs that can be sent: plans made, edits applied, obstacles named.

Everything that can be refused is refused here, for all rows at once, before the first byte is sent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.replay import edits, load
from gymtap.proxy.replay.patch import Operation
from gymtap.proxy.replay.plan import Plan, Start, choose, plan
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.whole import lost_cookies, obstacles
from gymtap.proxy.store import Capture
from gymtap.schemas import Call, Exchange, RowKey

_MODEL_PLACES = {
    Call.RUN: "/responses_create_params/model",
    Call.RESPONSES: "/model",
    Call.MODEL: "/model",
    Call.PROVIDER: "/model",
    Call.JUDGE: "/model",
}


@dataclass(frozen=True)
class Draft:
    """A replay that is not routed yet. `name` is the row's label, or the exchange's id.

    `row` reads what was recorded of the row; thousands of rows are not held in memory at once.
    """

    name: str
    plan: Plan
    row: Callable[[], Sequence[Recorded]]
    edited: bool = False

    @property
    def cookies_lost(self) -> list[str]:
        """Cookies that are left out, because they were redacted and no step of the plan gets new ones."""
        return list(dict.fromkeys(name for step in self.plan.steps for name in lost_cookies(step)))


@dataclass(frozen=True)
class Changes:
    """The edits of one command line; `model` is a shorthand for the place where the call names its model."""

    assignments: tuple[edits.Assignment, ...] = ()
    operations: tuple[Operation, ...] = ()
    model: str | None = None

    def __bool__(self) -> bool:
        return bool(self.assignments or self.operations or self.model)


def of_row(capture: Capture, key: RowKey, start: str | None) -> Draft:
    """A row, from a kind of call, an exchange's id, or (None) its /run. Raises UsageError, CaptureError."""
    row = load.row(capture, key)
    named = [one for one in row if one.exchange.id == start]
    target = named[0] if named else choose(row, Start.parse(start or "run"))
    return Draft(key.label, plan(row, target), partial(load.row, capture, key))


def of_exchange(capture: Capture, exchange: Exchange) -> Draft:
    """One exchange, with the session that it needs. Raises CaptureError."""
    row = load.row_of(capture, exchange)
    target = next(one for one in row if one.exchange.id == exchange.id)
    return Draft(exchange.id, plan(row, target), partial(load.row_of, capture, exchange))


def changed(draft: Draft, changes: Changes) -> Draft:
    """With its edits. Raises UsageError when one does not apply."""
    if not changes:
        return draft
    assignments = list(changes.assignments)
    if changes.model is not None:
        assignments.append(edits.Assignment(_model_place(draft.plan), changes.model))
    made = edits.edit(draft.plan, assignments, changes.operations)
    return replace(draft, plan=made, edited=True)


def check(drafts: Iterable[Draft]) -> None:
    """Raise GymtapError when something cannot be sent as it was, naming each part."""
    found = [line for draft in drafts for step in draft.plan.steps for line in obstacles(step)]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise GymtapError(f"{found[0]}{more}: it cannot be sent as it was", "fill it in with --set POINTER=VALUE")


def read_rows(text: str) -> list[RowKey]:
    """Row labels, one a line; empty lines and `#` comments are passed over. Raises UsageError with the line."""
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        label = line.partition("#")[0].strip()
        try:
            keys += [RowKey.parse(label)] if label else []
        except ValueError as error:
            raise UsageError(f"line {number}: {error}") from None
    return keys


def calls_stateful(draft: Draft, modes: Mapping[str, str]) -> bool:
    """Whether a session's server is not known to be stateless, so that its tool calls have to be repeated."""
    return any(modes.get(step.server) != "stateless" for step in draft.plan.steps if step.call is Call.SEED_SESSION)


def _model_place(made: Plan) -> str:
    place = _MODEL_PLACES.get(made.target.call)
    if place is None:
        raise UsageError(
            f"--model says nothing to a {made.target.call} call", "use it with --from model, provider or run"
        )
    return place
