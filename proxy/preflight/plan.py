"""The distinct requests of a dataset: a thousand rows share a handful of tool lists, and each is asked about once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gymtap.proxy.check.requests import Carrier
from gymtap.proxy.check.tools import params_of
from gymtap.proxy.core.pointer import Path
from gymtap.proxy.preflight.conversion import ConversionError, to_chat


@dataclass
class Asked:
    """One distinct request. `where` is the first row that has it, `count` how many do, `at` its tools' holder there.

    `request` is None where Gym itself would refuse to convert it, for the reason `refused`.
    """

    where: str
    at: Path
    params: Mapping[str, Any]
    request: dict[str, Any] | None
    refused: str = ""
    count: int = 1

    @property
    def tools(self) -> list[Any]:
        """The tools as the row has them."""
        tools = self.params.get("tools")
        return tools if isinstance(tools, list) else []


@dataclass
class Plan:
    """What to ask. `unread` says what could not be read; `rows` counts what was, `without` those without tools."""

    asked: list[Asked] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    rows: int = 0
    without: int = 0


def plan(carriers: Iterable[Carrier | str], model: str) -> Plan:
    """Read every row, and keep each distinct set of tools, tool_choice and response format once."""
    made = Plan()
    seen: dict[bytes, Asked] = {}
    for one in carriers:
        if isinstance(one, str):
            made.unread.append(one)
            continue
        made.rows += 1
        params, at = params_of(one.row)
        if not params:
            made.without += 1
            continue
        _add(made, seen, Asked(one.where, at, params, None), model)
    return made


def _add(made: Plan, seen: dict[bytes, Asked], asked: Asked, model: str) -> None:
    try:
        asked.request = to_chat(asked.params, model)
    except ConversionError as error:
        asked.refused = str(error)
    if asked.request is not None and not asked.request.keys() & {"tools", "response_format"}:
        made.without += 1
        return
    key = orjson.dumps(
        [asked.request, asked.refused, asked.tools if asked.request is None else None], option=orjson.OPT_SORT_KEYS
    )
    if key in seen:
        seen[key].count += 1
    else:
        seen[key] = asked
        made.asked.append(asked)
