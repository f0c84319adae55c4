"""Responses parameters as Gym 0.7's vllm_model sends them to a Chat endpoint, and where it refuses to."""

from typing import Any

import pytest

from gymtap.proxy.preflight.conversion import ConversionError, to_chat

SCHEMA = {"type": "object"}
TOOL = {"type": "function", "name": "f", "description": None, "parameters": SCHEMA, "strict": True}


def test_a_function_moves_inside_and_keeps_strict() -> None:
    """What is null is left out, as Gym leaves it; nothing else is lost."""
    made = to_chat({"input": "long" * 100, "tools": [TOOL], "tool_choice": "auto", "temperature": None}, "m")
    assert made == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 1,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}],
        "tool_choice": "auto",
    }


@pytest.mark.parametrize(
    ("choice", "made"),
    [
        ("required", "required"),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
        ),
    ],
)
def test_a_choice_takes_chats_shape(choice: Any, made: Any) -> None:
    assert to_chat({"tools": [TOOL], "tool_choice": choice}, "m")["tool_choice"] == made


def test_a_text_format_becomes_a_response_format() -> None:
    text = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": None}, "verbosity": "low"}
    made = to_chat({"text": text}, "m")
    assert made["response_format"] == {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    assert to_chat({"text": {"format": {"type": "json_object"}}}, "m")["response_format"] == {"type": "json_object"}
    assert "response_format" not in to_chat({"text": {"format": {"type": "text"}}}, "m")


def test_a_custom_tools_grammar_moves_inside() -> None:
    tool = {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}
    (made,) = to_chat({"tools": [tool]}, "m")["tools"]
    assert made["custom"]["format"] == {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}


def test_without_tools_what_is_about_tools_goes() -> None:
    made = to_chat({"input": "x", "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, "m")
    assert made.keys() == {"model", "messages", "max_tokens"}


def test_a_chat_request_is_taken_as_it_is() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    made = to_chat({"model": "other", "messages": [{"role": "user", "content": "x"}], "tools": tools, "n": 4}, "m")
    assert made == {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "tools": tools}


@pytest.mark.parametrize(
    "params",
    [
        {"tools": [{"type": "web_search"}]},
        {"tools": [{**TOOL, "defer_loading": True}]},
        {"tools": ["f"]},
        {"tools": {"f": TOOL}},
        {"tools": True},
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "tools": True}},
        {"tools": [TOOL], "tool_choice": {"type": "mcp"}},
        {"tools": [], "tool_choice": "required"},
        {"include": ["x"]},
        {"text": {"format": {"type": "grammar"}}},
    ],
)
def test_what_gym_cannot_convert_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ConversionError):
        to_chat(params, "m")
