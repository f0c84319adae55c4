"""Places in a body, and findings about them, whose values are bounded before they are kept."""

import json
from typing import Any

from gymtap.schemas import Finding, Severity

FOUND_MAX_CHARS = 120

type Path = tuple[str | int, ...]
"""A place in a JSON document: keys and indices from its root."""


def pointer(path: Path) -> str:
    """RFC 6901; `()` is the whole document."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def has(value: Any, part: str | int) -> bool:
    """Whether a value has something at that key or index."""
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def at(value: Any, path: Path) -> Any:
    """What stands at a place of a value that has it."""
    for part in path:
        value = value[part]
    return value


def clip(text: str) -> str:
    """A text, cut to what a finding may carry."""
    return text if len(text) <= FOUND_MAX_CHARS else text[: FOUND_MAX_CHARS - 1] + "…"


def short(value: Any) -> str:
    """A value as bounded JSON, for a finding."""
    return clip(json.dumps(value))


def finding(
    rule: str,
    severity: Severity,
    message: str,
    path: Path,
    *,
    found: Any = None,
    expected: str | None = None,
    fix: str | None = None,
) -> Finding:
    """A finding with its value bounded."""
    shown = None if found is None else short(found)
    return Finding(
        rule=rule, severity=severity, message=message, pointer=pointer(path), expected=expected, found=shown, fix=fix
    )
