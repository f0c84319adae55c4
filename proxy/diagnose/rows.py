"""Looks at dataset rows as they are, before anything ran: what is wrong with a line, its parameters, its tools.

It names only what no consumer accepts. What some grammar backend of some version refuses is the business of the
tool-schema check, and a healthy row must stay free of errors here.
"""

import json
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gymtap.proxy.core.literals import NotALiteral, value
from gymtap.proxy.core.pointer import escaped, unescaped

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_VALUES = ("items", "not", "if", "then", "else", "additionalProperties", "contains", "propertyNames")
MAX_SCHEMA_NODES = 5_000
_MEANT_FOR_GYM = frozenset({"messages", "prompt", "agent_ref", "_ng_task_index", "expected_answer", "tools"})
_CHAT_KINDS = frozenset({"text", "image_url", "input_text", "input_image", "output_text", "tool_use", "tool_result"})
_ROLES = frozenset({"user", "assistant", "system", "developer"})
LICENSES = frozenset(
    {
        "Apache 2.0",
        "MIT",
        "Creative Commons Attribution 4.0 International",
        "Creative Commons Attribution-ShareAlike 4.0 International",
        "CC BY-SA 4.0",
        "CC BY-NC 3.0",
        "NVIDIA Internal Use Only, Do Not Distribute",
        "NVIDIA Evaluation Dataset License Agreement",
        "TBD",
        "GNU General Public License v3.0",
    }
)
"""What Gym 0.7.0 takes as a dataset's licence (`nemo_gym.config_types`)."""


@dataclass(frozen=True)
class Flaw:
    """What is wrong, where (RFC 6901 pointer into the row, None for the whole line), and by which check."""

    check: str
    pointer: str | None
    message: str


def line_flaws(line: str) -> Iterator[Flaw]:
    """What is wrong with one JSONL line as text."""
    if not line.strip():
        yield Flaw("line", None, "is empty, which Gym's reader takes for broken JSON")
        return
    if line.startswith("\ufeff"):
        yield Flaw("line", None, "starts with a byte order mark")
    try:
        json.loads(line.lstrip("\ufeff"), parse_constant=_refuse)
    except _NotFiniteError as error:
        yield Flaw("not_finite", None, f"holds {error}, which JSON does not have")
    except json.JSONDecodeError as error:
        yield Flaw("line", None, _why_not_json(line, error))
    except RecursionError:
        yield Flaw("line", None, "is nested too deep")
    else:
        if _SURROGATE.search(line.replace("\\\\", "")):
            yield Flaw("surrogate", None, "holds half of a surrogate pair, which is no character")


class _NotFiniteError(ValueError):
    pass


def _refuse(constant: str) -> None:
    raise _NotFiniteError(constant)


def _why_not_json(line: str, error: json.JSONDecodeError) -> str:
    if error.msg.startswith("Extra data") and line[error.pos :].lstrip().startswith(("{", "[")):
        return f"holds a second record from character {error.pos + 1} on"
    try:
        cut = not value(line).closed
    except NotALiteral:
        cut = False
    return "stops before its end" if cut else f"is not JSON ({error.msg} at character {error.pos + 1})"


def row_flaws(row: Any) -> Iterator[Flaw]:
    """What is wrong with one row as a value."""
    if not isinstance(row, dict):
        yield Flaw("row", "", f"is {_name(row)}, not an object")
        return
    if "license" in row and "responses_create_params" not in row:
        yield from _license_flaws(row["license"])
    if "responses_create_params" not in row:
        hint = "; it has chat-style `messages`" if "messages" in row else ""
        if _MEANT_FOR_GYM & row.keys():  # typed environments have rows of their own shape
            yield Flaw("params", "", f"has no responses_create_params{hint}")
        return
    params = row["responses_create_params"]
    if not isinstance(params, dict):
        yield Flaw("params", "/responses_create_params", f"is {_name(params)}, not an object")
        return
    yield from _param_flaws(params)
    yield from _tool_flaws(params.get("tools"), "/responses_create_params/tools")
    yield from _choice_flaws(params)


def _license_flaws(license_name: Any) -> Iterator[Flaw]:
    if license_name is not None and license_name not in LICENSES:
        yield Flaw("license", "/license", f"{str(license_name)[:60]!r} is none of the licences that Gym takes")


def _name(found: Any) -> str:
    if found is None:
        return "null"
    return {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}.get(type(found), "a number")


def _param_flaws(params: dict[str, Any]) -> Iterator[Flaw]:
    at = "/responses_create_params"
    given = params.get("input")
    if "input" not in params and "messages" in params:
        yield Flaw("params", at, "has chat-style `messages` instead of `input`")
    elif "input" not in params:
        yield Flaw("params", at, "has no input")
    elif not isinstance(given, str | list):
        yield Flaw("params", f"{at}/input", f"is {_name(given)}, neither a string nor a list")
    elif isinstance(given, list):
        yield from _input_flaws(given, f"{at}/input")
    for name in ("temperature", "top_p", "max_output_tokens"):
        if isinstance(params.get(name), str | list | dict):
            yield Flaw("params", f"{at}/{name}", f"is {_name(params[name])}, not a number")


def _input_flaws(items: list[Any], at: str) -> Iterator[Flaw]:
    called: set[str] = set()
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            yield Flaw("input", f"{at}/{number}", f"is {_name(item)}, not an object")
            continue
        kind = item.get("type")
        if kind == "function_call":
            called.add(str(item.get("call_id")))
            if not isinstance(item.get("arguments"), str):
                yield Flaw(
                    "input", f"{at}/{number}/arguments", f"is {_name(item.get('arguments'))}, not JSON as a string"
                )
        if kind == "function_call_output" and str(item.get("call_id")) not in called:
            yield Flaw("input", f"{at}/{number}/call_id", "answers a call that is not there before it")
        if item.get("role") == "tool" or "tool_calls" in item:
            yield Flaw("input", f"{at}/{number}", "is a chat-style tool message; Responses has function_call items")
        role = item.get("role")
        if kind in {None, "message"} and isinstance(role, str) and role not in {*_ROLES, "tool"}:
            yield Flaw("input", f"{at}/{number}/role", f"{role[:40]!r} is no role of the Responses API")
        yield from _content_flaws(item, f"{at}/{number}/content")
        if kind in _CHAT_KINDS:
            yield Flaw(
                "input", f"{at}/{number}", f"is a content part ({kind!r}), not an item; parts stand in a message"
            )
        if kind in {None, "message"} and "role" not in item:
            yield Flaw("input", f"{at}/{number}", "has neither a role nor a type")


def _content_flaws(item: dict[str, Any], at: str) -> Iterator[Flaw]:
    content = item.get("content")
    for part, chat_form in _chat_parts(content):
        yield Flaw("input", f"{at}/{part}", f"has the chat-style type {chat_form!r}")
    if item.get("type") not in {None, "message"}:
        return
    if content is None and item.get("role") in {"user", "system", "developer"}:
        yield Flaw("input", at, "is null or missing")
    elif content is not None and not isinstance(content, str | list):
        yield Flaw("input", at, f"is {_name(content)}, neither text nor parts")


def _chat_parts(content: Any) -> Iterator[tuple[int, str]]:
    """Content parts of Chat Completions (`text`, `image_url`) where Responses has `input_text`, `input_image`."""
    for number, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in {"text", "image_url", "video_url", "audio_url"}:
            yield number, kind


def _tool_flaws(tools: Any, at: str) -> Iterator[Flaw]:
    if tools is None:
        return
    if not isinstance(tools, list):
        yield Flaw("tools", at, f"is {_name(tools)}, not a list")
        return
    for number, tool in enumerate(tools):
        yield from _one_tool_flaws(tool, f"{at}/{number}")
    names = Counter(tool.get("name") for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str))
    for name, count in names.items():
        if count > 1:
            yield Flaw("duplicate_tool", at, f"has {count} tools named {name}")


def _choice_flaws(params: dict[str, Any]) -> Iterator[Flaw]:
    """A tool_choice that names a function which the row does not offer."""
    choice, tools = params.get("tool_choice"), params.get("tools")
    if not isinstance(choice, dict) or choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        return
    names = {tool.get("name") for tool in tools if isinstance(tool, dict)} if isinstance(tools, list) else set()
    if choice["name"] not in names:
        yield Flaw(
            "tools", "/responses_create_params/tool_choice/name", f"{choice['name'][:60]!r} is none of the tools"
        )


def _one_tool_flaws(tool: Any, at: str) -> Iterator[Flaw]:
    if not isinstance(tool, dict):
        yield Flaw("tools", at, f"is {_name(tool)}, not an object")
    elif isinstance(tool.get("function"), dict):
        yield Flaw(
            "chat_tool",
            f"{at}/function",
            "is the nested Chat Completions form; Responses has name and parameters beside type",
        )
    elif "type" not in tool:
        yield Flaw("tools", f"{at}/type", "is missing (`function`, most likely)")
    elif tool["type"] == "function":
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            yield Flaw("tools", f"{at}/name", "is missing or not a string")
        elif not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", tool["name"]):
            yield Flaw("tools", f"{at}/name", f"{tool['name'][:60]!r} has characters that tool names may not have")
        yield from schema_flaws(tool.get("parameters"), f"{at}/parameters")


def schema_flaws(schema: Any, at: str) -> Iterator[Flaw]:
    """What is no JSON Schema in `schema`: what every metaschema since draft 6 rejects, and dangling references."""
    if schema is None:
        return
    if not isinstance(schema, dict):
        yield Flaw("schema", at, f"is {_name(schema)}, not an object")
        return
    queue: deque[tuple[Any, str]] = deque([(schema, at)])
    for _ in range(MAX_SCHEMA_NODES):
        if not queue:
            return
        node, place = queue.popleft()
        if isinstance(node, dict):
            yield from _node_flaws(node, place, schema)
            queue.extend(_children(node, place))
        elif not isinstance(node, bool):
            yield Flaw("schema", place, f"is {_name(node)}, not a schema")


def _children(node: dict[str, Any], at: str) -> Iterator[tuple[Any, str]]:
    for key in _SCHEMA_MAPS:
        if isinstance(node.get(key), dict):
            yield from ((child, f"{at}/{key}/{escaped(name)}") for name, child in node[key].items())
    for key in _SCHEMA_LISTS:
        if isinstance(node.get(key), list):
            yield from ((child, f"{at}/{key}/{number}") for number, child in enumerate(node[key]))
    for key in _SCHEMA_VALUES:
        if key in node and not (key == "items" and isinstance(node[key], list)):
            yield node[key], f"{at}/{key}"


def _node_flaws(node: dict[str, Any], at: str, root: dict[str, Any]) -> Iterator[Flaw]:
    yield from _type_flaws(node, at)
    required = node.get("required")
    names = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if "required" in node and not (names or isinstance(required, bool)):  # draft 3's boolean harms no grammar
        yield Flaw("schema", f"{at}/required", f"is {_name(required)}, not a list of names")
    for key in _SCHEMA_MAPS:
        if key in node and not isinstance(node[key], dict):
            yield Flaw("schema", f"{at}/{key}", f"is {_name(node[key])}, not an object")
    for key in (*_SCHEMA_LISTS, "enum"):
        if key in node and not isinstance(node[key], list):
            yield Flaw("schema", f"{at}/{key}", f"is {_name(node[key])}, not a list")
    if node.get("enum") == []:
        yield Flaw("schema", f"{at}/enum", "is empty, so nothing fits")
    yield from _value_flaws(node, at)
    yield from _pattern_flaws(node.get("pattern"), f"{at}/pattern")
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#") and not _resolves(reference, root):
        yield Flaw("schema", f"{at}/$ref", f"{reference[:80]} leads nowhere")


def _type_flaws(node: dict[str, Any], at: str) -> Iterator[Flaw]:
    if "type" not in node:
        return
    names = node["type"] if isinstance(node["type"], list) else [node["type"]]
    for name in names or [None]:
        if not isinstance(name, str) or name not in _TYPES:
            yield Flaw("schema", f"{at}/type", f"{str(name)[:40]!r} is no JSON Schema type")


def _value_flaws(node: dict[str, Any], at: str) -> Iterator[Flaw]:
    for low, high in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")):
        pair = (node.get(low), node.get(high))
        if all(isinstance(limit, int | float) for limit in pair) and pair[0] > pair[1]:  # type: ignore[operator]  # both are numbers
            yield Flaw("schema", f"{at}/{low}", f"is above {high}, so nothing fits")
    for key in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"):
        limit = node.get(key)
        if key in node and (isinstance(limit, bool) or not isinstance(limit, int | float) or limit < 0):
            yield Flaw("schema", f"{at}/{key}", "is not a count")
    for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
        if key in node and (isinstance(node[key], bool) or not isinstance(node[key], int | float)):
            yield Flaw("schema", f"{at}/{key}", f"is {_name(node[key])}, not a number")


def _pattern_flaws(pattern: Any, at: str) -> Iterator[Flaw]:
    if not isinstance(pattern, str):
        return
    if re.search(r"(?<!\\)(?:\\\\)*\\[1-9]", pattern):
        yield Flaw("schema", at, "has a back-reference, which no grammar can express")
        return
    try:
        re.compile(pattern)
    except re.error as error:
        if "\\p" not in pattern:  # a Unicode class, which ECMA 262 has and Python lacks
            yield Flaw("schema", at, f"is no regular expression ({error})")


def _resolves(reference: str, root: dict[str, Any]) -> bool:
    node: Any = root
    if not reference.startswith("#/"):
        return True
    for part in reference[2:].split("/"):
        name = unescaped(part)
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdigit() and int(name) < len(node):
            node = node[int(name)]
        else:
            return False
    return True
