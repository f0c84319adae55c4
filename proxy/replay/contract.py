"""Checks an edited body against what its server says it takes: the request model of its own /openapi.json.

Only a warning: the server decides. It is asked live, because it may be another one than the recorded.
"""

import json
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from gymtap.proxy.core.calls import route
from gymtap.proxy.core.contracts.openapi import Contract
from gymtap.proxy.core.pointer import pointer
from gymtap.proxy.replay.compare import parse

_TIMEOUT_S = 5
_PROBLEMS_MAX = 5
_MESSAGE_CHARS = 200


async def published(client: ClientSession, server: str, base: str) -> Contract | None:
    """A server's contract; None where it publishes none."""
    try:
        async with client.get(f"{base}/openapi.json", timeout=ClientTimeout(total=_TIMEOUT_S)) as response:
            document: Any = json.loads(await response.read()) if response.status == 200 else None
        return Contract(document, server)
    except (ClientError, TimeoutError, OSError, ValueError):
        return None


def problems(contract: Contract | None, target: str, body: bytes | None) -> list[str]:
    """What is wrong with a body for the POST of `target`, by place; empty where nothing is, or nothing is known."""
    path = route(target).path
    there = contract.route(path) if contract is not None else None
    if there is None or there.request is None:
        return []
    found = [f"{pointer(one.path)}: {one.message[:_MESSAGE_CHARS]}" for one in there.request.violations(parse(body))]
    more = len(found) - _PROBLEMS_MAX
    return found[:_PROBLEMS_MAX] + ([f"(and {more} more)"] if more > 0 else [])
