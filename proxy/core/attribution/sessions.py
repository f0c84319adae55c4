"""Session tokens: what a cookie, or a session id in a body, says about who talks to whom.

Gym's cookies are Starlette's (`<Class>___<name>` = base64(JSON).time.signature). They are re-issued with a new time,
and may gain fields, while the session id stays, so a token is the digest of the name and the session id: the same for
every re-issue, and useless to whoever finds it.
"""

import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gymtap.schemas import Headers

type Token = bytes

_SESSION_ID = re.compile(rb'"session_id"\s*:\s*"([^"]+)"')
_BODY_IDS = ("resources_session_id", "agent_session_id")


class Session(NamedTuple):
    """`name` is the cookie's (or the body field's) and may be shown; `token` stands for its value."""

    name: str
    token: Token


def digest(kind: str, value: str | bytes) -> Token:
    """Sixteen bytes that stand for a value of some kind."""
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16, key=kind.encode("utf-8", "replace")[:64]).digest()


def from_cookie(name: str, value: str) -> Session | None:
    """The session that a cookie names; None when it is not one of Gym's."""
    if "___" not in name:
        return None
    payload = value.strip('"').partition(".")[0]
    try:
        decoded = binascii.a2b_base64(payload.encode("latin-1", "replace") + b"==")
    except binascii.Error:
        return None
    match = _SESSION_ID.search(decoded)
    return Session(name, digest(name, match[1])) if match else None


def from_request(headers: Headers) -> list[Session]:
    """The sessions that a request's Cookie fields carry."""
    return _sessions([_pair(part) for field in _fields(headers, "cookie") for part in field.split(";")])


def from_response(headers: Headers) -> list[Session]:
    """The sessions that a response's Set-Cookie fields issue or issue again."""
    return _sessions([_pair(field.partition(";")[0]) for field in _fields(headers, "set-cookie")])


def from_body(body: Any) -> list[Session]:
    """The sessions that a parsed body names: session ids, and the cookies that Gym 0.7 hands on in `tool_accesses`."""
    if not isinstance(body, dict):
        return []
    ids = [Session(name, digest(name, body[name])) for name in _BODY_IDS if isinstance(body.get(name), str)]
    return ids + _sessions(_handed_on(body))


def _handed_on(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    accesses = body.get("tool_accesses")
    jars = (
        [access.get("cookies") for access in accesses if isinstance(access, dict)] if isinstance(accesses, list) else []
    )
    for jar in [*jars, body.get("resources_cookies")]:
        if isinstance(jar, dict):
            yield from ((name, value) for name, value in jar.items() if isinstance(value, str))


def _fields(headers: Headers, wanted: str) -> list[str]:
    return [value for name, value in headers if name.lower() == wanted]


def _pair(cookie: str) -> tuple[str, str]:
    name, _, value = cookie.strip().partition("=")
    return name, value


def _sessions(pairs: Iterable[tuple[str, str]]) -> list[Session]:
    return [session for name, value in pairs if (session := from_cookie(name, value)) is not None]
