"""Decides what a replay sends: from a row's exchanges and a starting point to an ordered list of steps.

A call that lives in a session cannot be sent alone: its server would not know the session. So the plan
starts with a fresh seed_session, puts the cookie of that answer where the recorded one was, and can repeat
the session's tool calls so that a server with state is where it was. Pure: nothing is sent here.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay.compare import parse
from gymtap.proxy.replay.recorded import Recorded, cookies_sent, cookies_set, in_order
from gymtap.schemas import Call, Headers, ServerKind

STARTS = {
    "run": Call.RUN,
    "seed": Call.SEED_SESSION,
    "verify": Call.VERIFY,
    "responses": Call.RESPONSES,
    "model": Call.MODEL,
    "tool": Call.TOOL,
    "provider": Call.PROVIDER,
    "judge": Call.JUDGE,
}
"""What `--from` understands, beside an exchange's id."""

_START = re.compile(r"(?P<name>[a-z]+)(?::(?P<number>[1-9]\d*))?")
_ALONE = frozenset({Call.RUN, Call.SEED_SESSION, Call.MODEL, Call.PROVIDER, Call.JUDGE})
_SESSION_IDS = ("resources_session_id", "agent_session_id")
_NOT_SENT = re.compile(
    r"host|content-length|content-encoding|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect"
    r"|proxy-connection|cookie|x-gymtap-.*",
    re.IGNORECASE,
)


class NoSuchCallError(UsageError):
    """A row has no call such as a replay is to begin with; others may."""


@dataclass(frozen=True)
class Start:
    """Where a replay begins: the `number`-th call of a kind, from 1; None is the one that failed, or the first."""

    call: Call
    number: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `verify`, `tool:2`, …. Raises UsageError when it is neither."""
        match = _START.fullmatch(text)
        if match is None or match["name"] not in STARTS:
            raise UsageError(
                f"{text!r} is not a place to start from",
                "write one of " + ", ".join(STARTS) + ", tool:2, or the id of an exchange of the row",
            )
        return cls(STARTS[match["name"]], int(match["number"]) if match["number"] else None)

    @property
    def name(self) -> str:
        """As people write it."""
        name = next(name for name, call in STARTS.items() if call is self.call)
        return name if self.number is None else f"{name}:{self.number}"


@dataclass(frozen=True)
class Cookie:
    """A cookie to send: the one that step `source` got, or the recorded value where no step gets one."""

    name: str
    source: int | None
    recorded: str


@dataclass(frozen=True)
class Step:
    """One request to send. `original` is what it repeats; `why` says what it is for, in a few words."""

    original: Recorded
    why: str
    body: bytes | None
    headers: Headers
    cookies: tuple[Cookie, ...] = ()

    @property
    def server(self) -> str:
        """The callee's name."""
        return self.original.exchange.server

    @property
    def kind(self) -> ServerKind:
        """What the callee is."""
        return self.original.exchange.kind

    @property
    def call(self) -> Call:
        """What it asks for."""
        return self.original.exchange.call


@dataclass(frozen=True)
class Plan:
    """Steps in the order in which they are sent.

    `judged` is the index of the step whose answer is compared with the recorded one. `renewed` are session
    ids that the caller invents, which a server knows already and which get a new value in every attempt.
    """

    steps: tuple[Step, ...]
    judged: int
    renewed: tuple[str, ...] = ()

    @property
    def target(self) -> Step:
        """The step that is judged."""
        return self.steps[self.judged]

    def with_bodies(self, bodies: dict[int, bytes]) -> "Plan":
        """The same plan with other bodies at some steps."""
        steps = (replace(step, body=bodies.get(index, step.body)) for index, step in enumerate(self.steps))
        return replace(self, steps=tuple(steps))

    def without_tools(self) -> "Plan":
        """The same plan with a fresh session only; a cookie that a tool's answer renewed comes from before it."""
        kept = [at for at, step in enumerate(self.steps) if at >= self.judged or step.call is not Call.TOOL]
        place = {old: new for new, old in enumerate(kept)}
        steps = tuple(self._resourced(self.steps[at], place) for at in kept)
        return replace(self, steps=steps, judged=place[self.judged])

    def _resourced(self, step: Step, place: dict[int, int]) -> Step:
        cookies = []
        for cookie in step.cookies:
            source = cookie.source
            while source is not None and source not in place:
                source = next((one.source for one in self.steps[source].cookies if one.name == cookie.name), None)
            cookies.append(replace(cookie, source=None if source is None else place[source]))
        return replace(step, cookies=tuple(cookies))


def calls(exchanges: Iterable[Recorded], call: Call) -> list[Recorded]:
    """The row's calls of one kind in order; of several attempts at the same one, the last, which the caller got."""
    found: list[Recorded] = []
    for one in in_order(exchanges):
        if one.exchange.call is not call:
            continue
        earlier = next((at for at, old in enumerate(found) if _retried(old, one)), None)
        if earlier is None:
            found.append(one)
        else:
            found[earlier] = one
    return found


def choose(exchanges: Iterable[Recorded], start: Start) -> Recorded:
    """The exchange that `start` names. Raises NoSuchCallError, which says how many there are, when there is none."""
    found = calls(exchanges, start.call)
    name = Start(start.call).name
    if not found:
        raise NoSuchCallError(f"this row has no {name} call to start from", "`gymtap tree ROW` shows what it has")
    if start.number is None:
        return next((one for one in found if one.exchange.failed), found[0])
    if start.number > len(found):
        raise NoSuchCallError(f"there is no {start.name}", f"this row has {name}:1 to {name}:{len(found)}")
    return found[start.number - 1]


def plan(exchanges: Sequence[Recorded], target: Recorded, *, rebuild: bool = True) -> Plan:
    """The steps that send `target` again.

    `exchanges` are those of its row. `rebuild` repeats the tool calls that came before it in its session.
    """
    before, after = _around(exchanges, target, rebuild) if target.exchange.call not in _ALONE else ([], [])
    order = [*before, (target, "judged"), *after]
    steps = tuple(_step(one, why, [earlier for earlier, _ in order[:at]]) for at, (one, why) in enumerate(order))
    renewed = dict.fromkeys(value for one, why in before if why == "new session" for value in _session_ids(one))
    if target.exchange.call is Call.SEED_SESSION:
        renewed = dict.fromkeys(_session_ids(target))
    return Plan(steps, len(before), tuple(renewed))


def _around(
    exchanges: Sequence[Recorded], target: Recorded, rebuild: bool
) -> tuple[list[tuple[Recorded, str]], list[tuple[Recorded, str]]]:
    """What has to come before the target (sessions, their tool calls) and after it (closing them)."""
    seeds = _sessions(exchanges, target)
    servers = {seed.exchange.server for seed in seeds}
    started = target.exchange.started_ns
    tools = [
        (one, "brings the session back to where it was")
        for one in calls(exchanges, Call.TOOL)
        if rebuild and one.exchange.server in servers and one.exchange.started_ns < started and one is not target
    ]
    closes = [
        (one, "closes the session")
        for one in calls(exchanges, Call.CLOSE_SESSION)
        if one.exchange.server in servers and one is not target
    ]
    return [(seed, "new session") for seed in seeds] + tools, closes


def _sessions(exchanges: Sequence[Recorded], target: Recorded) -> list[Recorded]:
    """The seed_session that the target's session came from, on its own server or wherever its cookies point."""
    sent = cookies_sent(target.exchange.request.headers).keys()
    latest: dict[str, Recorded] = {}
    for seed in calls(exchanges, Call.SEED_SESSION):
        response = seed.exchange.response
        issued = cookies_set(response.headers).keys() if response else set()
        here = seed.exchange.server == target.exchange.server
        if (here or issued & sent) and seed.exchange.started_ns < target.exchange.started_ns:
            latest[seed.exchange.server] = seed
    return in_order(latest.values())


def _step(one: Recorded, why: str, earlier: Sequence[Recorded]) -> Step:
    headers = tuple(field for field in one.exchange.request.headers if not _NOT_SENT.fullmatch(field[0]))
    cookies = tuple(
        Cookie(name, _source(name, earlier), value)
        for name, value in cookies_sent(one.exchange.request.headers).items()
    )
    return Step(one, why, one.request_body, headers, cookies)


def _source(name: str, earlier: Sequence[Recorded]) -> int | None:
    """The last earlier step whose recorded answer set a cookie of that name."""
    for index in range(len(earlier) - 1, -1, -1):
        response = earlier[index].exchange.response
        if response is not None and name in cookies_set(response.headers):
            return index
    return None


def _session_ids(seed: Recorded) -> list[str]:
    body = parse(seed.request_body)
    values = (body.get(key) for key in _SESSION_IDS) if isinstance(body, dict) else ()
    return [value for value in values if isinstance(value, str) and value]


def _retried(old: Recorded, new: Recorded) -> bool:
    """Whether `new` is a later attempt at the same call."""
    one, other = old.exchange, new.exchange
    same_place = (one.parent, one.server, one.request.target) == (other.parent, other.server, other.request.target)
    return same_place and other.attempt > one.attempt and old.request_body == new.request_body
