"""A capture's tools against the routes of its servers, and its models' calls against the tools that they were given.

Everything is read from the bodies and the contracts in the capture, so it also speaks of exchanges that ended before
their server's contract was known, or that a tap without this check recorded.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from gymtap.proxy.captured.contracts import contracts_of
from gymtap.proxy.core.contracts.finding import finding
from gymtap.proxy.core.contracts.routing import UNDECLARED, check_call, check_tools, closest, tools_of
from gymtap.proxy.core.flow import INSPECT_MAX_BYTES, Flow
from gymtap.proxy.store import Capture
from gymtap.schemas import Body, Call, Exchange, Finding, RowKey, Server, Severity


class Said(NamedTuple):
    """A finding and the exchange that it is about."""

    finding: Finding
    where: str


def routing(capture: Capture) -> Iterator[Said]:
    """What rows' tools miss at the server that they seed, and what calls went into nothing. Raises CaptureError."""
    contracts = contracts_of(capture)
    declared: dict[RowKey, frozenset[str]] = {}
    for exchange in capture.exchanges(call=Call.SEED_SESSION):
        tools = tools_of(_json(capture, exchange.request.body))
        if exchange.attribution.row is not None:
            declared[exchange.attribution.row] = frozenset(tool.name for tool in tools)
        contract = contracts.get(exchange.server)
        if contract is not None:
            yield from (Said(one, exchange.id) for one in check_tools(tools, contract))
    for exchange in capture.exchanges(call=Call.TOOL):
        row = exchange.attribution.row
        flow = _flow(capture, exchange)
        found = check_call(flow, contracts.get(exchange.server), declared.get(row) if row is not None else None)
        yield from (Said(one, exchange.id) for one in found)
    for exchange in capture.exchanges(call=Call.MODEL, failed=False):
        yield from (Said(one, exchange.id) for one in _model_calls(capture, exchange))


def _model_calls(capture: Capture, exchange: Exchange) -> Iterator[Finding]:
    """Calls in a model's answer to tools that its request did not offer."""
    answer = _json(capture, exchange.response.body if exchange.response else None)
    output = answer.get("output") if isinstance(answer, dict) else None
    calls = [
        (index, str(item.get("name")))
        for index, item in enumerate(output if isinstance(output, list) else ())
        if isinstance(item, dict) and item.get("type") == "function_call"
    ]
    if not calls:
        return
    offered = {tool.name for tool in tools_of(_json(capture, exchange.request.body))}
    for index, name in calls:
        if name not in offered:
            message = f"the model called {name}, which its request did not offer"
            near = closest(name, sorted(offered))
            yield finding(UNDECLARED, Severity.WARNING, message, ("output", index, "name"), found=name, expected=near)


def _flow(capture: Capture, exchange: Exchange) -> Flow:
    server = Server(name=exchange.server, kind=exchange.kind, listen="", upstream="")
    asked, answered = exchange.request, exchange.response
    flow = Flow(exchange.id, server, exchange.started_ns, asked.method, asked.target, asked.headers)
    flow.call, flow.attribution = exchange.call, exchange.attribution
    flow.request_body = _content(capture, asked.body)
    if answered is not None:
        flow.status, flow.response_body = answered.status, _content(capture, answered.body)
    return flow


def _json(capture: Capture, body: Body | None) -> Any:
    content = _content(capture, body)
    try:
        return orjson.loads(content) if content else None
    except orjson.JSONDecodeError:
        return None


def _content(capture: Capture, body: Body | None) -> bytes | None:
    return None if body is None or body.size_bytes > INSPECT_MAX_BYTES else capture.body(body)
