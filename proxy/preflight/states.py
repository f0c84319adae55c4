"""The states of a server in which it refuses what is good, told by asking it about something that is good.

The questions come before any of the dataset's, the strict tool first: vLLM's engine keeps for its life the grammar
backend of the first structured request it meets (0.32), so an ordinary one had better be first.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gymtap.proxy.preflight.answers import FATAL, Answer, Outcome

_PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

type Ask = Callable[[dict[str, Any]], Awaitable[Answer]]


@dataclass(frozen=True)
class ServerState:
    """Something about the server rather than the tools. `fatal`: nothing else is worth asking.

    `mode` is what of the dataset it concerns: `strict`, `auto`, `required`, or `all` of it.
    """

    name: str
    message: str
    fix: str
    mode: str = "all"
    fatal: bool = False

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {"state": self.name, "concerns": self.mode, "message": self.message, "fix": self.fix}


def modes_of(request: dict[str, Any]) -> frozenset[str]:
    """What of a server a request needs: `auto` tool calls, `required` (or named) ones, `strict` grammars."""
    found = set()
    tools = request.get("tools") or []
    if tools:
        found.add("auto" if request.get("tool_choice", "auto") in ("auto", "none") else "required")
    if any(isinstance(tool, dict) and tool.get("function", {}).get("strict") is True for tool in tools):
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
    states = [] if plain.outcome in (Outcome.ACCEPTED, Outcome.INCOMPLETE) else [_broken(plain)]
    wanted = set(modes)
    for mode in ("strict", "auto", "required"):
        if mode in wanted:
            answer = await ask(good(mode, model))
            states += [state] if (state := _state(mode, answer)) else []
    return states


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
        case _:
            fix = "Is it up, and reachable from here? vLLM listens only once the model is loaded."
            return ServerState("unreachable", f"the endpoint gives no answer ({said})", fix, fatal=True)


def _broken(answer: Answer) -> ServerState:
    message = f"a request without tools fails ({answer.status}: {answer.message})"
    return ServerState("broken", message, "Look at the server's own log; the tools have no part in it.")


def _state(mode: str, answer: Answer) -> ServerState | None:
    said = f"{answer.status}: {answer.message}"
    if answer.outcome in (Outcome.ACCEPTED, Outcome.INCOMPLETE):
        return None
    if answer.outcome is Outcome.PARSER:
        fix = "Start vLLM with --enable-auto-tool-choice --tool-call-parser NAME (hermes, qwen3_coder, llama3_json, …)."
        return ServerState("no_tool_parser", f"the server was started without a tool parser ({said})", fix, mode)
    if answer.outcome is Outcome.SCHEMA and mode == "strict":
        message = f"it refuses every strict tool, this good one included ({said}): its backend is pinned to guidance"
        fix = "Start vLLM with --structured-outputs-config.backend auto or xgrammar (vllm#55152)."
        return ServerState("pinned_backend", message, fix, mode)
    if answer.outcome in (Outcome.SERVER, Outcome.SCHEMA):
        message = (
            f"it fails on a good {mode} tool ({said}): its engine keeps the backend of the first structured request"
            " that it met, or is pinned to one that knows no tool grammars (outlines, lm-format-enforcer)"
        )
        fix = "Unpin the backend, or restart vLLM and let an ordinary strict tool call be its first structured request."
        return ServerState("wrong_backend", message, fix, mode)
    return ServerState("refuses_tools", f"it refuses a good {mode} tool ({said})", "See the server's log.", mode)
