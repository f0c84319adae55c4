"""Runs replays: sends each plan as often as asked, keeps what came back, and judges it.

Rows run side by side up to a bound. With a playback they run one after the other: a provider's request does
not say which row it belongs to, so only one row may be asking.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from aiohttp import ClientSession

from gymtap.proxy.core.attribution.causality import REPLAY_PREFIX
from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.core.redaction import Redactor
from gymtap.proxy.replay.hops import FirstDifference, first_difference
from gymtap.proxy.replay.inner import Inside, paired
from gymtap.proxy.replay.keep import Keeper, Repeat
from gymtap.proxy.replay.match import Matcher, Miss
from gymtap.proxy.replay.plan import Plan
from gymtap.proxy.replay.playback import Asked, Playback
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.send import Route, Sent, send_plan
from gymtap.proxy.replay.stub import Stub
from gymtap.proxy.replay.verdict import Attempt, Outcome, Verdict, judge, recorded_answer, verdict


@dataclass(frozen=True)
class Job:
    """One thing to replay. `row` reads what was recorded of its row; `edited`: it is not sent as it was."""

    name: str
    plan: Plan
    routes: Mapping[str, Route]
    row: Callable[[], Sequence[Recorded]]
    edited: bool = False


@dataclass
class Result:
    """What came of a job. `first` is the first hop that differs in the first attempt that differs at all.

    `kept` are ids in the new capture, the judged exchange of each attempt. `misses` are requests that the
    playback could not answer, `asked` how many reached it, `unasked` how many recorded answers nobody asked for, over
    all attempts.
    """

    job: Job
    attempts: list[Attempt] = field(default_factory=list)
    first: FirstDifference | None = None
    kept: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)
    asked: int = 0
    unasked: int = 0

    @property
    def verdict(self) -> Verdict:
        """One word for all attempts."""
        return verdict(self.attempts)


class Standing:
    """A playback in the hands of a session: what it answers from changes with each attempt."""

    def __init__(self, stub: Stub, reads: Iterable[Recorded], passing: str | None) -> None:
        self.stub = stub
        self.playback = Playback(Matcher([]), reads, passing=passing, heard=self._heard)
        self._asked: list[Asked] = []

    @contextmanager
    def answering(self, row: Sequence[Recorded]) -> Iterator[list[Asked]]:
        """Answer from one row; yields what is asked meanwhile."""
        self.playback.matcher = Matcher(self.stub.entries(row), loose=self.stub.loose)
        self._asked = []
        yield self._asked

    def _heard(self, asked: Asked) -> None:
        self._asked.append(asked)


class Session:
    """Replays jobs. `told` is called after each attempt."""

    def __init__(
        self,
        client: ClientSession,
        keeper: Keeper,
        *,
        standing: Standing | None = None,
        inside: Inside | None = None,
        ignore: frozenset[str] = frozenset(),
        told: Callable[[Result], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._keeper = keeper
        self._standing = standing
        self._inside = inside
        self._ignore = ignore
        self._told = told
        self._redactor = Redactor()

    async def run(self, jobs: Sequence[Job], *, times: int, concurrency: int) -> list[Result]:
        """Replay every job `times` times, `concurrency` jobs at once; results are in the jobs' order."""
        gate = asyncio.Semaphore(1 if self._standing else concurrency)
        results = [Result(job) for job in jobs]

        async def one(result: Result) -> None:
            async with gate:
                for number in range(1, times + 1):
                    await self._attempt(result, number)
                    self._told(result)

        try:
            async with asyncio.TaskGroup() as group:
                for result in results:
                    group.create_task(one(result))
        except* GymtapError as several:
            raise several.exceptions[0] from None
        return results

    async def _attempt(self, result: Result, number: int) -> None:
        job = result.job
        sent, asked, inner = await self._send(job)
        kept = self._keeper.keep(number, sent, asked)
        attempt = self._judge(job, sent)
        result.attempts.append(attempt)
        result.kept += [one.recorded.exchange.id for one, step in zip(kept, sent, strict=False) if step.judged]
        result.asked += len(asked)
        result.misses += [str(one.answer) for one in asked if isinstance(one.answer, Miss)]
        if self._standing is not None:
            result.unasked += self._standing.playback.matcher.unasked
        if result.first is None and attempt.outcome is not Outcome.REPRODUCED:
            result.first = self._first(job, kept, inner)

    async def _send(self, job: Job) -> tuple[list[Sent], list[Asked], list[Recorded]]:
        mark = f"{REPLAY_PREFIX}{uuid.uuid4().hex[:8]}"
        since = self._inside.now() if self._inside else None
        if self._standing is None:
            sent, asked = await send_plan(self._client, job.plan, job.routes, mark), []
        else:
            with self._standing.answering(inside_steps(job)) as heard:
                sent = await send_plan(self._client, job.plan, job.routes, mark)
            asked = [replace(one, body=self._clean(one.body), reply=self._clean(one.reply)) for one in heard]
        for one in sent:
            one.response_body = self._clean(one.response_body)
        inner: list[Recorded] = []
        if self._inside is not None and since is not None:
            marked = sum(job.routes[one.step.server].marked for one in sent)
            inner = await self._inside.caused(mark, since, marked) if marked else []
        return sent, asked, inner

    def _judge(self, job: Job, sent: Sequence[Sent]) -> Attempt:
        recorded = recorded_answer(job.plan.target.original)
        judged = next((one for one in sent if one.judged), None)
        if judged is None:
            last = sent[-1]
            said = last.error.message if last.error else f"{last.status}"
            return Attempt(Outcome.DIFFERENT, f"it was not sent: {last.step.call} at {last.url} failed: {said}")
        return judge(job.plan.target.call, recorded, judged.answer, self._ignore)

    def _clean(self, body: bytes) -> bytes:
        """As the recorded body is: without secrets, so that the two can be compared."""
        return self._redactor.body(body)[0]

    def _first(self, job: Job, kept: Sequence[Repeat], inner: Sequence[Recorded]) -> FirstDifference | None:
        """Over the hops that were seen: all of them through a tap, else what was sent and what the playback heard."""
        if inner:
            asked = {step.original.exchange.id: step.body for step in job.plan.steps}
            wanted = [
                replace(one, request_body=asked.get(one.exchange.id, one.request_body)) for one in inside_steps(job)
            ]
            pairs, new = paired(wanted, inner)
            return first_difference(pairs, new, self._ignore)
        repeats: list[tuple[Recorded, Recorded | None]] = []
        repeats += [(old, one.recorded) for one in kept if (old := _counterpart(one)) is not None]
        met = {old.exchange.id for old, _ in repeats}
        left = self._standing.playback.matcher.left() if self._standing else []
        repeats += [(one, None) for one in left if one.exchange.id not in met]
        return first_difference(repeats, [one.recorded for one in kept if _counterpart(one) is None], self._ignore)


def _counterpart(kept: Repeat) -> Recorded | None:
    """What an exchange is compared with. A step's own request is not: what was edited on purpose is no difference."""
    if kept.original is not None and kept.chosen:
        return replace(kept.original, request_body=kept.recorded.request_body)
    return kept.original or kept.nearest


def inside_steps(job: Job) -> list[Recorded]:
    """What of the row was recorded while one of the plan's steps was open: those steps, and what they caused."""
    spans = [(step.original.exchange.started_ns, step.original.ended_ns) for step in job.plan.steps]
    return [
        one
        for one in job.row()
        if any(started <= one.exchange.started_ns and one.ended_ns <= ended for started, ended in spans)
    ]
