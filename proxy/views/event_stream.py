"""Puts a streamed answer together again, so that it is read like one that came whole.

Chat completions' chunks and the Responses API's events. Anything else that streams is left as the text it is.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from gymtap.proxy.core.event_stream import blocks, is_event_stream


def read_stream(data: bytes) -> dict[str, Any] | None:
    """The body that the stream would have been, or None when it is not a stream that we know."""
    if not is_event_stream(data):
        return None
    told = list(_objects(data))
    return _responses(told) or _chat(told)


def _objects(data: bytes) -> Iterator[dict[str, Any]]:
    for _, text in blocks(data):
        try:
            event = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue  # `[DONE]`, a comment, or a chunk that was cut off
        if isinstance(event, dict):
            yield event


def _responses(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The Responses API sends the whole response with its last event; before that, text in pieces."""
    whole: dict[str, Any] | None = None
    text = ""
    for event in events:
        if isinstance(event.get("response"), dict):
            whole = event["response"]
        elif event.get("type") == "response.output_text.delta":
            text += str(event.get("delta", ""))
    if whole is None or whole.get("output") or not text:
        return whole
    return whole | {"output": [{"type": "message", "role": "assistant", "content": text}]}


def _chat(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    body: dict[str, Any] = {}
    messages: dict[int, dict[str, Any]] = {}
    for event in events:
        choices = event.get("choices")
        if not isinstance(choices, list):
            continue
        body |= {key: value for key, value in event.items() if key != "choices"}
        for choice in choices:
            if isinstance(choice, dict):
                _grow(messages.setdefault(_index(choice), {"message": {}}), choice)
    return body | {"choices": [messages[index] for index in sorted(messages)]} if messages else None


def _index(item: dict[str, Any]) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else 0


def _grow(grown: dict[str, Any], choice: dict[str, Any]) -> None:
    grown |= {key: value for key, value in choice.items() if key != "delta" and value is not None}
    delta = choice.get("delta")
    if isinstance(delta, dict):
        _append(grown["message"], delta)


def _append(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Text goes behind text, a tool call's pieces to the call of their index; anything else replaces."""
    for key, value in delta.items():
        if key == "tool_calls" and isinstance(value, list):
            calls = message.setdefault("tool_calls", [])
            for piece in value:
                if isinstance(piece, dict):
                    _append_call(calls, piece)
        elif isinstance(value, str) and isinstance(message.get(key), str) and key != "role":
            message[key] += value
        elif value is not None:
            message[key] = value


def _append_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    index = _index(piece)
    call = next((call for call in calls if call["index"] == index), None)
    if call is None:
        call = {"index": index, "function": {"name": "", "arguments": ""}}
        calls.append(call)
    call |= {key: value for key, value in piece.items() if key in {"id", "type"} and value}
    function = piece.get("function")
    for part in ("name", "arguments"):
        text = function.get(part) if isinstance(function, dict) else None
        call["function"][part] += text if isinstance(text, str) else ""
