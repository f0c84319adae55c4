"""A whole replay, from drafts to results: find the targets, say what will be called, ask, stub, send, judge.

A face brings the drafts and three callbacks; nothing here prints or reads a terminal. Whatever can fail before
the first request does: nothing is half sent because a key was missing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiohttp import ClientSession

from gymtap.proxy.core.contracts.openapi import Contract
from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.replay import contract, prepare, stub, targets
from gymtap.proxy.replay.inner import Inside
from gymtap.proxy.replay.keep import Keeper, check_new
from gymtap.proxy.replay.prepare import Draft
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.safety import Announced, announce, reverify_mode, spoils
from gymtap.proxy.replay.send import Route, open_client
from gymtap.proxy.replay.session import Job, Result, Session, Standing
from gymtap.proxy.replay.stub import Stub
from gymtap.proxy.replay.targets import Finder, Wanted
from gymtap.schemas import Server, ServerKind


@dataclass(frozen=True)
class Order:
    """What is to be done.

    `head` is a running Gym's; `rebuild` None lets the resources server decide whether tool calls are repeated.
    `live` is the capture of a tap that runs; `into` the new capture's directory. `reads` are the recorded GETs.
    `foreign`: the capture came from elsewhere, so an address that it brings is asked about.
    """

    drafts: Sequence[Draft]
    servers: Sequence[Server]
    original: Path
    into: Path
    wanted: Wanted = field(default_factory=Wanted)
    head: str | None = None
    stub: Stub | None = None
    reads: Sequence[Recorded] = ()
    times: int = 1
    concurrency: int = 4
    rebuild: bool | None = None
    ignore: frozenset[str] = frozenset()
    live: Path | None = None
    foreign: bool = False


@dataclass(frozen=True)
class Announcement:
    """What is about to happen. `stubbed_at` are the playback's addresses; `problems` what contracts say of edits.

    `brought` are addresses that nobody but a capture from elsewhere has named; `head` is the running Gym's that
    named the others. `spoiling` are recorded answers that leave a model server useless.
    """

    drafts: Sequence[Draft]
    steps: Sequence[Sequence[Announced]]
    stubbed_at: Sequence[str] = ()
    problems: Sequence[str] = ()
    brought: Sequence[str] = ()
    head: str | None = None
    spoiling: Sequence[str] = ()

    @property
    def risks(self) -> list[str]:
        """What has to be agreed to, each once."""
        told = [f"{one.step.call} at {one.url}: {one.risk}" for one in self._all() if one.risk]
        told += [f"{url} is an address that the bundle brought" for url in self.brought]
        return list(dict.fromkeys([*told, *self.spoiling]))

    def _all(self) -> list[Announced]:
        return [one for steps in self.steps for one in steps]


type Agree = Callable[[Announcement], bool]


async def replay(
    order: Order, environ: Mapping[str, str], agree: Agree, told: Callable[[Result], None] = lambda _: None
) -> list[Result] | None:
    """Run an order; None when `agree` said no. Raises GymtapError, before anything is sent."""
    prepare.check(order.drafts)
    check_new(order.into, order.original)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client())
        wanted = await _with_running(client, order)
        standing, urls = await _stand(stack, order, wanted)
        jobs, announcement = await _route(client, order, wanted, environ, urls)
        if not agree(announcement):
            return None
        inside = Inside(order.live) if order.live is not None else None
        if inside is not None:
            stack.callback(inside.close)
            jobs = [_marked(job, inside) for job in jobs]
        keeper = Keeper(order.into, order.original, ("gymtap", "replay", *(job.name for job in jobs[:20])))
        stack.callback(keeper.close)
        session = Session(client, keeper, standing=standing, inside=inside, ignore=order.ignore, told=told)
        return await session.run(jobs, times=order.times, concurrency=order.concurrency)


async def _with_running(client: ClientSession, order: Order) -> Wanted:
    """With the Gym that the command line names, or else the one that answers where the capture's head was."""
    if order.head is not None:
        return replace(order.wanted, found=await targets.find_gym(client, order.head), strict=True)
    if order.foreign:
        return order.wanted
    heads = [url for one in order.servers if one.kind is ServerKind.HEAD for url in (one.listen, one.upstream) if url]
    for head in heads:
        if await targets.answers(head):
            with suppress(GymtapError):
                return replace(order.wanted, found=await targets.find_gym(client, head.rstrip("/")))
    return order.wanted


async def _stand(stack: AsyncExitStack, order: Order, wanted: Wanted) -> tuple[Standing | None, list[str]]:
    """Start the playback where Gym looks for what is stubbed."""
    if order.stub is None:
        return None, []
    passing = _passing(wanted) if order.stub.passing else None
    standing = Standing(order.stub, order.stub.reads(order.reads), passing)
    places = await stub.addresses(order.stub, order.servers, wanted.found)
    return standing, await stack.enter_async_context(standing.playback.listening(places))


def _passing(wanted: Wanted) -> str:
    if wanted.endpoint is None:
        raise UsageError("--stub-miss pass has to know where misses go", "add --endpoint URL")
    return targets.base_url(wanted.endpoint)


async def _route(
    client: ClientSession, order: Order, wanted: Wanted, environ: Mapping[str, str], stubbed_at: Sequence[str]
) -> tuple[list[Job], Announcement]:
    stubbed = {server.name: stubbed_at[0] for server in order.servers if _stubbed(order, server)} if stubbed_at else {}
    wanted = replace(wanted, to={**stubbed, **wanted.to})
    finder = Finder(order.servers, wanted, environ, stubbed)
    modes: dict[str, str] = {}
    contracts: dict[str, Contract | None] = {}
    jobs, drafts, steps, problems = [], [], [], list[str]()
    for draft in order.drafts:
        routes = await finder.routes(draft.plan)
        await _ask_modes(client, draft, routes, modes)
        settled = _settled(order, draft, modes)
        jobs.append(Job(settled.name, settled.plan, routes, settled.row, settled.edited))
        drafts.append(settled)
        steps.append(announce(settled.plan, routes, modes, order.stub))
        problems += await _problems(client, settled, routes, contracts) if settled.edited else []
    spoiling = [one for draft in drafts for one in _spoiling(order, draft)]
    brought = sorted(finder.brought) if order.foreign else []
    head = wanted.found.head if wanted.found is not None and finder.named else None
    return jobs, Announcement(drafts, steps, stubbed_at, problems, brought, head, spoiling)


def _spoiling(order: Order, draft: Draft) -> list[str]:
    """What the playback would answer that a live model server never recovers from."""
    if order.stub is None or draft.plan.target.kind is ServerKind.PROVIDER:
        return []
    return spoils(order.stub.entries(draft.row()))


def _stubbed(order: Order, server: Server) -> bool:
    return order.stub is not None and order.stub.covers(server.name, server.kind)


async def _ask_modes(client: ClientSession, draft: Draft, routes: Mapping[str, Route], modes: dict[str, str]) -> None:
    for step in draft.plan.steps:
        if step.kind is ServerKind.RESOURCES and step.server not in modes:
            modes[step.server] = await reverify_mode(client, routes[step.server].base)


def _settled(order: Order, draft: Draft, modes: Mapping[str, str]) -> Draft:
    """Whether the session's tool calls are repeated: as asked, else only where the server may keep state."""
    rebuild = prepare.calls_stateful(draft, modes) if order.rebuild is None else order.rebuild
    return draft if rebuild else replace(draft, plan=draft.plan.without_tools())


async def _problems(
    client: ClientSession, draft: Draft, routes: Mapping[str, Route], contracts: dict[str, Contract | None]
) -> list[str]:
    target = draft.plan.target
    if target.kind in {ServerKind.PROVIDER, ServerKind.JUDGE}:
        return []  # not Gym's: it is sent nothing that nobody asked for
    base = routes[target.server].base
    if base not in contracts:
        contracts[base] = await contract.published(client, target.server, base)
    return contract.problems(contracts[base], target.original.exchange.request.target, target.body)


def _marked(job: Job, inside: Inside) -> Job:
    return Job(job.name, job.plan, inside.marked(job.routes), job.row, job.edited)
