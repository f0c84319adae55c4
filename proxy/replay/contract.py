"""Checks an edited body against what its server says it takes: the request schema of its own /openapi.json.

Only a warning: the server decides. One that publishes nothing is not asked twice.
"""

import json
from typing import Any

import jsonschema_rs
from aiohttp import ClientError, ClientSession, ClientTimeout

from gymtap.proxy.core.calls import route
from gymtap.proxy.replay.compare import parse
from gymtap.proxy.replay.patch import join

_TIMEOUT_S = 5
_PROBLEMS_MAX = 5
_MESSAGE_CHARS = 200


async def published(client: ClientSession, base: str) -> Any:
    """A server's OpenAPI document; None where it has none."""
    try:
        async with client.get(f"{base}/openapi.json", timeout=ClientTimeout(total=_TIMEOUT_S)) as response:
            return json.loads(await response.read()) if response.status == 200 else None
    except (ClientError, TimeoutError, OSError, ValueError):
        return None


def problems(document: Any, target: str, body: bytes | None) -> list[str]:
    """What is wrong with a body for the POST of `target`, by place; empty where nothing is, or nothing is known."""
    schema = _request_schema(document, route(target).path)
    if schema is None:
        return []
    try:
        validator = jsonschema_rs.Draft202012Validator(schema)
        found = [
            f"{join(list(error.instance_path)) or '(body)'}: {error.message[:_MESSAGE_CHARS]}"
            for error in validator.iter_errors(parse(body))
        ]
    except (ValueError, jsonschema_rs.ReferencingError):
        return []
    more = len(found) - _PROBLEMS_MAX
    return found[:_PROBLEMS_MAX] + ([f"(and {more} more)"] if more > 0 else [])


def _request_schema(document: Any, path: str) -> dict[str, Any] | None:
    """The schema of a path's JSON body, with the components that it refers to."""
    try:
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return {**schema, "components": document.get("components", {})}
    except (KeyError, TypeError):
        return None
