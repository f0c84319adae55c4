"""A replay from the UI: the order that was chosen, what is announced, and what it proved, as text.

The replay itself is `gymtap.proxy.replay.run.replay`, in a loop of its own on a thread; here are only its beginning and
its end.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rich.text import Text

from gymtap.proxy.replay import edits
from gymtap.proxy.replay.load import reads
from gymtap.proxy.replay.prepare import Draft, of_exchange, of_row
from gymtap.proxy.replay.run import Announcement, Order, replay
from gymtap.proxy.replay.session import Result
from gymtap.proxy.replay.stub import Stub, boundaries
from gymtap.proxy.replay.targets import Wanted, base_url, target
from gymtap.proxy.replay.verdict import Word
from gymtap.proxy.store import Capture, captures_root, fresh
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE, OPEN_STYLE
from gymtap.proxy.views.plain import one_line
from gymtap.schemas import RowKey

_DIFFERENCES_SHOWN = 100
_STYLES = {
    Word.FIXED: f"bold {OK_STYLE}",
    Word.REPRODUCED: "bold",
    Word.FLAKY: OPEN_STYLE,
    Word.DIFFERENT: FAILED_STYLE,
}


@dataclass(frozen=True)
class Asked:
    """What to replay and how. `what` is a row's label or an exchange's id; `to` is as a person wrote it, see `_wanted`.

    `start` is the exchange to begin a row at, None its /run; `stub` names the kinds that are answered from the capture;
    `written` is the judged body as it was edited, None where it is sent as it was.
    """

    what: RowKey | str
    start: str | None = None
    stub: str | None = None
    to: str = ""
    written: str | None = None

    @property
    def name(self) -> str:
        """What is replayed."""
        return self.what if isinstance(self.what, str) else self.what.label


def draft_of(capture: Capture, asked: Asked) -> Draft:
    """The draft, with what was edited. Raises UsageError and CaptureError."""
    if isinstance(asked.what, str):
        draft = of_exchange(capture, capture.exchange(asked.what))
    else:
        draft = of_row(capture, asked.what, asked.start)
    if asked.written is None:
        return draft
    return replace(draft, plan=edits.with_body(draft.plan, asked.written), edited=True)


def editable(capture: Capture, asked: Asked) -> str:
    """The body that can be edited. Raises UsageError where there is none."""
    return edits.editable(draft_of(capture, asked).plan.target)


def order_of(capture: Capture, asked: Asked) -> Order:
    """The whole order; what is sent and answered is kept beside the captures. Raises UsageError."""
    servers = capture.servers()
    wanted, head = _wanted(asked.to)
    return Order(
        drafts=[draft_of(capture, asked)],
        servers=servers,
        original=capture.path,
        into=fresh(captures_root() / "replays", time.time_ns()),
        wanted=wanted,
        head=head,
        stub=Stub(boundaries(asked.stub, servers)) if asked.stub else None,
        reads=tuple(reads(capture)) if asked.stub else (),
        live=capture.path if capture.live() else None,
        foreign=capture.path.is_file(),
    )


def _wanted(to: str) -> tuple[Wanted, str | None]:
    """`NAME=URL` is a server, `gym URL` a running Gym's head, `URL` the provider; nothing is where it was."""
    text = to.strip()
    if text.startswith("gym "):
        return Wanted(), base_url(text.removeprefix("gym ").strip())
    if "=" in text.partition("://")[0]:
        return Wanted(dict([target(text)])), None
    return Wanted(endpoint=base_url(text)) if text else Wanted(), None


def check_target(to: str) -> None:
    """Raise UsageError for what is no target."""
    _wanted(to)


def run(order: Order, agree: Callable[[Announcement], bool]) -> Result | None:
    """Send it; None when `agree` said no. It takes as long as Gym does, so run it in a thread. Raises GymtapError."""
    results = asyncio.run(replay(order, os.environ, agree))
    return results[0] if results else None


def announced(announcement: Announcement) -> Iterator[Text]:
    """What is about to be sent, where, and what it may do."""
    for steps in announcement.steps:
        for number, one in enumerate(steps, start=1):
            method = one.step.original.exchange.request.method
            yield Text(f"{number}. {method} {one_line(one.url)}  ({one.step.call}, {one.step.why})")
    for url in announcement.stubbed_at:
        yield Text(f"the recorded answers stand at {url}", "dim")
    for problem in announcement.problems:
        yield Text(f"! the server's own contract: {one_line(problem)}", OPEN_STYLE)
    for risk in announcement.risks:
        yield Text(f"! {risk}", OPEN_STYLE)


def proved(result: Result, order: Order) -> Iterator[Text]:
    """The verdict beside the original, and where the two differ."""
    verdict = result.verdict
    told = (f"{verdict.word} {verdict.count}/{verdict.total}", _STYLES[verdict.word])
    yield Text.assemble(f"{result.job.name}  ", told, f"  {one_line(verdict.how)}")
    attempt = result.attempts[0]
    rewards = [attempt.reward_before, attempt.reward_after]
    if any(reward is not None for reward in rewards):
        before, after = ("none" if reward is None else f"{reward:g}" for reward in rewards)
        yield Text(f"reward: {before} then, {after} now")
    if result.first:
        yield Text(f"first difference: {one_line(str(result.first))}")
    for place in attempt.differences[:_DIFFERENCES_SHOWN]:
        yield Text(f"  {one_line(str(place))}")
    for miss in result.misses[:_DIFFERENCES_SHOWN]:
        yield Text(f"not recorded: {one_line(miss)}", OPEN_STYLE)
    if result.unasked:
        yield Text(f"{result.unasked:,} recorded answers that nobody asked for", "dim")
    yield Text(f"kept in {order.into}", "dim")
