"""The structural rules for the tools of a request, and the rows that speak of them, before any grammar is asked.

Severities are what Gym 0.7 and vLLM 0.32 do, not what a style guide would like: an error means that a server
refuses the request or that the verifier cannot score it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import orjson

from gymtap.proxy.core.contracts.finding import clip, finding, short
from gymtap.proxy.core.pointer import Path
from gymtap.schemas import Finding, Severity

PARAMS = "responses_create_params"

HOSTED_TYPES = frozenset(
    {
        "file_search", "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11",
        "computer", "computer_use_preview", "mcp", "code_interpreter", "image_generation", "local_shell", "shell",
        "custom", "apply_patch", "namespace", "tool_search",
    }
)  # fmt: skip
"""Tool types of the Responses API that are not functions; Gym's vllm_model converts none of them to Chat."""

_FUNCTION_FIELDS = frozenset({"type", "name", "description", "parameters", "strict", "defer_loading"})
_FOREIGN = {"inputSchema": "the Model Context Protocol", "input_schema": "Anthropic's Messages"}
"""Where other formats have what is `parameters` here."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MODES = ("text", "tool_call")


def check_tools(row: Mapping[str, Any]) -> list[Finding]:
    """All structural findings of a row (or a bare request, when it has no `responses_create_params`).

    Pointers are into the row. A row without tools yields findings only where something asks for a tool.
    """
    params, at = params_of(row)
    if params is None:
        return []
    tools = params.get("tools")
    if tools is not None and not isinstance(tools, list):
        return [
            finding(
                "tools.not_a_list",
                Severity.ERROR,
                "tools is not a list",
                (*at, "tools"),
                found=tools,
                expected="a list",
            )
        ]
    is_chat = "messages" in params and "input" not in params
    look = _chat_tool if is_chat else _tool
    found = [problem for index, tool in enumerate(tools or ()) for problem in look(tool, (*at, "tools", index))]
    return [*found, *_duplicates(tools or (), at), *_choice(params, tools or (), at), *_row_fields(row, tools or ())]


def params_of(row: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Path]:
    """The part of a row that goes to the model, and where it is; a request body is its own."""
    params = row.get(PARAMS)
    if isinstance(params, dict):
        return params, (PARAMS,)
    return (None, ()) if PARAMS in row else (row, ())


def parameters_of(tool: Any) -> tuple[str, Any, Path]:
    """A function tool's name, parameters and where these are, in either dialect; the path is empty for other tools."""
    if not isinstance(tool, dict) or tool.get("type", "function") != "function":
        return "", None, ()
    inner = tool.get("function") if "name" not in tool else None
    function, at = (inner, ("function", "parameters")) if isinstance(inner, dict) else (tool, ("parameters",))
    name = function.get("name")
    if foreign := _foreign(function):
        return (name if isinstance(name, str) else ""), function[foreign], (foreign,)
    return (name if isinstance(name, str) else ""), function.get("parameters"), at


def _foreign(tool: Mapping[str, Any]) -> str | None:
    """The field in which a tool of another format has its parameters."""
    return next((key for key in _FOREIGN if isinstance(tool.get(key), dict) and "parameters" not in tool), None)


def is_strict(tool: Any) -> bool:
    """Whether vLLM compiles this tool's parameters: only `strict: true` makes it."""
    inner = tool.get("function") if isinstance(tool, dict) and "name" not in tool else tool
    return isinstance(inner, dict) and inner.get("strict") is True


def _tool(tool: Any, at: Path) -> Iterator[Finding]:
    if not isinstance(tool, dict):
        yield finding("tools.not_an_object", Severity.ERROR, "a tool is not an object", at, found=tool)
        return
    kind = tool.get("type")
    if (foreign := _foreign(tool)) and kind in (None, "function", "custom"):
        yield from _foreign_style(tool, foreign, at)
        return
    if not isinstance(kind, str):
        yield finding(
            "tools.type",
            Severity.ERROR,
            "a tool has no type",
            (*at, "type"),
            expected='"function"',
            fix='Add "type": "function".',
        )
    elif kind != "function":
        yield _other_type(kind, at)
        return
    if "name" not in tool and isinstance(tool.get("function"), dict):
        yield from _chat_style(tool, at)
    else:
        yield from _function(tool, at)


def _chat_tool(tool: Any, at: Path) -> Iterator[Finding]:
    """A tool of a Chat Completions request, where the nesting is right."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        message = "a tool of a Chat Completions request has no function"
        yield finding("tools.responses_style", Severity.ERROR, message, (*at, "function"), found=tool)
        return
    yield from _named(function, (*at, "function"))
    yield from _parameters(function, (*at, "function"))


def _other_type(kind: str, at: Path) -> Finding:
    if kind in HOSTED_TYPES:
        message = f"a hosted tool ({kind}) is not passed on by Gym's vllm_model"
        return finding("tools.hosted", Severity.NOTE, message, (*at, "type"), found=kind)
    message = f"{kind!r} is no type of tool that Gym 0.7 knows"
    return finding("tools.type", Severity.WARNING, message, (*at, "type"), found=kind, expected='"function"')


def _chat_style(tool: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    which = f"tools[{at[-1]}]"
    yield finding(
        "tools.chat_style",
        Severity.ERROR,
        f"{which} is in the Chat Completions shape: {which}.function.name is there, and name is missing",
        (*at, "function"),
        found=tool["function"],
        expected="name, parameters and strict beside type",
        fix="Move what is in function one level up.",
    )
    yield from _parameters(tool["function"], (*at, "function"))


def _foreign_style(tool: Mapping[str, Any], key: str, at: Path) -> Iterator[Finding]:
    which = f"tools[{at[-1]}]"
    yield finding(
        "tools.foreign_style",
        Severity.ERROR,
        f"{which} is in the shape of {_FOREIGN[key]}: {key} is there, and parameters is missing",
        (*at, key),
        expected="type, name, parameters and strict",
        fix=f'Rename {key} to parameters, and add "type": "function" and "strict".',
    )
    yield from _named(tool, at)
    yield from _schema(tool[key], (*at, key))


def _named(function: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    name = function.get("name")
    if not isinstance(name, str) or not name:
        yield finding("tools.name", Severity.ERROR, "a function tool has no name", (*at, "name"), found=name)
    elif not _NAME.fullmatch(name):
        message = f"the name {short(name)} is refused by OpenAI (vLLM takes it)"
        yield finding(
            "tools.name", Severity.WARNING, message, (*at, "name"), found=name, expected="1 to 64 of a-z A-Z 0-9 _ -"
        )


def _function(tool: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    yield from _named(tool, at)
    if missing := [key for key in ("strict", "parameters") if key not in tool]:
        message = f"Gym 0.7's /run answers 422 to a function tool without {' and '.join(missing)}"
        fix = "Add " + " and ".join(f'"{key}": {"false" if key == "strict" else "null"}' for key in missing) + "."
        yield finding("tools.field_missing", Severity.WARNING, message, (*at, missing[0]), fix=fix)
    if extra := sorted(set(tool) - _FUNCTION_FIELDS):
        message = f"Gym 0.7's /run answers 422 to a function tool with {', '.join(map(repr, extra))}"
        yield finding("tools.unknown_field", Severity.WARNING, message, (*at, extra[0]), found=tool[extra[0]])
    yield from _parameters(tool, at)


def _parameters(function: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        yield finding(
            "tools.parameters", Severity.ERROR, "parameters is not an object", (*at, "parameters"), found=parameters
        )
        return
    yield from _schema(parameters, (*at, "parameters"))


def _schema(parameters: Any, at: Path) -> Iterator[Finding]:
    if problem := invalid_schema(parameters):
        where = (*at, *problem.instance_path)
        message = f"not valid JSON Schema: {clip(problem.message)} (an engine may take it, or read it otherwise)"
        yield finding("tools.schema_invalid", Severity.WARNING, message, where)


def invalid_schema(schema: Any) -> jsonschema_rs.ValidationError | None:
    """What JSON Schema's own metaschema (draft 2020-12, unless `$schema` names another) finds wrong first."""
    if not isinstance(schema, dict):
        return None
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as problem:
        return problem
    except (ValueError, jsonschema_rs.ReferencingError):  # a `$schema` that is unknown, or a value it cannot carry
        return None
    return None


def _duplicates(tools: Any, at: Path) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for index, tool in enumerate(tools):
        name = parameters_of(tool)[0]
        if name and name in seen:
            message = f"tools[{seen[name]}] and tools[{index}] share the name {name!r}"
            fix = f"Rename one of tools[{seen[name]}] and tools[{index}]."
            yield finding(
                "tools.duplicate_name", Severity.ERROR, message, (*at, "tools", index, "name"), found=name, fix=fix
            )
        seen.setdefault(name, index)


def _choice(params: Mapping[str, Any], tools: Any, at: Path) -> Iterator[Finding]:
    choice = params.get("tool_choice")
    names = [parameters_of(tool)[0] for tool in tools]
    where = (*at, "tool_choice")
    if choice in ("required", "auto") or (choice is None and "tool_choice" not in params):
        if choice == "required" and not tools:
            yield finding("tools.none_to_require", Severity.ERROR, "a tool is required, and there is none", where)
        return
    if isinstance(choice, str) and choice != "none":
        yield finding(
            "tools.choice", Severity.ERROR, f"{choice!r} is no tool_choice", where, found=choice,
            expected="none, auto, required, or a tool",
        )  # fmt: skip
    if isinstance(choice, dict):
        inner = choice.get("function")
        name = choice.get("name", inner.get("name") if isinstance(inner, dict) else None)
        if isinstance(name, str) and choice.get("type") == "function" and name not in names:
            message = f"tool_choice names {name!r}, which is not among the tools"
            yield finding(
                "tools.target_missing", Severity.ERROR, message, where, found=choice, expected=clip(", ".join(names))
            )


def _row_fields(row: Mapping[str, Any], tools: Any) -> Iterator[Finding]:
    """The rules for rows that expect a tool call (Gym's structured_outputs resources server)."""
    if PARAMS not in row:
        return
    mode = row.get("response_mode")
    if mode is not None and mode not in _MODES:
        message = f"response_mode {short(mode)} is neither text nor tool_call"
        yield finding("rows.response_mode", Severity.WARNING, message, ("response_mode",), found=mode)
    if mode == "tool_call" and not tools:
        message = "response_mode is tool_call, and the row has no tools"
        yield finding("rows.response_mode", Severity.ERROR, message, ("response_mode",), found=mode)
    yield from _expected_tool(row, tools, required=mode == "tool_call")
    yield from _schema_str(row)
    count = row.get("num_tools")
    if isinstance(count, int) and not isinstance(count, bool) and count != len(tools):
        message = f"num_tools is {count}, and the row has {len(tools)} tools"
        yield finding(
            "rows.num_tools", Severity.WARNING, message, ("num_tools",), found=count, expected=str(len(tools))
        )


def _expected_tool(row: Mapping[str, Any], tools: Any, *, required: bool) -> Iterator[Finding]:
    wanted = row.get("tool_name")
    if not isinstance(wanted, str) or not (tools or required):
        return
    target = next((tool for tool in tools if parameters_of(tool)[0] == wanted), None)
    if target is None:
        severity = Severity.ERROR if required else Severity.WARNING
        message = f"the row expects a call of {wanted!r}, which is not among its tools"
        yield finding("tools.target_missing", severity, message, ("tool_name",), found=wanted)
        return
    key = row.get("tool_payload_key")
    if isinstance(key, str) and not _names_property(parameters_of(target)[1], key):
        message = f"tool_payload_key {key!r} is no property of the parameters of {wanted!r}"
        yield finding("rows.tool_payload_key", Severity.WARNING, message, ("tool_payload_key",), found=key)


def _names_property(schema: Any, key: str) -> bool:
    if isinstance(schema, list):
        return any(_names_property(child, key) for child in schema)
    if not isinstance(schema, dict):
        return False
    properties = schema.get("properties")
    here = isinstance(properties, dict) and key in properties
    return here or any(_names_property(child, key) for child in schema.values())


def _schema_str(row: Mapping[str, Any]) -> Iterator[Finding]:
    if "schema_str" not in row:
        return
    text, at = row["schema_str"], ("schema_str",)
    try:
        schema = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError as error:
        message = f"schema_str is not JSON ({error}): the verifier cannot read it"
        yield finding("rows.schema_str", Severity.ERROR, message, at, found=text, expected="a JSON Schema, as a string")
        return
    if not isinstance(text, str):
        message = "schema_str is not a string"
        yield finding("rows.schema_str", Severity.ERROR, message, at, found=text, expected="a JSON Schema, as a string")
    if problem := invalid_schema(schema):
        message = f"schema_str is not valid JSON Schema: {clip(problem.message)}"
        yield finding("rows.schema_str", Severity.WARNING, message, at)
