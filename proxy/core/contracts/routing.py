"""A row's tools against the routes of its resources server, and calls that went to tools that are not there.

An agent sends a tool call to the route of the tool's name. Nothing compares the two: a tool without a route is
answered 404, the text goes to the model as the tool's output, and the row is scored all the same.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gymtap.proxy.core.calls import route as split
from gymtap.proxy.core.contracts.finding import clip, finding
from gymtap.proxy.core.contracts.openapi import Contract, Model, Route
from gymtap.proxy.core.flow import Flow
from gymtap.proxy.core.pointer import Path
from gymtap.schemas import Call, Finding, Severity

NO_ROUTE = "routing.no_route"
PARAMETERS = "routing.parameters"
UNKNOWN_TOOL = "routing.unknown_tool"
UNDECLARED = "routing.undeclared_tool"

OWN_ROUTES = frozenset(
    {"seed_session", "verify", "close_session", "aggregate_metrics", "reverify_mode", "run", "v1/responses"}
)
"""What every Gym server answers to by itself."""


class Tool(NamedTuple):
    """A function tool as a row declares it; `path` is where in the row."""

    name: str
    parameters: Any
    path: Path


def tools_of(body: Any) -> list[Tool]:
    """The function tools in a row, in a body that carries one (`task_data`), or in a request for a generation."""
    for at in (("responses_create_params",), ("task_data", "responses_create_params"), ()):
        params = body
        for part in at:
            params = params.get(part) if isinstance(params, dict) else None
        tools = params.get("tools") if isinstance(params, dict) else None
        if isinstance(tools, list):
            return [tool for index, one in enumerate(tools) for tool in _tool(one, (*at, "tools", index))]
    return []


def _tool(one: Any, path: Path) -> Iterator[Tool]:
    if not isinstance(one, dict) or one.get("type", "function") != "function":
        return
    inner = one.get("function") if "name" not in one else None
    function, at = (inner, (*path, "function")) if isinstance(inner, dict) else (one, path)
    if isinstance(function.get("name"), str) and function["name"]:
        yield Tool(function["name"], function.get("parameters"), at)


def check_tools(tools: Iterable[Tool], contract: Contract) -> list[Finding]:
    """Each tool has a route, or a catch-all takes it, and what it declares is what the route's model reads.

    A server without any tool is meant to be so: it scores the calls that a model makes (Gym's xlam_fc, say).
    """
    tools = list(tools)
    if tools and not has_tools(contract):
        message = f"{contract.server} has no tools, only scores what the model calls; a call that is sent ends in a 404"
        return [finding(NO_ROUTE, Severity.NOTE, message, (*tools[0].path, "name"), found=tools[0].name)]
    return [one for tool in tools for one in _check(tool, contract)]


def _check(tool: Tool, contract: Contract) -> Iterator[Finding]:
    route = contract.route("/" + tool.name)
    if route is None:
        message = f"the row has a tool {tool.name}, and {contract.server} has no route of that name: calls end in a 404"
        fix = f"Rename the tool, add the route to {contract.server}, or send the row to the agent whose tools it has."
        near = closest(tool.name, names(contract))
        yield finding(
            NO_ROUTE, Severity.WARNING, message, (*tool.path, "name"), found=tool.name, expected=near, fix=fix
        )
    elif route.request is not None:
        yield from _parameters(tool, route, route.request, contract.server)


def _parameters(tool: Tool, route: Route, model: Model, server: str) -> Iterator[Finding]:
    declared = tool.parameters.get("properties") if isinstance(tool.parameters, dict) else None
    properties: Mapping[str, Any] = declared if isinstance(declared, dict) else {}
    required = tool.parameters.get("required") if isinstance(tool.parameters, dict) else None
    asked = set(required) if isinstance(required, list) else set()
    at = (*tool.path, "parameters")
    for name in model.required:
        if name not in properties:
            message = f"{tool.name}: {server} requires {name}, which the tool does not declare: calls end in a 422"
            yield _fit(Severity.ERROR, message, (*at, "properties", name), model, name)
        elif name not in asked:
            message = (
                f"{tool.name}: {server} requires {name}, which the tool leaves to the model: a call may end in a 422"
            )
            yield _fit(Severity.WARNING, message, (*at, "required"), model, name)
    for name, schema in properties.items():
        if name not in model.properties:
            if model.forbids_others:
                message = f"{tool.name}: {server} refuses {name}: its model {model.name} has no such field"
                yield _fit(Severity.WARNING, message, (*at, "properties", name), model, None)
            elif model.properties and not route.catches_all and "additionalProperties" not in model.schema:
                message = f"{tool.name}: {server} ignores {name}: its model {model.name} has no such field"
                yield _fit(Severity.NOTE, message, (*at, "properties", name), model, None)
        elif types_differ(schema, model, name):
            message = f"{tool.name}: the tool declares {name} otherwise than {server} reads it"
            yield _fit(Severity.WARNING, message, (*at, "properties", name), model, name, found=schema)


def _fit(severity: Severity, message: str, path: Path, model: Model, name: str | None, *, found: Any = None) -> Finding:
    expected = model.says((name,)) if name else ", ".join(model.properties) or None
    fix = f"Make the tool's parameters those of {model.name}."
    return finding(PARAMETERS, severity, message, path, found=found, expected=expected, fix=fix)


_LIKE = {"integer": {"integer", "number", "string"}, "number": {"integer", "number", "string"}, "boolean": {"boolean"}}


def types_differ(schema: Any, model: Model, name: str) -> bool:
    """Whether no value of the tool's plain type is one that the model reads; unions and references decide nothing."""
    mine = schema.get("type") if isinstance(schema, dict) else None
    theirs = model.properties[name].get("type") if isinstance(model.properties[name], dict) else None
    if not isinstance(mine, str) or not isinstance(theirs, str):
        return False
    return mine != theirs and mine not in _LIKE.get(theirs, {theirs})


def names(contract: Contract) -> list[str]:
    """The names of a server's tools: its routes but those that every Gym server has."""
    own = (route.template.lstrip("/") for route in contract.routes)
    return [name for name in own if name not in OWN_ROUTES and "{" not in name]


def has_tools(contract: Contract) -> bool:
    """Whether a server has any route, a catch-all too, beside those that every Gym server has."""
    return any(route.template.lstrip("/") not in OWN_ROUTES for route in contract.routes)


def closest(name: str, known: Iterable[str]) -> str | None:
    """`one of a, b`, those first that are written alike; None when there are none."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 3, 0.5)
    shown = list(dict.fromkeys([*near, *known]))[:8]
    return "one of " + ", ".join(shown) if shown else None


def check_call(flow: Flow, contract: Contract | None, declared: frozenset[str] | None) -> list[Finding]:
    """A tool call to a tool that the server does not have, or that the row never declared.

    `declared` is the names of the row's tools; None where they are not known. FastAPI's own words for a path
    without a route (`{"detail": "Not Found"}`) decide where the contract is not known.
    """
    if flow.call is not Call.TOOL or flow.method != "POST" or flow.status is None:
        return []
    path = split(flow.target).path
    name = path.lstrip("/")
    if flow.status in (404, 405) and _unrouted(flow, contract, path):
        return [_unknown(flow, name, contract, declared)]
    if declared and name not in declared:
        message = (
            f"the model called {name}, which the row's tools do not have; {flow.server.name} answered {flow.status}"
        )
        near = closest(name, sorted(declared))
        return [Finding(rule=UNDECLARED, severity=Severity.WARNING, message=message, expected=near, found=clip(name))]
    return []


def _unrouted(flow: Flow, contract: Contract | None, path: str) -> bool:
    if contract is not None:
        return contract.route(path) is None
    return flow.response_json in ({"detail": "Not Found"}, {"detail": "Method Not Allowed"})


def _unknown(flow: Flow, name: str, contract: Contract | None, declared: frozenset[str] | None) -> Finding:
    if declared is None:
        who, fix = "", f"Compare the row's tools with the routes of {flow.server.name}."
    elif name in declared:
        who = ", though the row declares it"
        fix = f"Rename the tool in the dataset, or add the route to {flow.server.name}."
    else:
        who = ", and the row does not declare it either: the model made it up"
        fix = "Nothing is wrong with the row; constrain the model's tool calls if this is frequent."
    message = f"{flow.server.name} has no tool {name}{who}; the {flow.status} goes to the model as the tool's output"
    is_meant = contract is not None and not has_tools(contract)  # it scores calls, and answers none
    made_up = declared is not None and name not in declared
    return Finding(
        rule=UNKNOWN_TOOL,
        severity=Severity.WARNING if made_up or is_meant else Severity.ERROR,
        message=message,
        expected=closest(name, names(contract)) if contract is not None else None,
        found=clip(name),
        fix=fix,
    )
