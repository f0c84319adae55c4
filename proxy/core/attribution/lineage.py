"""Lineage: ids that a model made in one turn and that come back in a later one.

A response's id, its items' ids and its tool calls' ids name the turn that made them. Only ids that look random count:
`call_0` is made by every conversation.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gymtap.proxy.core.attribution.sessions import Token, digest

MAX_IDS = 4096
"""Ids read from one body; a longer conversation is told by its last turns, which come first here."""

_RANDOM = re.compile(
    r"(?<![0-9A-Za-z])"
    r"(?:(?=[0-9A-Za-z]*[0-9])(?=[0-9A-Za-z]*[A-Za-z])[0-9A-Za-z]{8,}|[1-9][0-9]{7,8}|[0-9]{18,})"
    r"(?![0-9A-Za-z])"
)


def is_distinctive(name: str) -> bool:
    """Whether an id looks random enough to be made only once (`call_9c3f6b77`, not `functions.f:0` or `call_12`)."""
    return _RANDOM.search(name) is not None


def made(body: Any) -> list[Token]:
    """The ids that a model API's answer, parsed, made: of itself, its items and its tool calls."""
    return _tokens(_made(body))


def used(body: Any) -> list[Token]:
    """The ids that a request to a model API, parsed, brings back from earlier turns, last turn first."""
    return _tokens(_used(body))


def _made(body: Any) -> Iterator[Any]:
    if not isinstance(body, dict):
        return
    yield body.get("id")
    for item in _dicts(body.get("output")):
        yield from (item.get("call_id"), item.get("id"))
    for choice in _dicts(body.get("choices")):
        yield from _called(choice.get("message"))
    yield from _anthropic(body.get("content"))


def _used(body: Any) -> Iterator[Any]:
    if not isinstance(body, dict):
        return
    yield body.get("previous_response_id")
    for item in _backwards(body.get("input")):
        yield from (item.get("call_id"), item.get("id"))
    for message in _backwards(body.get("messages")):
        yield message.get("tool_call_id")
        yield from _called(message)
        yield from _anthropic(message.get("content"))


def _called(message: Any) -> Iterator[Any]:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    yield from (call.get("id") for call in _dicts(calls))


def _anthropic(content: Any) -> Iterator[Any]:
    for block in _dicts(content):
        yield from (block.get("tool_use_id"), block.get("id"))


def _backwards(items: Any) -> list[dict[str, Any]]:
    return _dicts(items)[::-1]


def _dicts(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _tokens(names: Iterable[Any]) -> list[Token]:
    distinctive: dict[str, None] = {}
    for name in names:
        if isinstance(name, str) and len(name) <= 512 and name not in distinctive and is_distinctive(name):
            distinctive[name] = None
            if len(distinctive) == MAX_IDS:
                break
    return [digest("id", name) for name in distinctive]
