"""vLLM's verdict on a tool list or a schema, for one route and one backend, found by asking its engines.

The API server validates (400), the engine compiles afterwards (500). With backend `auto` the two may
disagree: the server picks a fallback per request, while the engine keeps the backend of the first
structured request of its life, which this assumes to be xgrammar, as it is after any ordinary one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gymtap.proxy.check import vllm_rules as rules
from gymtap.proxy.check.engines import Engines, Reply
from gymtap.proxy.check.vllm_rules import Backend, Route

TOO_DEEP = "nested too deeply: objects and arrays may nest at most 64 levels"
HIDDEN = "Invalid grammar specification: 'triggers'"
"""What a client of vLLM 0.32 is told of every strict tool that is refused, whatever the reason."""

BEFORE = " (before that"
"""Parts a reason from what another engine had said before."""

_IN_WORDS = (
    (
        re.compile("per_rule_fsm_hashes"),
        "a pattern repeats a part of it more than 128 times, over which its cache fails",
    ),
    (re.compile("type mismatch.*is<std::string>"), "a string is expected"),
)
"""What xgrammar 0.2.8 means where it quotes an assertion of its own code."""

type Tools = Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """`ok` None means that it could not be found out; `reason` then says what was missing.

    `status` is what the live server would answer; `reason` the engine's own words; `shown` what the client
    would read instead; `judge` who decided (`xgrammar`, `llguidance`, `outlines`, `vllm`).
    """

    ok: bool | None
    status: int | None = None
    reason: str = ""
    shown: str = ""
    judge: str = "xgrammar"

    @property
    def refused(self) -> bool:
        """Whether the live server would refuse it."""
        return self.ok is False


def _ok(judge: str) -> Verdict:
    return Verdict(ok=True, status=200, judge=judge)


def _no(status: int, reason: str, shown: str, judge: str) -> Verdict:
    return Verdict(ok=False, status=status, reason=reason, shown=shown, judge=judge)


def _unknown(engine: str, why: str) -> Verdict:
    return Verdict(ok=None, reason=f"{engine} could not be run ({why})", judge=engine)


def judge(engines: Engines, tools: Tools, route: Route, backend: Backend = Backend.AUTO) -> Verdict:
    """The verdict on a request with these `(name, parameters)` tools, every one of them compiled.

    On `response_format` only the first one's parameters count. Parameters None compile to anything.
    """
    for _name, parameters in tools:
        if parameters is not None and not isinstance(parameters, dict):
            return _no(400, "Input should be a valid dictionary", "Input should be a valid dictionary", "vllm")
    if route is Route.STRICT_TOOL:
        return _strict(engines, tools, backend)
    if route is Route.RESPONSE_FORMAT:
        schema = tools[0][1]
        reason = "a response_format of json_schema needs a schema"
        return _no(400, reason, reason, "vllm") if schema is None else _json(engines, schema, backend)
    try:
        return _json(engines, rules.required_schema(tools), backend)
    except rules.DefinitionsClashError as clash:
        return _no(400, str(clash), str(clash), "vllm")


def _strict(engines: Engines, tools: Tools, backend: Backend) -> Verdict:
    tag = rules.structural_tag(tools)
    if rules.levels_exceed(tag, rules.TAG_MAX_LEVELS):
        return _no(400, TOO_DEEP, f"The JSON schema is {TOO_DEEP}", "vllm")
    if backend is Backend.GUIDANCE:
        return _no(400, "backend guidance refuses every strict tool (vllm#55152)", HIDDEN, "vllm")
    if backend is Backend.OUTLINES:
        return _no(500, "backend outlines knows no structural tags", "Internal server error", "vllm")
    text = rules.dumps(tag)
    compiled = _compiled(engines, text, "tag", "xgrammar")
    if not compiled.refused:
        return compiled
    shown = HIDDEN if backend is Backend.AUTO else "Invalid structural tag specification."
    return _refusal(engines.xgrammar(text, kind="tag"), "xgrammar", 400, shown) or compiled


def _json(engines: Engines, schema: dict[str, Any], backend: Backend) -> Verdict:
    if schema and rules.levels_exceed(schema, rules.SCHEMA_MAX_LEVELS):
        return _no(400, TOO_DEEP, f"The JSON schema is {TOO_DEEP}", "vllm")
    verdict = _validated(engines, schema, rules.dumps(schema), backend)
    if verdict.ok and rules.beyond_64_bits(schema):
        return _no(500, "an integer beyond 64 bits cannot be sent to the engine", "Internal server error", "vllm")
    return verdict


def _validated(engines: Engines, schema: dict[str, Any], text: str, backend: Backend) -> Verdict:
    if backend is Backend.GUIDANCE:
        return _guidance(engines, text) or _ok("llguidance")
    if backend is Backend.OUTLINES:
        return _outlines(engines, schema, text) or _outlines_index(engines, text)
    turned_down = _xgrammar(engines, schema, text)
    if turned_down is None:
        return _compiled(engines, text, "schema", "xgrammar")
    if backend is Backend.XGRAMMAR or turned_down.ok is None:
        return turned_down
    return _fallback(engines, schema, text, turned_down)


def _xgrammar(engines: Engines, schema: dict[str, Any], text: str) -> Verdict | None:
    """The API server's refusal to use xgrammar; None when it takes the schema. What compiles was parsed."""
    if not schema:
        return None
    if keyword := rules.turned_down_keyword(schema):
        shown = "The provided JSON schema contains features not supported by xgrammar."
        return _no(400, f"vLLM does not offer a schema with this {keyword} to xgrammar", shown, "vllm")
    if engines.xgrammar(text, stage="compile") == Reply():
        return None
    parsed = engines.xgrammar(text)
    return _refusal(parsed, "xgrammar", 400, f"Failed to transform json schema into a grammar: {parsed.error}")


def _fallback(engines: Engines, schema: dict[str, Any], text: str, turned_down: Verdict) -> Verdict:
    """What `auto` does once xgrammar was turned down: another validates, but the engine still compiles."""
    outlines = rules.prefers_outlines(schema)
    refused = _outlines(engines, schema, text) if outlines else _guidance(engines, text)
    if refused is None:
        return _compiled(engines, text, "schema", "outlines" if outlines else "llguidance")
    both = f"{refused.reason}{BEFORE}, {turned_down.judge}: {turned_down.reason})"
    return replace(refused, reason=both if refused.refused else refused.reason)


def _guidance(engines: Engines, text: str) -> Verdict | None:
    reply = engines.llguidance(text)
    return _refusal(reply, "llguidance", 400, f"Grammar error: {reply.error}")


def _outlines(engines: Engines, schema: dict[str, Any], text: str) -> Verdict | None:
    if not schema:
        return None
    reply = engines.outlines(text)
    shown = f"Failed to transform json schema into a regex: {reply.error}"
    if refused := _refusal(reply, "outlines", 400, shown):
        return refused
    try:
        why = rules.regex_refusal(reply.extra or "")
    except (OverflowError, RecursionError) as error:
        return _no(500, f"Error parsing regex: {error}", "Internal server error", "outlines")
    return _no(400, why, why, "outlines") if why else None


def _outlines_index(engines: Engines, text: str) -> Verdict:
    reply = engines.outlines(text, stage="compile")
    return _refusal(reply, "outlines", 500, "Internal server error") or _ok("outlines")


def _compiled(engines: Engines, text: str, kind: str, judge: str) -> Verdict:
    reply = engines.xgrammar(text, kind=kind, stage="compile")
    return _refusal(reply, "xgrammar", 500, "Internal server error") or _ok(judge)


def _refusal(reply: Reply, engine: str, status: int, shown: str) -> Verdict | None:
    if reply.missing:
        return _unknown(engine, reply.missing)
    return _no(status, _in_words(reply.error), shown, engine) if reply.error else None


def _in_words(reason: str) -> str:
    meant = next((words for code, words in _IN_WORDS if code.search(reason)), None)
    return reason if meant is None else f"{meant} ({reason})"
