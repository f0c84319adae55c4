"""What a grammar accepts but does not enforce: the schema compiles, and the model may still break it.

Each entry was tried against xgrammar 0.2.8 with a document that breaks only that keyword. They are notes:
nothing fails, but a reward that counts on them will see documents that the schema forbids.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gymtap.proxy.check.schema_walk import subschemas
from gymtap.proxy.core.pointer import Path

_IGNORED = ("uniqueItems", "contains", "not", "if", "dependentRequired", "dependentSchemas")
_BESIDE_REF = ("$ref", "anyOf", "oneOf", "enum", "const")
_LOOSE = frozenset(
    {"title", "description", "default", "examples", "$defs", "definitions", "type", "$comment", "$schema"}
)
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_JSON_TYPES: Mapping[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"
}  # fmt: skip


def not_enforced(schema: Any) -> Iterator[tuple[Path, str, str]]:
    """`(path, keyword, what happens instead)` for each place that vLLM's xgrammar lets a document break."""
    for path, node in subschemas(schema):
        for keyword, instead in _of(node):
            yield (*path, keyword), keyword, instead


def _of(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for keyword in _IGNORED:
        if keyword in node and node[keyword] is not False:
            yield keyword, "is ignored"
    if isinstance(node.get("oneOf"), list) and len(node["oneOf"]) > 1:
        yield "oneOf", "is read as anyOf"
    if isinstance(node.get("allOf"), list) and len(node["allOf"]) > 1:
        yield "allOf", "with several branches accepts any JSON"
    yield from _strings(node)
    yield from _values(node)


def _strings(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pattern = node.get("pattern")
    bound = next((key for key in ("minLength", "maxLength") if key in node), None)
    if isinstance(pattern, str) and _LOOK_AROUND.search(pattern):
        yield "pattern", "loses its look-around"
    if bound and ("pattern" in node or "format" in node):
        yield bound, "is ignored beside " + ("pattern" if "pattern" in node else "format")


def _values(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    reference = next((key for key in _BESIDE_REF if key in node), None)
    beside = [key for key in node if key not in _LOOSE and key not in _BESIDE_REF]
    if reference and "properties" not in node:
        for keyword in beside:
            if keyword in _ASSERTIONS:
                yield keyword, f"is ignored beside {reference}"
    if _mistyped(node):
        yield "enum", "wins over type: values of another type are what the model must write"
    properties, required = node.get("properties"), node.get("required")
    if isinstance(properties, dict) and isinstance(required, list) and node.get("additionalProperties") is False:
        unknown = [name for name in required if isinstance(name, str) and name not in properties]
        if unknown:
            yield "required", f"cannot be met: {', '.join(unknown)} is no property, and others are forbidden"


_ASSERTIONS = frozenset({"minLength", "maxLength", "pattern", "minimum", "maximum", "minItems", "maxItems", "format"})


def _mistyped(node: Mapping[str, Any]) -> bool:
    values, kind = node.get("enum"), node.get("type")
    kinds = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) and kind else None
    if not isinstance(values, list) or kinds is None or not all(isinstance(name, str) for name in kinds):
        return False
    numbers = {"integer"} if "number" in kinds else set()
    return any(_JSON_TYPES[type(value)] not in kinds | numbers for value in values)
