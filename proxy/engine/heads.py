"""Reads heads with aiohttp's parsers (llhttp), and more leniently what they refuse.

The non-obvious decision: llhttp refuses what two peers may well agree on (no Host, a method it does not
know, a repeated User-Agent, a length beside chunked). A tap that refused those would hide what it is for,
so they are read by `gymtap.proxy.core.http1` instead. A test holds the two readers against each other.
"""

import asyncio
from typing import Any, cast

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser, HttpResponseParser

from gymtap.proxy.core.http1 import MAX_HEAD_BYTES, RequestHead, ResponseHead, read_request, read_response

_LIMITS: dict[str, Any] = {
    "limit": 2**16,
    "max_line_size": MAX_HEAD_BYTES,
    "max_field_size": MAX_HEAD_BYTES,
    "max_headers": MAX_HEAD_BYTES,
    "response_with_body": False,  # the body is found by http1's scanners: a parser reads one head
    "auto_decompress": False,
}


class _NoFlow:
    """What the parsers ask of a protocol, for heads only: there is no payload to hold back."""

    def pause_reading(self) -> None:
        """Nothing to pause."""

    def resume_reading(self, *, resume_parser: bool = True) -> None:
        """Nothing to resume."""


class HeadReader:
    """Reads whole heads. Made once per engine; it keeps nothing between heads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._protocol = cast("BaseProtocol", _NoFlow())

    def request(self, raw: bytes) -> RequestHead:
        """Read a request's head. Raises MalformedError when both readers refuse it."""
        try:
            messages, _, _ = HttpRequestParser(self._protocol, self._loop, **_LIMITS).feed_data(raw)
            message = messages[0][0]
        except (HttpProcessingError, IndexError):
            return read_request(raw)
        major, minor = message.version
        return RequestHead(raw, f"{major}.{minor}", message.raw_headers, message.method, message.path)

    def response(self, raw: bytes) -> ResponseHead:
        """Read a response's head. Raises MalformedError when both readers refuse it."""
        try:
            messages, _, _ = HttpResponseParser(self._protocol, self._loop, **_LIMITS).feed_data(raw)
            message = messages[0][0]
        except (HttpProcessingError, IndexError):
            return read_response(raw)
        major, minor = message.version
        reason = message.reason.encode("utf-8", "surrogateescape").decode("latin-1")
        return ResponseHead(raw, f"{major}.{minor}", message.raw_headers, message.code, reason)
