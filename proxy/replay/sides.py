"""Two rows or two exchanges side by side: which hops they share, and where each pair differs."""

from collections.abc import Sequence
from dataclasses import dataclass

from gymtap.proxy.core.calls import route
from gymtap.proxy.replay.compare import Difference, differences, parse, request_differences
from gymtap.proxy.replay.inner import paired
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.verdict import reward
from gymtap.schemas import Call


@dataclass(frozen=True)
class Pair:
    """One hop on either side, None where that side has none like it, and how the two differ."""

    before: Recorded | None
    after: Recorded | None
    request: tuple[Difference, ...] = ()
    response: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both sides have it, with the same status and nothing but volatile differences."""
        if self.before is None or self.after is None:
            return False
        return not (self.request or self.response) and status(self.before) == status(self.after)


def compare(before: Recorded, after: Recorded, ignore: frozenset[str] = frozenset()) -> Pair:
    """Two exchanges."""
    return Pair(
        before,
        after,
        (*_lines(before, after), *request_differences(parse(before.request_body), parse(after.request_body), ignore)),
        tuple(differences(parse(before.response_body), parse(after.response_body), ignore)),
    )


def _lines(before: Recorded, after: Recorded) -> list[Difference]:
    """Where two requests are not even for the same thing; the rollout in a path is no difference, as ids are none."""
    asked = [f"{one.exchange.request.method} {route(one.exchange.request.target).path}" for one in (before, after)]
    return [Difference("(what is asked for)", *asked)] if asked[0] != asked[1] else []


def compare_rows(
    before: Sequence[Recorded], after: Sequence[Recorded], ignore: frozenset[str] = frozenset()
) -> list[Pair]:
    """Two rows, hop by hop in the first one's order; then what only the second has."""
    pairs, new = paired(before, after)
    found = [Pair(old, None) if other is None else compare(old, other, ignore) for old, other in pairs]
    return found + [Pair(None, one) for one in new]


def reward_of(row: Sequence[Recorded]) -> float | None:
    """The reward that a row's first answer with one gives, its /run's before its verify's; None where none does."""
    found = (reward(one.response_body) for one in row if one.exchange.call in {Call.RUN, Call.VERIFY})
    return next((one for one in found if one is not None), None)


def status(one: Recorded) -> str:
    """The status, or how the connection ended, or `open`."""
    if one.exchange.error is not None:
        return str(one.exchange.error.kind).replace("_", " ")
    return str(one.exchange.response.status) if one.exchange.response else "open"
