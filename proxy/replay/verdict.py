"""Says what a replay proved: REPRODUCED, FIXED, FLAKY, DIFFERENT, and how.

Two failures are the same when the innermost body behind their wrappers is: the status of an outer 500 says
nothing. A 200 is a success only if it carries what its call is for, so a verify without a reward is a failure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gymtap.proxy.core.unwrap import unwrap
from gymtap.proxy.replay.compare import Difference, differences, parse, stable_text
from gymtap.proxy.replay.recorded import Recorded
from gymtap.schemas import Call, Leaf, TransportErrorKind


class Outcome(StrEnum):
    """How one attempt compares with the recording."""

    REPRODUCED = "reproduced"
    FIXED = "fixed"
    DIFFERENT = "different"


class Word(StrEnum):
    """The verdict over all attempts."""

    REPRODUCED = "REPRODUCED"
    FIXED = "FIXED"
    FLAKY = "FLAKY"
    DIFFERENT = "DIFFERENT"


@dataclass(frozen=True)
class Answer:
    """What came back: a status and a body, or the way in which the transport ended it; all None is no answer.

    `whole` is False for a recorded body that was not kept whole: only its status can be compared.
    """

    status: int | None
    body: bytes | None = None
    error: TransportErrorKind | None = None
    whole: bool = True


@dataclass(frozen=True)
class Attempt:
    """One attempt beside the recording. `how` is one line; rewards are None where the answer has none.

    `differences` are between two successes or two failures; a success and a failure have nothing in common.
    """

    outcome: Outcome
    how: str
    reward_before: float | None = None
    reward_after: float | None = None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """`count` of `total` attempts did what the recording did (for FIXED: succeeded where it failed)."""

    word: Word
    count: int
    total: int
    how: str

    def __str__(self) -> str:
        return f"{self.word} {self.count}/{self.total}" + (f": {self.how}" if self.how else "")


def reward(body: bytes | None) -> float | None:
    """The reward that an answer of verify or run carries; None where it has none, or one that is not a number."""
    value = parse(body)
    found = value.get("reward") if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if math.isfinite(found) else None


def fault(call: Call, answer: Answer) -> str | None:
    """Why an answer is no success, in one line that is stable from run to run; None when it is one."""
    if answer.error is not None:
        return f"the connection ended: {answer.error}"
    if answer.status is None:
        return "no answer"
    if answer.status >= 400:
        return _said(answer)
    return _hollow(call, answer)


def recorded_answer(recorded: Recorded) -> Answer:
    """What the capture says came back."""
    exchange = recorded.exchange
    response = exchange.response
    missing = response is not None and response.body is not None and bool(response.body.missing_bytes)
    status = response.status if response else None
    return Answer(status, recorded.response_body, exchange.error.kind if exchange.error else None, not missing)


def judge(call: Call, recorded: Answer, replayed: Answer, ignore: frozenset[str] = frozenset()) -> Attempt:
    """Compare one attempt with the recording."""
    if not recorded.whole:
        return _judge_status(recorded, replayed)
    before, after = fault(call, recorded), fault(call, replayed)
    places: tuple[Difference, ...] = ()
    if (before is None) is (after is None):
        places = tuple(differences(parse(recorded.body), parse(replayed.body), ignore))
    rewards = reward(recorded.body), reward(replayed.body)
    outcome, how = _compare(before, after, rewards, places)
    return Attempt(outcome, how, *rewards, places)


def _judge_status(recorded: Answer, replayed: Answer) -> Attempt:
    """All that can be said when the recorded body is not whole."""
    same = (recorded.status, recorded.error) == (replayed.status, replayed.error)
    how = f"status {replayed.status}, as recorded" if same else f"status {recorded.status} -> {replayed.status}"
    said = f"{how} (the recorded body was not kept whole)"
    return Attempt(Outcome.REPRODUCED if same else Outcome.DIFFERENT, said, None, reward(replayed.body))


def verdict(attempts: Sequence[Attempt]) -> Verdict:
    """One word for all attempts; mixed ones are FLAKY, with how many did what the recording did."""
    total = len(attempts)
    by_outcome = {outcome: [one for one in attempts if one.outcome is outcome] for outcome in Outcome}
    for outcome, found in by_outcome.items():
        if found and len(found) == total:
            return Verdict(Word(outcome.upper()), total, total, _common(found))
    reproduced = len(by_outcome[Outcome.REPRODUCED])
    return Verdict(Word.FLAKY, reproduced, total, _mixture(by_outcome))


def _compare(
    before: str | None, after: str | None, rewards: tuple[float | None, float | None], places: tuple[Difference, ...]
) -> tuple[Outcome, str]:
    if before is not None and after is None:
        gained = f" (reward {rewards[1]})" if rewards[1] is not None else ""
        return Outcome.FIXED, f"it succeeds now{gained}; it was: {before}"
    if before != after:
        return Outcome.DIFFERENT, f"{after}; it was: {before or 'a success'}"
    if before is not None:
        return Outcome.REPRODUCED, before
    if rewards[0] != rewards[1]:
        return Outcome.DIFFERENT, f"reward {rewards[0]} -> {rewards[1]}"
    if places:
        return Outcome.DIFFERENT, str(places[0])
    return Outcome.REPRODUCED, "the same answer" + (f", reward {rewards[0]}" if rewards[0] is not None else "")


def _said(answer: Answer) -> str:
    """Status and innermost message. Wrappers' own status is dropped: it is 500 whatever happened inside."""
    peeled = unwrap(answer.body or b"")
    status = f"{answer.status} " if not peeled.wrappers else ""
    return f"{status}{_line(peeled.leaf)}"


def _line(leaf: Leaf) -> str:
    if isinstance(leaf.value, dict) and isinstance(leaf.value.get("detail"), list):
        return "; ".join(_field(item) for item in leaf.value["detail"]) or "detail: []"
    text = stable_text(leaf.message or leaf.text.strip()) or f"({leaf.kind} body)"
    return " ".join(text.split())[:300]


def _field(item: Any) -> str:
    """One FastAPI validation error without its `input`, which may echo the whole row."""
    if not isinstance(item, dict):
        return str(item)
    where = ".".join(str(part) for part in item.get("loc", ()))
    return f"{where}: {item.get('msg', item.get('type', ''))}"


def _hollow(call: Call, answer: Answer) -> str | None:
    """A 200 that does not carry what its call is for."""
    if call in {Call.RUN, Call.VERIFY} and reward(answer.body) is None:
        return f"{answer.status} without a reward"
    if call not in {Call.PROVIDER, Call.MODEL, Call.RESPONSES, Call.JUDGE}:
        return None
    peeled = parse(answer.body)
    if isinstance(peeled, list):
        return _stream_fault(answer.body or b"", peeled)
    if not isinstance(peeled, dict):
        return f"{answer.status} with a body that is no JSON object"
    if peeled.get("error"):
        return f"{answer.status} with an error: {_line(unwrap(answer.body or b'').leaf)}"
    return None if _has_output(peeled) else f"{answer.status} without choices or output"


def _has_output(body: dict[str, Any]) -> bool:
    return any(isinstance(body.get(key), list) for key in ("choices", "output", "content", "data"))


def _stream_fault(body: bytes, events: list[Any]) -> str | None:
    failed = any(isinstance(event, dict) and event.get("error") for event in events)
    return f"a stream with an error: {_line(unwrap(body).leaf)}" if failed else None


def _common(attempts: Sequence[Attempt]) -> str:
    ways = list(dict.fromkeys(one.how for one in attempts))
    return ways[0] if len(ways) == 1 else f"{ways[0]} (and {len(ways) - 1} other ways)"


def _mixture(by_outcome: dict[Outcome, list[Attempt]]) -> str:
    return ", ".join(f"{len(found)} {outcome}" for outcome, found in by_outcome.items() if found)
