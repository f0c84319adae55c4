"""The sweep: states first, then every distinct request, a few at a time, and our verdict beside each refusal.

A 500 is the schema's fault only where our own engines refuse it too; where the server failed on a good tool as well,
the server is at fault, and the dataset is told to be neither good nor bad.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.grammar import GrammarCheck, check_grammar
from gymtap.proxy.check.tool_check import formats_of
from gymtap.proxy.check.tools import is_strict, parameters_of
from gymtap.proxy.check.vllm_rules import Route
from gymtap.proxy.core.contracts.finding import finding
from gymtap.proxy.core.pointer import Path, pointer
from gymtap.proxy.preflight.answers import Answer, Outcome
from gymtap.proxy.preflight.endpoint import Endpoint
from gymtap.proxy.preflight.plan import Asked, Plan
from gymtap.proxy.preflight.states import ServerState, modes_of, probe
from gymtap.schemas import Finding, Severity

_GOOD = frozenset({Outcome.ACCEPTED, Outcome.INCOMPLETE})


@dataclass
class Result:
    """One distinct request, its answer, and what our engines say of each of its schemas that they refuse.

    `state` names the server's state that explains the refusal, "" where the tools are what is refused.
    """

    asked: Asked
    answer: Answer
    offline: list[tuple[Path, GrammarCheck]] = field(default_factory=list)
    unknown: bool = False  # an engine could not be run
    state: str = ""
    comparable: bool = False  # the server's verdict is about the schemas, and so is ours

    @property
    def ok(self) -> bool:
        """Whether the endpoint took it."""
        return self.answer.outcome in _GOOD

    @property
    def agrees(self) -> bool | None:
        """Whether our verdict is the endpoint's; None where one of them says nothing of the schema."""
        if not self.comparable or self.answer.outcome not in (*_GOOD, Outcome.SCHEMA):
            return None
        return self.ok is not bool(self.offline)

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {
            "where": self.asked.where,
            "count": self.asked.count,
            "tools": [parameters_of(tool)[0] for tool in self.asked.tools],
            "outcome": str(self.answer.outcome),
            "status": self.answer.status,
            "message": self.answer.message or None,
            "finish_reason": self.answer.finish_reason,
            "elapsed_ms": self.answer.elapsed_ms,
            "state": self.state or None,
            "agrees": self.agrees,
            "offline": [{**one.as_json(), "tool_pointer": pointer(at)} for at, one in self.offline],
        }


@dataclass
class LiveReport:
    """What a sweep found."""

    endpoint: str
    model: str
    served: list[str]
    states: list[ServerState]
    results: list[Result]
    plan: Plan

    @property
    def outcomes(self) -> Counter[str]:
        """How many distinct requests ended how."""
        return Counter(str(one.answer.outcome) for one in self.results)

    @property
    def findings(self) -> list[tuple[Finding, Result | None]]:
        """What is wrong: the server's states, each with what it keeps from being known, then every refusal."""
        found: list[tuple[Finding, Result | None]] = []
        for state in self.states:
            found.append((_of_state(state), None))
            if concerned := [result for result in self.results if result.state == state.name]:
                found.append((_unknown(state, concerned), concerned[0]))
        refused = (result for result in self.results if not result.ok and not result.state)
        return found + [(one, result) for result in refused for one in _of_result(result)]

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        agreed = Counter(one.agrees for one in self.results)
        return {
            "endpoint": self.endpoint,
            "model": self.model,
            "served": self.served,
            "rows": self.plan.rows,
            "rows_without_tools": self.plan.without,
            "distinct": len(self.plan.asked),
            "outcomes": dict(self.outcomes),
            "states": [state.as_json() for state in self.states],
            "agreement": {"same": agreed[True], "different": agreed[False], "not_comparable": agreed[None]},
            "requests": [one.as_json() for one in self.results],
            "unread": self.plan.unread,
        }


async def sweep(
    endpoint: Endpoint,
    made: Plan,
    model: str,
    served: list[str] | Answer,
    *,
    engines: Engines | None = None,
    concurrency: int = 8,
    progress: Callable[[], None] = lambda: None,
) -> LiveReport:
    """Ask everything, at most `concurrency` at a time. `engines` None leaves our own verdict out."""
    modes = {mode for asked in made.asked if asked.request for mode in modes_of(asked.request)}
    states = await probe(endpoint.chat, model, served, modes)
    names = served if isinstance(served, list) else []
    report = LiveReport(endpoint.url, model, names, states, [], made)
    if any(state.fatal for state in states):
        return report
    room = asyncio.Semaphore(concurrency)

    async def ask(asked: Asked) -> Result:
        if asked.request is None:
            progress()
            return Result(asked, Answer(Outcome.NOT_CONVERTED, None, asked.refused))
        async with room:
            answer = await endpoint.chat(asked.request)
        progress()
        return Result(asked, answer)

    results = await asyncio.gather(*(ask(asked) for asked in made.asked))
    report.results = [_judged(result, states, engines) for result in results]
    return report


def _judged(result: Result, states: list[ServerState], engines: Engines | None) -> Result:
    outcome = result.answer.outcome
    if engines is None or result.asked.request is None:
        result.unknown = True
    else:
        for at, verdict in _offline(result.asked, engines, refused=not result.ok):
            result.unknown |= verdict.verdict.ok is None
            if verdict.verdict.refused:
                result.offline.append((at, verdict))
    needs = modes_of(result.asked.request or {})
    state = next((state.name for state in states if state.concerns(needs)), "")
    result.comparable = not result.unknown and not state
    if result.offline and outcome in (Outcome.SERVER, Outcome.PARSER):
        result.answer = replace(result.answer, outcome=Outcome.SCHEMA)
    elif state and not result.ok and not result.offline and result.asked.request is not None:
        result.state = state
        result.answer = replace(result.answer, outcome=Outcome.STATE)
    return result


def _offline(asked: Asked, engines: Engines, *, refused: bool) -> Iterator[tuple[Path, GrammarCheck]]:
    """Our verdicts on what vLLM compiles of a request; where it refused, on its older ways to compile as well."""
    request = asked.request or {}
    required = request.get("tool_choice", "auto") not in ("auto", "none")
    for index, tool in enumerate(asked.tools):
        name, parameters, inner = parameters_of(tool)
        if not inner or parameters is None:
            continue
        routes = [Route.STRICT_TOOL] if is_strict(tool) else []
        routes += [Route.REQUIRED_JSON] if required and refused else []
        at = (*asked.at, "tools", index, *inner)
        answers = check_grammar(engines, name, parameters, routes)
        yield from ((at, one) for one in _first_refusal(answers))
    for place, schema in formats_of(asked.params):
        answers = check_grammar(engines, "response_format", schema, [Route.RESPONSE_FORMAT])
        yield from (((*asked.at, *place), one) for one in answers)


def _first_refusal(answers: tuple[GrammarCheck, ...]) -> tuple[GrammarCheck, ...]:
    refused = [one for one in answers if one.verdict.refused]
    return tuple(refused[:1]) or answers[:1]


def _of_state(state: ServerState) -> Finding:
    return Finding(rule=f"preflight.{state.name}", severity=Severity.ERROR, message=state.message, fix=state.fix)


def _unknown(state: ServerState, concerned: list[Result]) -> Finding:
    """Once for all requests that a state is to blame for."""
    others = f" and of {len(concerned) - 1:,} more distinct requests" if len(concerned) > 1 else ""
    message = f"refused for the server's state, {state.name}; nothing is known of these tools{others}"
    return finding(f"preflight.{Outcome.STATE}", Severity.WARNING, message, (*concerned[0].asked.at, "tools"))


def _of_result(result: Result) -> Iterator[Finding]:
    answer = result.answer
    said = f"{answer.status}: {answer.message}" if answer.status else answer.message
    rule = f"preflight.{answer.outcome}"
    tools = (*result.asked.at, "tools")
    for at, one in result.offline:
        first = one.faults[0] if one.faults else None
        about = f" over {first.keyword}" if first and first.keyword else ""
        reason = (first.reason if first else one.verdict.reason).splitlines()[0]
        edit = str(first.edit) if first and first.edit else ""
        fix = f"{edit[:1].upper()}{edit[1:]}." if edit else None
        message = f"{one.name}: the endpoint answers {said}; our engines refuse it{about}: {reason}"
        path = (*at, *first.path) if first else at
        yield finding(rule, Severity.ERROR, message, path, found=first.found if first else None, fix=fix)
    if not result.offline:
        yield finding(rule, Severity.ERROR, _unexplained(answer, said, unknown=result.unknown), tools)


def _unexplained(answer: Answer, said: str, *, unknown: bool) -> str:
    match answer.outcome:
        case Outcome.NOT_CONVERTED:
            return f"Gym's model server would answer 500 without asking the endpoint: {said}"
        case Outcome.TRANSPORT:
            return f"no answer: {said}"
        case Outcome.BUSY:
            return f"the endpoint was too busy to say ({said})"
        case Outcome.SCHEMA if unknown:
            return f"the endpoint refuses a schema ({said}); our engines could not be run to say which and why"
        case Outcome.SCHEMA:
            return f"the endpoint refuses a schema ({said}), which vLLM 0.32's engines accept: it is another version"
        case _:
            return f"the endpoint refuses the request ({said})"
