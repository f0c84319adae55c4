"""How a replay looks: what is about to be sent, what is asked, how far it is, and what it proved."""

import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from gymtap.proxy.cli import screen
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay.compare import Difference
from gymtap.proxy.replay.edits import changes
from gymtap.proxy.replay.patch import MISSING
from gymtap.proxy.replay.prepare import Draft
from gymtap.proxy.replay.run import Announcement, Order
from gymtap.proxy.replay.safety import Announced
from gymtap.proxy.replay.session import Result
from gymtap.proxy.replay.verdict import Word
from gymtap.proxy.views.plain import clipped, one_line
from gymtap.proxy.views.words import counted

_SHOWN_ROWS = 3
_SHOWN_DIFFERENCES = 8
_SHOWN_DIFF_LINES = 40
_JSON_DIFFERENCES = 50
_STYLES = {Word.FIXED: "green", Word.REPRODUCED: "bold", Word.FLAKY: "yellow", Word.DIFFERENT: "magenta"}


class Faces:
    """The callbacks that a replay talks through. `quiet` leaves out what is not a question or an error."""

    def __init__(self, order: Order, *, yes: bool, quiet: bool) -> None:
        self._order = order
        self._yes = yes
        self._quiet = quiet
        self._total = len(order.drafts) * order.times
        self._bar: Progress | None = None

    def agree(self, announcement: Announcement) -> bool:
        """Say what will be called and where; ask where something may change. UsageError where nobody can answer."""
        if not self._quiet or (announcement.risks and not self._yes):
            _announce(announcement, self._order)
        if not announcement.risks or self._yes:
            return True
        if not sys.stdin.isatty():
            raise UsageError("this may change something, and nobody can be asked", "add --yes")
        return typer.confirm("Send?", err=True)

    def progress(self, _: Result) -> None:
        """One attempt is over."""
        if self._total < 2 or self._quiet:
            return
        if self._bar is None:
            self._bar = screen.bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar.add_task("replaying", total=self._total)
            self._bar.start()
        self._bar.advance(self._bar.task_ids[0])

    def tell(self, results: Sequence[Result], *, as_json: bool) -> None:
        """The verdicts, on stdout."""
        if self._bar is not None:
            self._bar.stop()
        if as_json:
            screen.write_json(document(results, self._order))
            return
        for result in results:
            _draw(result, alone=len(results) == 1)
        if len(results) > 1:
            screen.note(_summary(results))
        screen.note(f"kept in {self._order.into}")


def _announce(announcement: Announcement, order: Order) -> None:
    for draft, steps in list(zip(announcement.drafts, announcement.steps, strict=True))[:_SHOWN_ROWS]:
        _announce_one(draft, steps, order.times)
    more = len(announcement.drafts) - _SHOWN_ROWS
    if more > 0:
        screen.note(f"… and {counted(more, 'more row')}, in the same way")
    if announcement.head is not None:
        screen.note(f"servers are where the Gym at {announcement.head} says")
    for url in announcement.stubbed_at:
        screen.note(f"the recorded answers stand at {url}")
    for problem in announcement.problems:
        screen.note(f"! the server's own contract: {one_line(problem)}")
    for risk in announcement.risks:
        screen.note(f"! {risk}")


def _announce_one(draft: Draft, steps: Sequence[Announced], times: int) -> None:
    target = draft.plan.target.original.exchange
    often = f", {times} times" if times > 1 else ""
    screen.note(f"{draft.name}: {target.call} {target.id} again{often}")
    for number, one in enumerate(steps, start=1):
        method = one.step.original.exchange.request.method
        screen.note(f"  {number}. {method} {one_line(one.url)}  ({one.step.call}, {one.step.why}{_cookies(one)})")
    for name in draft.cookies_lost:
        screen.note(f"  the cookie {name} is left out: its signature was redacted")
    for step in draft.plan.steps if draft.edited else ():
        for line in changes(step.original.request_body, step.body)[:_SHOWN_DIFF_LINES]:
            screen.note(f"    {one_line(line) if len(line) > 200 else line}")


def _cookies(one: Announced) -> str:
    sources = sorted({cookie.source + 1 for cookie in one.step.cookies if cookie.source is not None})
    return f", with the cookie of {', '.join(map(str, sources))}" if sources else ""


def _draw(result: Result, *, alone: bool) -> None:
    verdict = result.verdict
    line = Text.assemble(
        f"{result.job.name}  ", (f"{verdict.word} {verdict.count}/{verdict.total}", _STYLES[verdict.word])
    )
    line.append(f"  {one_line(verdict.how)}" if alone else f"  {clipped(one_line(verdict.how), 120)}")
    screen.out().print(line, soft_wrap=True)
    if not alone:
        return
    for rest in (_rewards(result), *_first(result), *_places(result), *_playback(result)):
        if rest:
            screen.out().print(f"  {rest}", soft_wrap=True)


def _rewards(result: Result) -> str:
    before = result.attempts[0].reward_before
    after = [attempt.reward_after for attempt in result.attempts]
    if before is None and not any(reward is not None for reward in after):
        return ""
    told = ", ".join("none" if reward is None else f"{reward:g}" for reward in after[:20])
    return f"reward: {'none' if before is None else f'{before:g}'} then, {told} now"


def _first(result: Result) -> list[str]:
    return [f"first difference: {one_line(str(result.first))}"] if result.first else []


def _places(result: Result) -> list[str]:
    """What differs in the first attempt that does not do as recorded."""
    found = next((attempt.differences for attempt in result.attempts if attempt.outcome != "reproduced"), ())
    told = [f"{one_line(str(place))}" for place in found[:_SHOWN_DIFFERENCES]]
    more = len(found) - _SHOWN_DIFFERENCES
    return told + ([f"… and {counted(more, 'more difference')}: --json"] if more > 0 else [])


def _playback(result: Result) -> list[str]:
    if result.unasked and not result.asked:
        return ["nobody asked the playback: whatever answered, it was not the recording"]
    told = [f"not recorded: {one_line(miss)}" for miss in result.misses[:_SHOWN_DIFFERENCES]]
    return told + ([f"{counted(result.unasked, 'recorded answer')} nobody asked for"] if result.unasked else [])


def _summary(results: Sequence[Result]) -> str:
    words = [result.verdict.word for result in results]
    return ", ".join(f"{words.count(word):,} {word}" for word in Word if word in words)


def document(results: Sequence[Result], order: Order) -> dict[str, Any]:
    """The results as documented JSON."""
    return {
        "capture": str(order.original),
        "kept_in": str(order.into),
        "results": [_result(result) for result in results],
    }


def _result(result: Result) -> dict[str, Any]:
    target, verdict, first = result.job.plan.target, result.verdict, result.first
    return {
        "name": result.job.name,
        "exchange": target.original.exchange.id,
        "call": target.call,
        "edited": result.job.edited,
        "verdict": verdict.word,
        "count": verdict.count,
        "total": verdict.total,
        "how": verdict.how,
        "reward_before": result.attempts[0].reward_before,
        "first_difference": None
        if first is None
        else {
            "exchange": first.exchange,
            "boundary": first.boundary,
            "call": first.call,
            "side": first.side,
            "text": first.text,
        },
        "attempts": [
            {
                "outcome": attempt.outcome,
                "how": attempt.how,
                "reward": attempt.reward_after,
                "exchange": exchange,
                "differences": [place(one) for one in attempt.differences[:_JSON_DIFFERENCES]],
            }
            for attempt, exchange in zip(result.attempts, _judged(result), strict=True)
        ],
        "misses": result.misses,
        "unasked": result.unasked,
    }


def _judged(result: Result) -> list[str | None]:
    return [*result.kept, *[None] * (len(result.attempts) - len(result.kept))]


def place(one: Difference) -> dict[str, Any]:
    """A difference as JSON; a side that has nothing there is left out."""
    sides = {"before": one.before, "after": one.after}
    return {"pointer": one.pointer, **{name: value for name, value in sides.items() if value is not MISSING}}
