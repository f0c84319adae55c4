"""Compares a failed row with a sibling that passed (same task and agent, other rollout): the first difference.

Identities, ids, times and cookies differ in every row and are not looked at.
"""

import re
from typing import Any

from gymtap.proxy.diagnose.evidence import Material, Seen

_OWN = re.compile(
    r"^_ng_|^(?:id|created|created_at|call_id|tool_call_id|request_id|session_id|system_fingerprint|seed)$"
)
_MOST_COMPARED = 20_000


def first_difference(failed: Material, passed: Material) -> str | None:
    """Where the failed row first went another way than the passed one; None when they agree as far as both go."""
    for one, other in zip(failed.exchanges, passed.exchanges, strict=False):
        found = _exchange_difference(one, other)
        if found is not None:
            return found
    shorter, longer = len(failed.exchanges), len(passed.exchanges)
    if shorter < longer:
        missing = passed.exchanges[shorter]
        return f"the sibling went on to {missing.boundary} {missing.path} ({missing.id})"
    return f"{failed.exchanges[longer].id} has no counterpart in the sibling" if shorter > longer else None


def _exchange_difference(one: Seen, other: Seen) -> str | None:
    if (one.boundary, one.path) != (other.boundary, other.path):
        return f"{one.id} is {one.boundary} {one.path}, the sibling's {other.id} is {other.boundary} {other.path}"
    if one.call.value == "run":
        return None  # outer calls differ by what happened within
    place = _difference(one.request_json, other.request_json)
    if place is not None:
        return f"the request {one.id} ({one.boundary} {one.path}) differs from the sibling's {other.id} at {place}"
    if one.status != other.status:
        name = f"{one.id} ({one.boundary} {one.path})"
        return f"{name} ended with {_ended(one)}, the sibling's {other.id} with {_ended(other)}"
    if one.call.value in {"tool", "seed_session", "provider"}:
        place = _difference(one.response_json, other.response_json)
        if place is not None:
            return (
                f"the answer of {one.id} ({one.boundary} {one.path}) differs from the sibling's {other.id} at {place}"
            )
    return None


def _ended(exchange: Seen) -> str:
    return str(exchange.status or exchange.error or "no answer")


def _difference(one: Any, other: Any) -> str | None:
    """The JSON pointer of the first difference, breadth first; None when there is none that counts."""
    queue: list[tuple[Any, Any, str]] = [(one, other, "")]
    for number, (left, right, place) in enumerate(queue):
        if number > _MOST_COMPARED:
            return None
        if isinstance(left, dict) and isinstance(right, dict):
            names = [name for name in {**left, **right} if not _OWN.search(name)]
            queue += [(left.get(name), right.get(name), f"{place}/{name}") for name in names]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return f"{place or '/'} ({len(left)} items, {len(right)} in the sibling)"
            queue += [(a, b, f"{place}/{index}") for index, (a, b) in enumerate(zip(left, right, strict=True))]
        elif left != right:
            return place or "/"
    return None
