"""A row's tools as Gym sends them to a provider: Responses parameters turned into a Chat Completions request.

It follows nemo_gym 0.7.0's `vllm_model` in what matters to a grammar: tools, tool_choice, response format. The
conversation is left out, since it is not what is asked about; one short message stands for it, and one token is asked.
"""

from collections.abc import Mapping
from typing import Any

UNSUPPORTED = frozenset(
    {
        "background", "context_management", "conversation", "include", "max_tool_calls", "previous_response_id",
        "prompt", "truncation",
    }
)  # fmt: skip
"""Fields with which Gym 0.7 refuses to convert at all."""

_MESSAGE = {"role": "user", "content": "Hello"}
_REFERENCES = ("function", "custom")


class ConversionError(Exception):
    """Gym's model server would answer 500 (NotImplementedError) without asking the provider; the text says why."""


def to_chat(params: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The Chat request for a row's `responses_create_params`, or for a request body. Raises ConversionError.

    A body that is a Chat request already is taken as it is, but for its conversation and its length.
    """
    request: dict[str, Any] = {"model": model, "messages": [_MESSAGE], "max_tokens": 1}
    if "messages" in params:
        kept = ("tools", "tool_choice", "response_format", "parallel_tool_calls")
        return request | {key: params[key] for key in kept if params.get(key) is not None}
    given = {key: value for key, value in params.items() if value is not None}
    if refused := sorted(UNSUPPORTED & given.keys()):
        raise ConversionError(f"Gym cannot convert {', '.join(refused)} to Chat Completions")
    request |= _format(given.get("text"))
    return request | _tools(given)


def _tools(given: Mapping[str, Any]) -> dict[str, Any]:
    tools, choice = given.get("tools") or [], _choice(given.get("tool_choice"))
    if not isinstance(tools, list):
        raise ConversionError("tools is not a list")
    if not tools:
        if choice not in (None, "auto", "none"):
            raise ConversionError(f"tool_choice {choice!r} requires a tool")
        return {}
    made: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
    if choice is not None:
        made["tool_choice"] = choice
    if "parallel_tool_calls" in given:
        made["parallel_tool_calls"] = given["parallel_tool_calls"]
    return made


def _tool(tool: Any) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind not in _REFERENCES:
        raise ConversionError(f"Gym converts no tools of type {kind!r}")
    if tool.get("defer_loading"):
        raise ConversionError("Gym converts no tools with defer_loading")
    inner = {key: value for key, value in tool.items() if key not in ("type", "defer_loading")}
    if kind == "function":
        return {"type": kind, kind: {key: value for key, value in inner.items() if value is not None}}
    form = inner.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        grammar = {key: value for key, value in form.items() if key != "type"}
        inner["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": kind, kind: inner}


def _choice(choice: Any) -> Any:
    if choice is None or isinstance(choice, str):
        return choice
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in _REFERENCES:
        return {"type": kind, kind: {key: value for key, value in choice.items() if key != "type"}}
    if kind == "allowed_tools":
        named = choice.get("tools", ())
        if not isinstance(named, list | tuple):
            raise ConversionError("the tools of tool_choice are not a list")
        allowed = {"mode": choice.get("mode"), "tools": [_choice(one) for one in named]}
        return {"type": kind, kind: allowed}
    raise ConversionError(f"Gym converts no tool_choice of type {kind!r}")


def _format(text: Any) -> dict[str, Any]:
    form = text.get("format") if isinstance(text, dict) else None
    kind = form.get("type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": kind}}
    if kind == "json_schema":
        kept = {key: form[key] for key in ("name", "schema", "strict", "description") if form.get(key) is not None}
        return {"response_format": {"type": kind, "json_schema": kept}}
    raise ConversionError(f"Gym converts no text format of type {kind!r}")
