"""A flow: an exchange while it is being recorded, in the hands of the addons.

It lives on the recorder's thread only, one writer at a time. Addons read it and write to it in their
order: identity sees what crossed the wire; from redaction on, secrets are gone.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from gymtap.schemas import Attribution, Call, Headers, Server, TransportError

INSPECT_MAX_BYTES = 16 * 2**20
"""Bodies beyond this are kept but not looked into."""


_UNKNOWN = Attribution()


def _json(body: bytes | None) -> Any:
    if not body:
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


@dataclass
class Flow:
    """Bodies are whole and content-decoded; None while they are unknown, or over INSPECT_MAX_BYTES."""

    id: str
    server: Server
    started_ns: int
    method: str
    target: str
    request_headers: Headers
    client: str = ""
    http_version: str = "1.1"
    causality_parent: str | None = None
    request_body: bytes | None = None
    request_done_ms: float | None = None
    status: int | None = None
    reason: str = ""
    response_headers: Headers = ()
    response_body: bytes | None = None
    first_byte_ms: float | None = None
    ended_ms: float | None = None
    error: TransportError | None = None
    call: Call = Call.OTHER
    attribution: Attribution = _UNKNOWN
    parent: str | None = None
    attempt: int = 0
    request_redacted: int = 0
    response_redacted: int = 0

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The first request header of that name, in any case."""
        wanted = name.lower()
        return next((value for key, value in self.request_headers if key.lower() == wanted), None)

    @cached_property
    def request_json(self) -> Any:
        """The request body as JSON; None when it is not. Read it only once the request is whole."""
        return _json(self.request_body)

    @cached_property
    def response_json(self) -> Any:
        """The response body as JSON; None when it is not. Read it only once the response is whole."""
        return _json(self.response_body)

    def clean_request(self, body: bytes, redacted: int) -> None:
        """Put a body with so many replacements in the request's place, and forget what was parsed of the old one."""
        self.request_body, self.request_redacted = body, self.request_redacted + redacted
        self.__dict__.pop("request_json", None)

    def clean_response(self, body: bytes, redacted: int) -> None:
        """The same for the response."""
        self.response_body, self.response_redacted = body, self.response_redacted + redacted
        self.__dict__.pop("response_json", None)

    def drop_json(self) -> None:
        """Forget what was parsed: it takes many times the room of the bytes, from which it can be read again."""
        self.__dict__.pop("request_json", None)
        self.__dict__.pop("response_json", None)
