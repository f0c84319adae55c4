"""Reads tool errors back from a row's transcript: Gym pastes a tool's error body as its output."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from gymtap.proxy.core.unwrap import unwrap
from gymtap.proxy.diagnose.evidence import listed
from gymtap.proxy.diagnose.rule import Sees, Sight, View
from gymtap.schemas import Call, LeafKind

_UNREACHABLE = re.compile(r"connect|refused|unreachable|timed? ?out|disconnected|reset by peer", re.IGNORECASE)


class Echo(StrEnum):
    """What kind of error a tool's output holds."""

    NOT_FOUND = "not_found"  # FastAPI's 404
    UNPROCESSABLE = "unprocessable"  # FastAPI's 422
    UNREACHABLE = "unreachable"  # an exception about a connection
    RAISED = "raised"  # any other exception of a Gym server


def echoes(kind: Echo, *, offered: bool | None = None) -> Sees:
    """Sees tool outputs of that kind in rows that ended, where no tool exchange shows them.

    `offered` asks that the row offers the tool, or does not; None leaves it open.
    """

    def sees(view: View) -> Iterator[Sight]:
        if view.material.of(Call.TOOL):
            return
        for source, where, row in view.result_rows:
            names = _offered(row)
            for number, name, output in _outputs(row):
                if _kind(output) is kind and (offered is None or (name in names) is offered):
                    pointer = f"/response/output/{number}"
                    yield Sight(source, where, f"{name}: {output[:300]}", number, name, pointer, shown=output)

    return sees


def _offered(row: dict[str, Any]) -> set[str]:
    params = row.get("responses_create_params")
    tools = params.get("tools") if isinstance(params, dict) else None
    return {str(tool.get("name")) for tool in listed(tools) if isinstance(tool, dict)}


def _outputs(row: dict[str, Any]) -> Iterator[tuple[int, str, str]]:
    response = row.get("response")
    items = response.get("output") if isinstance(response, dict) else None
    names: dict[Any, str] = {}
    for number, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and item.get("type") == "function_call":
            names[item.get("call_id")] = str(item.get("name"))
        elif isinstance(item, dict) and item.get("type") == "function_call_output":
            yield number, names.get(item.get("call_id"), "?"), str(item.get("output") or "")


def _kind(output: str) -> Echo | None:
    if not output.startswith(('"', "{")):
        return None
    leaf = unwrap(output).leaf
    if leaf.kind is LeafKind.DETAIL:
        places = leaf.value.get("detail") if isinstance(leaf.value, dict) else None
        if places == "Not Found":
            return Echo.NOT_FOUND
        return Echo.UNPROCESSABLE if isinstance(places, list) and places and "loc" in str(places[0]) else None
    if leaf.kind is LeafKind.EXCEPTION and output.startswith('"'):
        return Echo.UNREACHABLE if _UNREACHABLE.search(leaf.text) else Echo.RAISED
    return None
