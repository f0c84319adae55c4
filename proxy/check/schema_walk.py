"""Where the subschemas of a JSON Schema are, and which keyword a place in one belongs to.

A property may be named like a keyword, so nothing here looks at names alone: a name counts as a keyword
only where a schema stands.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from gymtap.proxy.core.pointer import Path

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SINGLE = frozenset(
    {
        "items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains",
        "propertyNames", "unevaluatedProperties", "unevaluatedItems", "contentSchema",
    }
)  # fmt: skip
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})


def subschemas(schema: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every subschema that is an object, the root first, with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            for name, child in value.items():
                yield from subschemas(child, (*path, key, name))
        elif key in _LISTS and isinstance(value, list):
            for index, child in enumerate(value):
                yield from subschemas(child, (*path, key, index))
        elif key in _SINGLE:
            yield from subschemas(value, (*path, key))


def is_schema_place(path: Path) -> bool:
    """Whether a subschema is expected at this path."""
    return _walk(path).place


def is_keyword(path: Path) -> bool:
    """Whether the path ends in a keyword of a schema."""
    return bool(path) and _walk(path).end == len(path)


def keyword_at(path: Path) -> str | None:
    """The schema keyword that a place belongs to; None for the root."""
    return _walk(path).keyword


def keyword_path(path: Path) -> Path:
    """The path, cut behind its last keyword unless a schema is expected at its end (`/required/1` is `/required`)."""
    walked = _walk(path)
    return path if walked.place else path[: walked.end]


class _Walked(NamedTuple):
    keyword: str | None
    end: int  # of the keyword in the path
    place: bool


def _walk(path: Path) -> _Walked:
    """What each part of a path is: a keyword, a name or an index below one, or something inside its value."""
    walked = _Walked(None, 0, place=True)
    below = ""  # the keyword whose value we are in; "" where a schema stands
    for end, part in enumerate(path, 1):
        if below and not _leads_to_schema(below, part):
            return _Walked(walked.keyword, walked.end, place=False)
        if below and (below in _MAPS or isinstance(part, int)):
            walked, below = _Walked(walked.keyword, walked.end, place=True), ""
        else:
            below = str(part)
            walked = _Walked(below, end, place=below in _SINGLE)
    return walked


def _leads_to_schema(keyword: str, part: str | int) -> bool:
    """Whether a part below a keyword's value is, or is in, a schema."""
    if isinstance(part, int):
        return keyword in _LISTS
    return keyword in _MAPS or keyword in _SINGLE
