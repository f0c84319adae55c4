"""Finds the conversation in a body: chat completions and the Responses API, also inside Gym's own bodies.

Pure: JSON in, turns out, and what is left when they are taken away. A body that only resembles one gives no
turns and is left whole; nothing is dropped on the way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

_NESTED = ("responses_create_params", "response")
_LISTS = ("instructions", "input", "messages", "output", "choices")


@dataclass(frozen=True)
class Turn:
    """Who speaks (`user`, `assistant`, `tool`, …), and what; `part` is where it was found (`input`, `choices`, …)."""

    part: str
    role: str
    text: str


def conversation(body: Any) -> tuple[list[Turn], Any]:
    """The turns of a body, in order, and the body without them."""
    if not isinstance(body, dict):
        return [], body
    turns: list[Turn] = []
    rest = dict(body)
    for name in (*_NESTED, *_LISTS):
        if name not in rest:
            continue
        found, left = conversation(rest[name]) if name in _NESTED else (_turns(name, rest[name]), None)
        turns += found
        if found and left:
            rest[name] = left
        elif found:
            del rest[name]
    return turns, rest


def _turns(part: str, value: Any) -> list[Turn]:
    """The turns in one field; none when any of its items is not one, so that nothing goes missing."""
    if isinstance(value, str):
        return [Turn(part, "instructions" if part == "instructions" else "user", value)] if value else []
    if not isinstance(value, list):
        return []
    found = [list(_turn(part, item)) for item in value]
    return [turn for turns in found for turn in turns] if all(found) else []


def _turn(part: str, item: Any) -> Iterator[Turn]:
    if not isinstance(item, dict):
        return
    if part == "choices":
        yield from _turn("message", item.get("message"))
        return
    match item.get("type"):
        case "function_call":
            yield Turn(part, "assistant", _call(item))
        case "function_call_output":
            yield Turn(part, "tool", _text(item.get("output")))
        case "reasoning":
            told = (_text(item.get(name)) for name in ("summary", "content") if item.get(name))
            yield Turn(part, "reasoning", "\n".join(told))
        case _:
            yield from _message(part, item)


def _message(part: str, item: dict[str, Any]) -> Iterator[Turn]:
    role = item.get("role")
    if not isinstance(role, str):
        return
    if thought := item.get("reasoning_content") or item.get("reasoning"):
        yield Turn(part, "reasoning", _text(thought))
    calls = item.get("tool_calls") or ()
    if item.get("content") is not None or not calls:
        yield Turn(part, role, _text(item.get("content")))
    for call in calls if isinstance(calls, list) else ():
        yield Turn(part, role, _call(call.get("function")) if isinstance(call, dict) else _text(call))


def _call(function: Any) -> str:
    if not isinstance(function, dict):
        return _text(function)
    return f"→ {function.get('name')}({_text(function.get('arguments'))})"


def _text(content: Any) -> str:
    """A content as text: parts joined, and what is not text as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return orjson.dumps(content).decode()


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else _text(part)
