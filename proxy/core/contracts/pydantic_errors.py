"""pydantic's errors as findings: a JSON pointer instead of a `loc`, one branch of a union instead of all.

A `loc` mixes keys with the names of union branches. What is a key is found by walking the value itself; of a
union's branches the one that came closest is kept, which is the one that does not object to the type tag.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gymtap.proxy.core.contracts.finding import finding
from gymtap.proxy.core.pointer import Path, at, has
from gymtap.schemas import Finding, Severity

MAX_FINDINGS = 20

type Loc = tuple[str | int, ...]


def path_of(loc: Sequence[str | int], value: Any, *, missing: bool = False) -> Path:
    """The part of a `loc` that is a place in the value; `missing` keeps its last key, which is not there."""
    path: list[str | int] = []
    node = value
    for part in loc[: len(loc) - missing]:
        if has(node, part):
            node = node[part]
            path.append(part)
    return (*path, loc[-1]) if missing and loc else tuple(path)


def findings_of(errors: Sequence[Mapping[str, Any]], value: Any, rule: str, source: str) -> list[Finding]:
    """One finding per place, at most MAX_FINDINGS. `source` names the model that spoke."""
    found: dict[Path, Finding] = {}
    for error in _closest(errors, value):
        missing = error["type"] == "missing"
        path = path_of(error["loc"], value, missing=missing)
        there = None if missing else at(value, path)
        message = f"{source}: {error['msg']}"
        found.setdefault(path, finding(rule, Severity.ERROR, message, path, found=there, expected=_expected(error)))
    return list(found.values())[:MAX_FINDINGS]


def _expected(error: Mapping[str, Any]) -> str | None:
    if error["type"] == "missing":
        return "a value"
    wanted = re.match(r"Input should be ([^,;]+)", error["msg"])
    return wanted[1] if wanted else None


def _closest(errors: Sequence[Mapping[str, Any]], value: Any) -> list[Mapping[str, Any]]:
    """Of the errors inside a union, those of its closest branch; all others as they are."""
    by_site: dict[Loc, dict[str | int, list[Mapping[str, Any]]]] = {}
    plain: list[Mapping[str, Any]] = []
    for error in errors:
        site = _union_site(error, value)
        if site is None:
            plain.append(error)
        else:
            by_site.setdefault(site, {}).setdefault(error["loc"][len(site)], []).append(error)
    for site, branches in by_site.items():
        best = min(branches.values(), key=lambda branch: _distance(branch, site, value))
        plain += _closest([_inside(error, site) for error in best], value)
    return plain


def _inside(error: Mapping[str, Any], site: Loc) -> Mapping[str, Any]:
    """The error with the branch's name taken out of its `loc`, so that unions further in are seen."""
    loc = tuple(error["loc"])
    return {**error, "loc": loc[: len(site)] + loc[len(site) + 1 :]}


def _union_site(error: Mapping[str, Any], value: Any) -> Loc | None:
    """The part of a `loc` before its first union branch; None when it has none."""
    node, loc = value, tuple(error["loc"])
    for index, part in enumerate(loc):
        if has(node, part):
            node = node[part]
        else:
            is_missing_key = index == len(loc) - 1 and error["type"] == "missing"
            return None if is_missing_key else loc[:index]
    return None


def _distance(branch: Sequence[Mapping[str, Any]], site: Loc, value: Any) -> tuple[bool, bool, int]:
    """How far a branch is off: its tag refused, or the whole of it of another kind, then by the number of errors."""
    tag = any(tuple(error["loc"][len(site) + 1 :]) in (("type",), ("role",)) for error in branch)
    flat = any(
        len(path_of(error["loc"], value)) <= len(path_of(site, value)) and error["type"] != "missing"
        for error in branch
    )
    return tag, flat, len(branch)
