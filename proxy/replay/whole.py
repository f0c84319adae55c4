"""Says whether a recorded request can be sent as it was: what redaction or a full tape took from it.

Only what matters stops a replay. Credentials in headers are replaced, cookies come from fresh answers; a
placeholder inside a body would be sent as if it were data, so each one is named by its place.
"""

from collections.abc import Iterator
from typing import Any

from gymtap.proxy.core.pointer import pointer
from gymtap.proxy.core.redaction import PLACEHOLDER
from gymtap.proxy.replay.compare import parse
from gymtap.proxy.replay.plan import Step

_NAMED_MAX = 5


def credential_headers(step: Step) -> list[str]:
    """The header fields whose value was a credential, and was redacted."""
    return [name for name, value in step.headers if PLACEHOLDER in value]


def obstacles(step: Step) -> list[str]:
    """What keeps a step from being sent as it was, each in one line that names the part; empty when nothing does."""
    name, request = step.original.exchange.id, step.original.exchange.request
    found = []
    if PLACEHOLDER in request.target:
        found.append(f"{name}: the request target has a redacted part: {request.target}")
    found += [f"{name}: {place} was redacted" for place in redacted_places(step.body)]
    edited = step.body != step.original.request_body
    if request.body is not None and request.body.missing_bytes and not edited:
        kept = request.body.size_bytes - request.body.missing_bytes
        found.append(f"{name}: the request body was not kept whole: {kept:,} of {request.body.size_bytes:,} bytes")
    return found


def lost_cookies(step: Step) -> list[str]:
    """The cookies of a step that goes without any: they were redacted, and no earlier step gets new ones.

    A caller sends the cookies of several servers to each of them; the callee's own is the one that counts, and
    where a session was opened for it, the others are not missed.
    """
    lost = [cookie.name for cookie in step.cookies if cookie.source is None and PLACEHOLDER in cookie.recorded]
    return lost if len(lost) == len(step.cookies) else []


def redacted_places(body: bytes | None) -> list[str]:
    """JSON pointers of a body's redacted values, at most a few of them; for other bodies one entry that says so."""
    if not body or PLACEHOLDER.encode() not in body:
        return []
    places = list(_places(parse(body), ())) or ["a part of the body"]
    more = len(places) - _NAMED_MAX
    return places[:_NAMED_MAX] + ([f"(and {more} more places)"] if more > 0 else [])


def _places(value: Any, at: tuple[str | int, ...]) -> Iterator[str]:
    if isinstance(value, str) and PLACEHOLDER in value:
        yield pointer(at) or "a part of the body"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, (*at, index))
