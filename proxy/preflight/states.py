"""The states of a server in which it refuses what is good, told by asking it about something that is good.

The questions come before any of the dataset's, the strict tool first: vLLM's engine keeps for its life the grammar
backend of the first structured request it meets (0.32), so an ordinary one had better be first.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gymtap.proxy.check.tools import is_strict
from gymtap.proxy.preflight.answers import FATAL, Answer, Outcome

_PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

_TAKEN = frozenset({Outcome.ACCEPTED, Outcome.INCOMPLETE})

type Ask = Callable[[dict[str, Any]], Awaitable[Answer]]


@dataclass(frozen=True)
class ServerState:
    """Something about the server rather than the tools. `fatal`: nothing else is worth asking.

    `modes` is what of the dataset it concerns (`strict`, `auto`, `required`); empty is all of it.
    """

    name: str
    message: str
    fix: str
    modes: tuple[str, ...] = ()
    fatal: bool = False

    def concerns(self, modes: frozenset[str]) -> bool:
        """Whether a request that needs these is refused for this."""
        return not self.modes or bool(modes & set(self.modes))

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {"state": self.name, "concerns": list(self.modes) or ["all"], "message": self.message, "fix": self.fix}


def modes_of(request: dict[str, Any]) -> frozenset[str]:
    """What of a server a request needs: `auto` tool calls, `required` (or named) ones, `strict` grammars."""
    found = set()
    tools = request.get("tools")
    if tools:
        found.add("auto" if request.get("tool_choice", "auto") in ("auto", "none") else "required")
    if any(is_strict(tool) for tool in (tools if isinstance(tools, list) else ())):
        found.add("strict")
    return frozenset(found)


def good(mode: str, model: str) -> dict[str, Any]:
    """A request that every server that can do `mode` accepts; `plain` has no tools."""
    request: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    if mode == "plain":
        return request
    function: dict[str, Any] = {"name": "get_weather", "parameters": _PARAMETERS}
    if mode == "strict":
        function["strict"] = True
    choice = "required" if mode == "required" else "auto"
    return {**request, "tools": [{"type": "function", "function": function}], "tool_choice": choice}


async def probe(ask: Ask, model: str, served: list[str] | Answer, modes: Iterable[str]) -> list[ServerState]:
    """Ask what is good, one after the other; the states that explain a refusal."""
    if isinstance(served, Answer) and served.outcome in FATAL - {Outcome.PATH}:
        return [_fatal(served, model, [])]
    names = served if isinstance(served, list) else []
    plain = await ask(good("plain", model))
    if plain.outcome in FATAL:
        return [_fatal(plain, model, names)]
    if plain.outcome is not Outcome.ACCEPTED:
        return [_broken(plain)]
    wanted, refused = set(modes), dict[Outcome, list[tuple[str, Answer]]]()
    for mode in ("strict", "auto", "required"):
        if mode in wanted:
            answer = await ask(good(mode, model))
            if answer.outcome not in _TAKEN:
                refused.setdefault(answer.outcome, []).append((mode, answer))
    return [_state(outcome, told) for outcome, told in refused.items()]


def _fatal(answer: Answer, model: str, names: list[str]) -> ServerState:
    said = f"{answer.status}: {answer.message}" if answer.status else answer.message
    match answer.outcome:
        case Outcome.AUTH:
            fix = "Name the variable that holds the key: --api-key-env NAME."
            return ServerState("unauthorized", f"the endpoint refuses the key, or wants one ({said})", fix, fatal=True)
        case Outcome.MODEL:
            fix = f"Name one that is served: --model {names[0]}." if names else "See the endpoint's /models."
            return ServerState("unknown_model", f"the endpoint does not serve {model} ({said})", fix, fatal=True)
        case Outcome.PATH:
            fix = "Give the base URL as Gym has it in policy_base_url; for vLLM it ends in /v1."
            return ServerState("unknown_path", f"there is no chat/completions below it ({said})", fix, fatal=True)
        case Outcome.NOT_CHAT:
            fix = "Is the base URL that of the model? A login page, or another service, answers like this."
            message = f"what it answers is no Chat Completion ({said})"
            return ServerState("no_chat_completion", message, fix, fatal=True)
        case _:
            fix = "Is it up, and reachable from here? vLLM listens only once the model is loaded."
            return ServerState("unreachable", f"the endpoint gives no answer ({said})", fix, fatal=True)


def _broken(answer: Answer) -> ServerState:
    if answer.outcome is Outcome.BUSY:
        message = f"it has no room for a request without tools ({answer.status}: {answer.message})"
        return ServerState("busy", message, "Ask again when it has; --concurrency 1 asks for the least.", fatal=True)
    fails = "gets no message" if answer.outcome is Outcome.INCOMPLETE else "fails"
    message = f"a request without tools {fails} ({answer.status}: {answer.message})"
    return ServerState("broken", message, "Look at the server's own log; the tools have no part in it.", fatal=True)


def _state(outcome: Outcome, told: list[tuple[str, Answer]]) -> ServerState:
    """What it means that a good tool is refused in these modes with this outcome."""
    modes = tuple(mode for mode, _ in told)
    first = told[0][1]
    which = f"a good {' and a good '.join(modes)} tool ({first.status}: {first.message})"
    match outcome:
        case Outcome.PARSER:
            message = f"it refuses {which}: it was started without a tool parser"
            fix = "Start vLLM with --enable-auto-tool-choice and --tool-call-parser NAME (hermes, llama3_json, …)."
            return ServerState("no_tool_parser", message, fix, modes)
        case Outcome.SCHEMA:
            message = f"it refuses {which}: its backend is pinned to one that takes no tool grammars, guidance say"
            fix = "Start vLLM with --structured-outputs-config.backend auto or xgrammar (vllm#55152)."
            return ServerState("pinned_backend", message, fix, modes)
        case Outcome.SERVER:
            message = (
                f"it fails on {which}: its engine keeps the backend of the first structured request that it met,"
                " or is pinned to one that knows no tool grammars (outlines, lm-format-enforcer)"
            )
            fix = "Unpin the backend, or restart vLLM and let a strict tool call be its first structured request."
            return ServerState("wrong_backend", message, fix, modes)
        case _:
            return ServerState("refuses_tools", f"it refuses {which}", "See the server's own log.", modes)
