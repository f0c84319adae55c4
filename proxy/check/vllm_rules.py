"""What vLLM does with a schema before an engine sees it, for each path and backend, as of vLLM 0.32.0.

Reimplemented from the behaviour of 0.32.0 (`sampling_params`, `backend_xgrammar`, `backend_guidance`,
`backend_outlines`, `tool_parsers`), bugs included: the point is its answer, not a better one.
"""

import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

RULES_VERSION = "0.32"
"""The release whose rules these are."""

_OLDER = "compiles with xgrammar {}, llguidance {}, outlines-core {}; what it does before them is not known here"
OTHER_RELEASES: Mapping[str, str] = {
    "0.33": (
        "runs the same engines in the same versions, with the same checks before them; only a server that is pinned to "
        "outlines differs: it refuses strict tools with a 400, not a 500 (its source was read, it was not run)"
    ),
    "0.31": (
        "runs xgrammar 0.2.7, sets no limit to nesting, lets xgrammar have an allOf of several branches, and keeps "
        "from it propertyNames beside a schema for additionalProperties (its source was read, it was not run)"
    ),
    "0.12": _OLDER.format("0.1.27", "1.3.0", "0.2.11"),
    "0.11": _OLDER.format("0.1.25", "1.3.0", "0.2.11"),
    "0.10": _OLDER.format("0.1.23", "0.7.30", "0.2.11"),
}
"""What is certain of releases whose rules are not these: from the source of 0.33.0 and 0.31.0, and from what 0.12.0,
0.11.2 and 0.10.2 require."""


def about_release(wanted: str) -> str | None:
    """What to know of a release before its verdicts are taken from these rules; None where they are its own."""
    release = ".".join(wanted.split(".")[:2])
    if release == RULES_VERSION:
        return None
    known = OTHER_RELEASES.get(release)
    return f"vLLM {wanted} {known}" if known else f"where vLLM {wanted} differs is not known here"


SCHEMA_MAX_LEVELS = 64
TAG_MAX_LEVELS = 80
"""Levels that objects and arrays may nest in a plain schema, and in a whole structural tag."""

_FORMATS = frozenset(
    {
        "email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid",
        "uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer",
    }
)  # fmt: skip


class Route(StrEnum):
    """The ways by which a schema reaches a grammar engine."""

    STRICT_TOOL = "strict_tool"  # strict: true on a parser with structural tags (hermes, qwen, llama, deepseek, ...)
    REQUIRED_JSON = "required_json"  # tool_choice required or named, on a parser without them or with enforcement off
    RESPONSE_FORMAT = "response_format"  # response_format (Chat) or text.format (Responses)


class Backend(StrEnum):
    """`--structured-outputs-config.backend`; `auto` is the default."""

    AUTO = "auto"
    XGRAMMAR = "xgrammar"
    GUIDANCE = "guidance"
    OUTLINES = "outlines"


def levels_exceed(document: Any, limit: int) -> bool:
    """Whether objects and arrays nest more than `limit` levels deep; the document itself is the first."""
    level = [document]
    for _ in range(limit):
        level = [child for node in level for child in _containers(node)]
        if not level:
            return False
    return True


def beyond_64_bits(document: Any) -> bool:
    """Whether an integer does not fit 64 bits: msgpack, by which a plain schema travels to the engine, refuses it."""
    if isinstance(document, int):
        return not -(2**63) <= document < 2**64
    children = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return any(beyond_64_bits(child) for child in children)


def _containers(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return [value for value in node.values() if isinstance(value, dict | list)]
    return [value for value in node if isinstance(value, dict | list)] if isinstance(node, list) else []


def structural_tag(tools: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The tag of the hermes family for `(name, parameters)` pairs; other families wrap the same schemas."""
    tags = [
        {
            "type": "tag",
            "begin": f'{begin}{name}", "arguments": ',
            "content": {
                "type": "json_schema",
                "json_schema": True if parameters is None else _finite(parameters),
                "style": "json",
                "any_order": False,
                "max_whitespace_cnt": None,
                "excludes": [],
            },
            "end": end,
        }
        for name, parameters in tools
        for begin, end in (
            ('<tool_call>\n{"name": "', "}\n</tool_call>"),
            ('<tool_call>{"name": "', "}</tool_call>"),
        )
    ]
    wanted = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": tags}
    flags = {"at_least_one": False, "stop_after_first": False, "excludes": []}
    return {"type": "structural_tag", "format": {**wanted, **flags}}


def _finite(value: Any) -> Any:
    """A number that is not finite as None, as pydantic dumps it when vLLM hands a tool on."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    return [_finite(child) for child in value] if isinstance(value, list) else value


class DefinitionsClashError(ValueError):
    """`$defs` that vLLM refuses to merge; the text is its own."""


def required_schema(tools: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """One schema for a list of calls to any of `(name, parameters)`, as `tool_choice: required` compiles it.

    `$defs` move to the root, `definitions` do not. Raises DefinitionsClashError.
    """
    branches = []
    definitions: dict[str, Any] = {}
    for name, parameters in tools:
        inner = dict(parameters) if parameters else {"type": "object", "properties": {}}
        _merge(definitions, name, inner.pop("$defs", {}))
        branches.append(
            {
                "properties": {"name": {"type": "string", "enum": [name]}, "parameters": inner},
                "required": ["name", "parameters"],
            }
        )
    schema = {"type": "array", "minItems": 1, "items": {"type": "object", "anyOf": branches}}
    return {**schema, "$defs": definitions} if definitions else schema


def _merge(definitions: dict[str, Any], tool: str, more: Any) -> None:
    if not isinstance(more, dict):
        kind = type(more).__name__
        raise DefinitionsClashError(f"`$defs` in the parameters of tool '{tool}' must be an object, got {kind}.")
    for name, schema in more.items():
        if name in definitions and definitions[name] != schema:
            raise DefinitionsClashError(f"Tool definition '{name}' has multiple schemas, which is not supported.")
        definitions[name] = schema


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    return frozenset(item for item in kind if isinstance(item, str)) if isinstance(kind, list) else frozenset()


def _bounded_pattern(schema: Mapping[str, Any]) -> bool:
    return ("pattern" in schema or "format" in schema) and ("minLength" in schema or "maxLength" in schema)


def _number(schema: Mapping[str, Any]) -> str | None:
    return "multipleOf" if "multipleOf" in schema else None


def _array(schema: Mapping[str, Any]) -> str | None:
    return next((key for key in ("uniqueItems", "contains", "minContains", "maxContains") if key in schema), None)


def _string(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("format")
    if "format" in schema and (not isinstance(kind, str) or kind not in _FORMATS):
        return "format"
    if _bounded_pattern(schema):
        return "pattern" if "pattern" in schema else "format"
    return None


def _object(schema: Mapping[str, Any]) -> str | None:
    if "propertyNames" in schema:
        names = schema["propertyNames"]
        bounded = isinstance(names, dict) and _bounded_pattern(names)
        beside = "patternProperties" in schema or "properties" in schema
        if bounded or beside or schema.get("unevaluatedProperties", True) is not True:
            return "propertyNames"
    patterns = schema.get("patternProperties")
    if isinstance(patterns, dict) and ("properties" in schema or len(patterns) > 1):
        return "patternProperties"
    return None


_BY_TYPE: tuple[tuple[frozenset[str], Callable[[Mapping[str, Any]], str | None]], ...] = (
    (frozenset({"integer", "number"}), _number),
    (frozenset({"array"}), _array),
    (frozenset({"string"}), _string),
    (frozenset({"object"}), _object),
)


def turned_down_keyword(schema: Any) -> str | None:
    """The first keyword for which vLLM does not even offer the schema to xgrammar; None when it does.

    It looks below every key, so a property *named* `format` beside `type: string` counts as the keyword,
    and lists are entered one level only: both are 0.32's ways.
    """
    return next((found for node in _dicts(schema) if (found := _turned_down(node))), None)


def _turned_down(schema: Mapping[str, Any]) -> str | None:
    kinds = _types(schema)
    for wanted, rule in _BY_TYPE:
        if kinds & wanted and (found := rule(schema)):
            return found
    branches = schema.get("allOf")
    return "allOf" if isinstance(branches, list) and len(branches) > 1 else None


def _dicts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every dict that vLLM's walk meets: values of dicts, and members of lists that are values of dicts."""
    if not isinstance(schema, dict):
        return
    yield schema
    for value in schema.values():
        for child in value if isinstance(value, list) else (value,):
            yield from _dicts(child)


def prefers_outlines(schema: Any) -> bool:
    """Whether `auto` falls back to outlines, not guidance: `patternProperties` occurs anywhere."""
    return any("patternProperties" in node for node in _dicts(schema))


def regex_refusal(regex: str) -> str | None:
    """Why vLLM refuses the regex that outlines made of a schema; None when it takes it.

    Python's own parser decides, as in vLLM: syntax, backreferences, look-around, word boundaries, and
    anchors before anything is consumed. Raises OverflowError or RecursionError where the parser does: vLLM
    does not expect them, and answers 500.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parser warns about sets that may change meaning some day
        try:
            parsed = re._parser.parse(regex)  # type: ignore[attr-defined]  # noqa: SLF001  # what vLLM itself asks
        except re.error as error:
            return f"Error parsing regex: {error}"
    if found := _unsupported(parsed):
        return f"Regex uses unsupported feature for structured outputs: {found}"
    return "Regex does not have a anchored universal start state" if _needs_context(parsed) else None


def _name(token: Any) -> str:
    return str(token)


def _subpatterns(value: Any) -> list[Any]:
    members = value if isinstance(value, tuple) else (value,)
    return [member for member in members if type(member).__name__ == "SubPattern"]


def _unsupported(parsed: Any) -> str | None:
    for token, value in parsed.data:
        if _name(token) in {"GROUPREF", "GROUPREF_EXISTS"}:
            return "Backreferences are unsupported."
        if _name(token) in {"ASSERT", "ASSERT_NOT"}:
            return "Look-Around assertion are unsupported."
        if _name(token) == "AT" and _name(value) in {"AT_BOUNDARY", "AT_NON_BOUNDARY"}:
            return "Unicode word boundaries are unsupported."
        inner = value[1] if _name(token) == "BRANCH" else _subpatterns(value)
        if found := next((why for part in inner if (why := _unsupported(part))), None):
            return found
    return None


_CONSUMERS = {"LITERAL", "IN", "ANY"}


def _consumes(parsed: Any) -> bool:
    for token, value in parsed.data:
        name = _name(token)
        if name in _CONSUMERS:
            return True
        if name == "MAX_REPEAT" and value[1] != 0 and _consumes(value[2]):
            return True
        if name == "BRANCH" and any(_consumes(branch) for branch in value[1]):
            return True
        if name == "SUBPATTERN" and _consumes(value[3]):
            return True
    return False


def _needs_context(parsed: Any) -> bool:
    for token, value in parsed.data:
        name = _name(token)
        if name in {"AT", "ASSERT", "ASSERT_NOT"}:
            return True
        if name in _CONSUMERS:
            return False
        inner = {"SUBPATTERN": 3, "MAX_REPEAT": 2}.get(name)
        branches = value[1] if name == "BRANCH" else [] if inner is None else [value[inner]]
        if any(_needs_context(branch) for branch in branches):
            return True
        if any(_consumes(branch) for branch in branches):
            return False
    return False


def dumps(document: Any) -> str:
    """JSON as vLLM hands it to an engine: Python's own, non-ASCII escaped, NaN as a bare word."""
    return json.dumps(document)
