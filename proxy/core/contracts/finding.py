"""Findings about a place in a body, whose values are bounded before they are kept."""

import json
from typing import Any

from gymtap.proxy.core.pointer import Path, pointer
from gymtap.schemas import Finding, Severity

FOUND_MAX_CHARS = 120


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
