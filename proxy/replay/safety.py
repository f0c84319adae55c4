"""Says, before anything is sent, which calls may change something outside, spend money or reveal a key.

What is not known to be harmless counts as harmful. A resources server says itself whether its verify may be
repeated (`GET /reverify_mode`, nemo-gym 0.6 and later: stateless, unsupported or unknown).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiohttp import ClientError, ClientSession, ClientTimeout

from gymtap.proxy.replay.compare import parse
from gymtap.proxy.replay.plan import Plan, Step
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.send import Route
from gymtap.proxy.replay.stub import Stub
from gymtap.proxy.replay.targets import on_loopback
from gymtap.schemas import Call, ServerKind

_MODE_TIMEOUT_S = 5
_ACTS = {
    Call.RUN: "runs the agent, and whatever its tools do",
    Call.RESPONSES: "runs the agent, and whatever its tools do",
    Call.AGENT_SESSION: "runs the agent, and whatever its tools do",
    Call.TOOL: "a tool may change things",
    Call.OTHER: "nobody knows what it does",
}
_WRONG_KEY = frozenset({"invalid_api_key", "invalid_api_token", "authentication_error"})
_SPENT_KEY = frozenset({"budget_exceeded", "insufficient_quota"})


@dataclass(frozen=True)
class Announced:
    """A step with its URL, and what it may do; None when it is known to be harmless."""

    step: Step
    url: str
    risk: str | None


async def reverify_mode(client: ClientSession, base: str) -> str:
    """What a resources server says of repeating its verify; `unknown` where it says nothing."""
    try:
        async with client.get(f"{base}/reverify_mode", timeout=ClientTimeout(total=_MODE_TIMEOUT_S)) as response:
            mode = json.loads(await response.read()) if response.status == 200 else None
    except (ClientError, TimeoutError, OSError, ValueError):
        return "unknown"
    return mode if mode in {"stateless", "unsupported"} else "unknown"


def announce(plan: Plan, routes: Mapping[str, Route], modes: Mapping[str, str], stub: Stub | None) -> list[Announced]:
    """Every step with where it goes and what it may do. `modes` is the reverify mode by server name."""
    return [_announced(step, routes[step.server], modes, stub) for step in plan.steps]


def spoils(entries: Iterable[Recorded]) -> list[str]:
    """Recorded provider answers after which Gym's model server calls its provider no more.

    nemo-gym 0.7.0 (openai_utils.py) keeps an error of a spent or wrong key and answers all later calls with it.
    """
    found = [entry.exchange for entry in entries if _is_permanent(entry)]
    return [
        f"{one.id} answered {one.response.status}: with it, Gym 0.7's model server refuses every later call "
        "until it is restarted"
        for one in found
        if one.response is not None
    ]


def _is_permanent(entry: Recorded) -> bool:
    status = entry.exchange.response.status if entry.exchange.response else 0
    body = parse(entry.response_body)
    error = body.get("error") if isinstance(body, dict) else None
    said = {str(error.get(key)) for key in ("code", "type")} if isinstance(error, dict) else {str(error)}
    return (status in {401, 403} and bool(said & _WRONG_KEY)) or (status == 429 and bool(said & _SPENT_KEY))


def _announced(step: Step, route: Route, modes: Mapping[str, str], stub: Stub | None) -> Announced:
    url = route.url(step.original.exchange.request.target)
    if stub is not None and stub.covers(step.server, step.kind):
        return Announced(step, url, None)
    if step.call in _ACTS:
        return Announced(step, url, _ACTS[step.call])
    if step.kind is ServerKind.RESOURCES:
        mode = modes.get(step.server, "unknown")
        said = None if mode == "stateless" else f"its server is not known to be stateless (reverify_mode: {mode})"
        return Announced(step, url, said)
    return Announced(step, url, _leaving(url, route))


def _leaving(url: str, route: Route) -> str | None:
    """A call to somebody else's machine, which may cost money and gets the key."""
    if on_loopback(url):
        return None
    return "leaves this machine" + (", with your credential" if route.headers else "")
