"""Content: the text of a conversation, in a form that survives the conversion from one model API to another.

Compared is what converters keep: system and user text, tool calls and their outputs, in order. What the assistant said
and thought is left out, because converters fold reasoning into it. Leaving out can only make more conversations
alike, which makes an answer ambiguous, never wrong.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from gymtap.proxy.core.attribution.sessions import Token

MAX_CHUNKS = 20_000
"""A conversation of more pieces is not compared."""


def prefixes(body: Any) -> list[Token] | None:
    """Digests of the conversation after each of its pieces; the last stands for the whole.

    None when the body is no conversation that can be compared: not a model API's request, empty, or too long.
    """
    running = hashlib.blake2b(digest_size=16)
    digests: list[Token] = []
    for chunk in _chunks(body):
        running.update(chunk.encode("utf-8", "surrogatepass") + b"\0")
        digests.append(running.copy().digest())
        if len(digests) > MAX_CHUNKS:
            return None
    return digests or None


def answer(body: Any) -> str:
    """The text that a model API's answer, parsed, gives to the user; empty when it gives none."""
    if not isinstance(body, dict):
        return ""
    texts = [_text(item.get("content")) for item in _items(body.get("output")) if item.get("type") == "message"]
    messages = [choice.get("message") for choice in _items(body.get("choices"))]
    texts += [_text(message.get("content")) for message in messages if isinstance(message, dict)]
    if body.get("type") == "message":
        texts.append(_text(body.get("content")))
    return "\n".join(text.strip() for text in texts if text.strip())


def _chunks(body: Any) -> Iterator[str]:
    if not isinstance(body, dict):
        return
    for first in ("instructions", "system"):
        if text := _text(body.get(first)).strip():
            yield "t" + text
    turns = body.get("input", body.get("messages"))
    if isinstance(turns, str):
        yield "t" + turns.strip()
    for turn in _items(turns):
        yield from _pieces(turn)


def _pieces(turn: dict[str, Any]) -> Iterator[str]:
    kind = turn.get("type")
    if kind == "function_call":
        yield f"c{turn.get('name')} {turn.get('arguments')}"
    elif kind == "function_call_output":
        yield "t" + _text(turn.get("output")).strip()
    elif kind != "reasoning" and turn.get("role") != "assistant" and (text := _text(turn.get("content")).strip()):
        yield "t" + text
    for call in _items(turn.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict):
            yield f"c{function.get('name')} {function.get('arguments')}"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in _items(content))


def _items(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
