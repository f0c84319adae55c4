"""Checks every distinct tool and tool list of a source once, and says where each finding was met first.

A thousand rows share a handful of tools, so the grammar is asked per distinct tool, then per distinct list,
since a list can be refused where each of its tools alone is not.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gymtap.proxy.check.enforcement import not_enforced
from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.grammar import GrammarCheck, check_grammar
from gymtap.proxy.check.locate import Fault
from gymtap.proxy.check.requests import Carrier
from gymtap.proxy.check.tools import check_tools, is_strict, parameters_of, params_of
from gymtap.proxy.check.verdict import BEFORE, judge
from gymtap.proxy.check.vllm_rules import RULES_VERSION, Backend, Route
from gymtap.proxy.core.contracts.finding import finding, short
from gymtap.proxy.core.pointer import pointer
from gymtap.schemas import Finding, Severity

_ROW_FIELDS = ("response_mode", "tool_name", "tool_payload_key", "schema_str", "num_tools")


@dataclass
class Met:
    """A finding, where it was met first, and how often."""

    finding: Finding
    where: str
    count: int = 1

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {**self.finding.model_dump(mode="json", exclude_none=True), "where": self.where, "count": self.count}


@dataclass
class ToolReport:
    """What a sweep found. `not_run` names what could not be asked and why; `unread` what could not be read."""

    requests: int = 0
    tools: int = 0
    schemas: set[bytes] = field(default_factory=set)
    distinct_tools: int = 0
    tool_lists: int = 0
    engines: Mapping[str, str | None] = field(default_factory=dict)
    grammar_checks: list[tuple[str, GrammarCheck]] = field(default_factory=list)
    met: dict[tuple[Any, ...], Met] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    not_run: set[str] = field(default_factory=set)

    @property
    def findings(self) -> list[Met]:
        """Errors first, then by how often they were met."""
        order = list(Severity)
        return sorted(self.met.values(), key=lambda met: (order.index(met.finding.severity), -met.count))

    def errors(self) -> int:
        """How many distinct error findings there are."""
        return sum(met.finding.severity is Severity.ERROR for met in self.met.values())

    def add(self, found: Finding, where: str, key: object = None) -> None:
        """Count a finding; `key` says what it is about where the pointer is not to tell it apart."""
        at = (found.rule, found.message, found.pointer if key is None else key)
        if at in self.met:
            self.met[at].count += 1
        else:
            self.met[at] = Met(found, where)

    def as_json(self) -> dict[str, Any]:
        """The documented JSON."""
        return {
            "requests": self.requests,
            "tools": self.tools,
            "distinct_tools": self.distinct_tools,
            "distinct_schemas": len(self.schemas),
            "tool_lists": self.tool_lists,
            "rules": f"vLLM {RULES_VERSION}",
            "engines": dict(self.engines),
            "not_run": sorted(self.not_run),
            "unread": self.unread,
            "preflight": [{"where": where, **answer.as_json()} for where, answer in self.grammar_checks],
            "findings": [met.as_json() for met in self.findings],
        }


class ToolCheck:
    """Feed it carriers, then read `report`. `engines` None leaves the grammar out.

    `routes` None asks what a request would meet: its strict tools on the strict route as errors, and the
    other routes as warnings about servers that are set up otherwise. Named routes are all errors.
    """

    def __init__(
        self, engines: Engines | None, backend: Backend = Backend.AUTO, routes: tuple[Route, ...] | None = None
    ) -> None:
        self.report = ToolReport()
        self._engines = engines
        self._backend = backend
        self._routes = routes
        self._lists: dict[bytes, list[Finding]] = {}
        self._tools: dict[bytes, list[tuple[Finding, tuple[Any, ...]]]] = {}
        if engines is not None:
            self.report.engines = engines.versions()

    def feed(self, items: Iterable[Carrier | str]) -> None:
        """Check them all."""
        for item in items:
            if isinstance(item, str):
                self.report.unread.append(item)
            else:
                self._carrier(item)

    def _carrier(self, carrier: Carrier) -> None:
        params, at = params_of(carrier.row)
        tools = params.get("tools") if params else None
        self.report.requests += 1
        key = self._key(carrier.row, params, tools)
        if key not in self._lists:
            self._lists[key] = check_tools(carrier.row)
        for found in self._lists[key]:
            self.report.add(found, carrier.where)
        self._format(params or {}, at, carrier.where)
        if not isinstance(tools, list):
            return
        self.report.tools += len(tools)
        for index, tool in enumerate(tools):
            self._tool(tool, (*at, "tools", index), carrier.where)
        self._list(tools, carrier.where, pointer((*at, "tools")))

    def _key(self, row: Mapping[str, Any], params: Mapping[str, Any] | None, tools: Any) -> bytes:
        about = {name: row[name] for name in _ROW_FIELDS if name in row}
        choice = params.get("tool_choice", "-") if params else "-"
        return _digest([tools, choice, about, params is None])

    def _tool(self, tool: Any, at: tuple[str | int, ...], where: str) -> None:
        name, parameters, inner = parameters_of(tool)
        if not inner or (parameters is not None and not isinstance(parameters, dict)):
            return
        key = _digest(tool)
        if key not in self._tools:
            self.report.distinct_tools += 1
            self.report.schemas.add(_digest(parameters))
            self._tools[key] = list(self._compiled(name, parameters, where, strict=is_strict(tool)))
        for found, path in self._tools[key]:
            placed = found.model_copy(update={"pointer": pointer((*at, *inner, *path))})
            self.report.add(placed, where, (key, path))

    def _compiled(
        self, name: str, parameters: Any, where: str, *, strict: bool
    ) -> Iterator[tuple[Finding, tuple[Any, ...]]]:
        if self._engines is None:
            return
        routes = self._routes or (Route.STRICT_TOOL, Route.REQUIRED_JSON)
        answers = check_grammar(self._engines, name, parameters, routes, self._backend)
        told: set[tuple[Any, ...]] = set()
        for answer in answers:
            self.report.grammar_checks.append((where, answer))
            if answer.verdict.ok is None:
                self.report.not_run.add(f"{answer.route}: {answer.verdict.reason}")
            elif answer.verdict.refused:
                found = [(each, path) for each, path in self._refused(answer, strict=strict) if path not in told]
                told |= {path for _each, path in found if self._routes is None and strict}
                yield from found
        if strict and answers[0].verdict.ok:
            for path, keyword, instead in not_enforced(parameters):
                message = f"{name}: {keyword} {instead}, so the model may break it"
                yield finding("grammar.not_enforced", Severity.NOTE, message, ()), path

    def _refused(self, answer: GrammarCheck, *, strict: bool) -> Iterator[tuple[Finding, tuple[Any, ...]]]:
        severity, when = self._weight(answer.route, strict=strict)
        if not answer.faults:
            yield finding(f"grammar.{answer.route}", severity, _message(answer, None, when), ()), ()
        for fault in answer.faults:
            whole = finding(
                f"grammar.{answer.route}",
                severity,
                _message(answer, fault, when),
                (),
                found=fault.found,
                fix=_sentence(str(fault.edit)) if fault.edit else None,
            )
            yield whole, fault.path

    def _weight(self, route: Route, *, strict: bool) -> tuple[Severity, str]:
        if self._routes is not None or route is Route.RESPONSE_FORMAT or (route is Route.STRICT_TOOL and strict):
            return Severity.ERROR, ""
        if route is Route.STRICT_TOOL:
            return Severity.NOTE, ", were it strict: true (as it is, nothing is compiled)"
        return Severity.WARNING, ", where tool_choice requires it and the parser has no structural tag"

    def _list(self, tools: list[Any], where: str, at: str) -> None:
        """Judge a list whose tools are accepted one by one: together they may not be."""
        named = [(tool, *parameters_of(tool)[:2]) for tool in tools if parameters_of(tool)[2]]
        key = _digest(["list", tools])
        if key in self._lists or self._engines is None or len(named) < 2:
            return
        self._lists[key] = []
        self.report.tool_lists += 1
        loose = [(name, parameters if self._routes or is_strict(tool) else None) for tool, name, parameters in named]
        whole = [(name, parameters) for _tool, name, parameters in named]
        for route in self._routes or (Route.STRICT_TOOL, Route.REQUIRED_JSON):
            if route is not Route.RESPONSE_FORMAT:
                self._together(loose if route is Route.STRICT_TOOL else whole, route, where, at)

    def _together(self, tools: list[tuple[str, Any]], route: Route, where: str, at: str) -> None:
        assert self._engines is not None
        if not all(judge(self._engines, [tool], route, self._backend).ok for tool in tools):
            return
        verdict = judge(self._engines, tools, route, self._backend)
        if verdict.refused:
            severity, when = self._weight(route, strict=True)
            message = f"the tools are refused together, though each alone is not{when}: {verdict.reason}"
            found = Finding(rule=f"grammar.{route}.list", severity=severity, message=message, pointer=at)
            self.report.add(found, where)

    def _format(self, params: Mapping[str, Any], at: tuple[str | int, ...], where: str) -> None:
        """A request's own response format (`text.format`, or Chat's `response_format`) is compiled as well."""
        for place, schema in formats_of(params):
            key = _digest(["format", schema])
            if key not in self._tools:
                self._tools[key] = list(self._compiled_format(schema, where))
            for found, path in self._tools[key]:
                placed = found.model_copy(update={"pointer": pointer((*at, *place, *path))})
                self.report.add(placed, where, (key, path))

    def _compiled_format(self, schema: Any, where: str) -> Iterator[tuple[Finding, tuple[Any, ...]]]:
        if self._engines is None:
            return
        (answer,) = check_grammar(self._engines, "response_format", schema, (Route.RESPONSE_FORMAT,), self._backend)
        self.report.grammar_checks.append((where, answer))
        if answer.verdict.ok is None:
            self.report.not_run.add(f"{answer.route}: {answer.verdict.reason}")
        elif answer.verdict.refused:
            yield from self._refused(answer, strict=True)


def _digest(value: Any) -> bytes:
    """Stands for a value whose keys' order does not matter."""
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def formats_of(params: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The schemas of a request's response format, in either dialect, with their places in it."""
    text, chat = params.get("text"), params.get("response_format")
    responses = text.get("format") if isinstance(text, dict) else None
    if isinstance(responses, dict) and isinstance(responses.get("schema"), dict):
        yield ("text", "format", "schema"), responses["schema"]
    inner = chat.get("json_schema") if isinstance(chat, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
        yield ("response_format", "json_schema", "schema"), inner["schema"]


def _message(answer: GrammarCheck, fault: Fault | None, when: str) -> str:
    verdict = answer.verdict
    reason = (fault.reason if fault else verdict.reason).splitlines()[0]
    about = f" over {fault.keyword}" if fault and fault.keyword else ""
    is_told = reason.partition(BEFORE)[0] in verdict.shown
    hidden = f"; the client reads {short(verdict.shown)}" if verdict.shown and not is_told else ""
    smallest = f"; the smallest schema refused so is {short(fault.smallest)}" if fault and fault.smallest else ""
    return f"{answer.name}: vLLM {RULES_VERSION} answers {verdict.status}{about}{when}: {reason}{hidden}{smallest}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
