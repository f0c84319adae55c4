"""W3C trace context: requests with one trace id have one origin (https://www.w3.org/TR/trace-context/, level 1).

Gym 0.7 sends it only with its telemetry extra installed. A trace that spans several rows says nothing about any; the
resolver finds that out when two rows claim it.
"""

import re

from gymtap.proxy.core.attribution.sessions import Token, digest
from gymtap.schemas import Headers

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_INVALID = "0" * 32


def from_headers(headers: Headers) -> Token | None:
    """The token of the request's trace; None when it has none, or one that the standard calls invalid."""
    value = next((value for name, value in headers if name.lower() == "traceparent"), "")
    match = _TRACEPARENT.fullmatch(value.strip())
    return digest("trace", match[1]) if match and match[1] != _INVALID else None
