"""A replay from the UI: the order that was chosen, what is announced, and what it proved, as text.

The replay itself is `gymtap.proxy.replay.run.replay`, in a loop of its own on a thread; here are only its beginning and
its end. The options are those of `gymtap replay`.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rich.text import Text

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay import edits
from gymtap.proxy.replay.options import Options, drafts, order
from gymtap.proxy.replay.prepare import Draft
from gymtap.proxy.replay.run import Announcement, Order, replay
from gymtap.proxy.replay.session import Result
from gymtap.proxy.replay.targets import base_url, target
from gymtap.proxy.replay.verdict import Word
from gymtap.proxy.store import Capture
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE, OPEN_STYLE
from gymtap.proxy.views.plain import one_line
from gymtap.proxy.views.words import counted
from gymtap.schemas import RowKey

_DIFFERENCES_SHOWN = 100
_ANNOUNCED_ROWS = 5
_STYLES = {
    Word.FIXED: f"bold {OK_STYLE}",
    Word.REPRODUCED: "bold",
    Word.FLAKY: OPEN_STYLE,
    Word.DIFFERENT: FAILED_STYLE,
}


@dataclass(frozen=True)
class Asked:
    """What to replay and how: rows by their keys, exchanges by their ids.

    `written` is the judged body as it was edited, None where it is sent as it was.
    """

    what: tuple[RowKey | str, ...]
    options: Options = field(default_factory=Options)
    written: str | None = None

    @property
    def name(self) -> str:
        """What is replayed."""
        names = [one if isinstance(one, str) else one.label for one in self.what]
        return names[0] if len(names) == 1 else counted(len(names), "row")


def drafts_of(capture: Capture, asked: Asked) -> list[Draft]:
    """The drafts, with what was edited. Raises UsageError and CaptureError."""
    made = drafts(capture, asked.what, asked.options)
    if asked.written is None:
        return made
    return [replace(one, plan=edits.with_body(one.plan, asked.written), edited=True) for one in made]


def editable(capture: Capture, asked: Asked) -> str:
    """The body that can be edited. Raises UsageError where there is none, or more than one."""
    made = drafts_of(capture, asked)
    if len(made) != 1:
        raise UsageError("one body is edited at a time", "--set and --patch change all of them")
    return edits.editable(made[0].plan.target)


def order_of(capture: Capture, asked: Asked) -> Order:
    """The whole order; what is sent and answered is kept beside the captures. Raises UsageError."""
    return order(capture, drafts_of(capture, asked), asked.options)


def aimed(options: Options, to: str) -> Options:
    """With a target: `NAME=URL` is a server, `gym URL` a running Gym's head, `URL` the provider. Raises UsageError."""
    text = to.strip()
    if text.startswith("gym "):
        return replace(options, gym=base_url(text.removeprefix("gym ").strip()))
    if "=" in text.partition("://")[0]:
        target(text)
        return replace(options, to=(*options.to, text))
    return replace(options, endpoint=base_url(text)) if text else options


def check_target(to: str) -> None:
    """Raise UsageError for what is no target."""
    aimed(Options(), to)


def run(order: Order, agree: Callable[[Announcement], bool], told: Callable[[Result], None]) -> Sequence[Result]:
    """Send it; nothing when `agree` said no. It takes as long as Gym does, so run it in a thread. Raises GymtapError.

    `told` is called after each attempt.
    """
    return asyncio.run(replay(order, os.environ, agree, told)) or ()


def announced(announcement: Announcement) -> Iterator[Text]:
    """What is about to be sent, where, and what it may do."""
    many = len(announcement.drafts) > 1
    for draft, steps in list(zip(announcement.drafts, announcement.steps, strict=True))[:_ANNOUNCED_ROWS]:
        for number, one in enumerate(steps, start=1):
            method = one.step.original.exchange.request.method
            name = f"{draft.name} " if many else ""
            yield Text(f"{name}{number}. {method} {one_line(one.url)}  ({one.step.call}, {one.step.why})")
        for cookie in draft.cookies_lost:
            yield Text(f"the cookie {one_line(cookie)} is left out: its signature was redacted", "dim")
        yield from _edits(draft)
    if (more := len(announcement.drafts) - _ANNOUNCED_ROWS) > 0:
        yield Text(f"… and {counted(more, 'more row')}, in the same way", "dim")
    if announcement.head is not None:
        yield Text(f"servers are where the Gym at {announcement.head} says", "dim")
    for url in announcement.stubbed_at:
        yield Text(f"the recorded answers stand at {url}", "dim")
    for problem in announcement.problems:
        yield Text(f"! the server's own contract: {one_line(problem)}", OPEN_STYLE)
    for risk in announcement.risks:
        yield Text(f"! {risk}", OPEN_STYLE)


def _edits(draft: Draft) -> Iterator[Text]:
    styles = {"+": OK_STYLE, "-": FAILED_STYLE}
    for step in draft.plan.steps if draft.edited else ():
        for line in edits.changes(step.original.request_body, step.body)[:_DIFFERENCES_SHOWN]:
            yield Text(f"  {one_line(line)}", styles.get(line[:1], "dim"))


def verdict_line(result: Result) -> Text:
    """The verdict, in one line."""
    verdict = result.verdict
    told = (f"{verdict.word} {verdict.count}/{verdict.total}", _STYLES[verdict.word])
    return Text.assemble(f"{result.job.name}  ", told, f"  {one_line(verdict.how)}")


def proved(result: Result) -> Iterator[Text]:
    """What stands beneath the verdict on one: the rewards, and where it parts from the original."""
    before = result.attempts[0].reward_before
    after = [attempt.reward_after for attempt in result.attempts]
    if before is not None or any(reward is not None for reward in after):
        told = ", ".join("none" if reward is None else f"{reward:g}" for reward in after[:20])
        yield Text(f"reward: {'none' if before is None else f'{before:g}'} then, {told} now")
    if result.first:
        yield Text(f"first difference: {one_line(str(result.first))}")
    places = next((attempt.differences for attempt in result.attempts if attempt.outcome != "reproduced"), ())
    for place in places[:_DIFFERENCES_SHOWN]:
        yield Text(f"  {one_line(str(place))}")
    yield from _played(result)


def _played(result: Result) -> Iterator[Text]:
    for miss in result.misses[:_DIFFERENCES_SHOWN]:
        yield Text(f"not recorded: {one_line(miss)}", OPEN_STYLE)
    if result.unasked:
        yield Text(f"{counted(result.unasked, 'recorded answer')} nobody asked for", "dim")


def summary(results: Sequence[Result]) -> Text:
    """`3 REPRODUCED, 1 FIXED`."""
    words = [result.verdict.word for result in results]
    return Text(", ".join(f"{words.count(word):,} {word}" for word in Word if word in words), "bold")
