"""Gym 0.7's wire format, the parts that a debugging proxy has to understand: session cookies and error bodies.

Everything is derived from its input, with a fixed key and a fixed time, so that two demos say the same.
"""

import base64
import hashlib
import hmac
from typing import Any

import orjson
from pydantic import ValidationError

_SECRET = b"the demo's session key"
_SIGNED_AT_S = 1_796_000_000  # a fixed second: cookies of two demos are alike
_COOKIE_ATTRIBUTES = "path=/; Max-Age=1209600; httponly; samesite=lax"


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign_session(session_id: str) -> str:
    """The value of a Starlette session cookie: base64 JSON, time and SHA-1 signature, joined by dots."""
    payload = base64.b64encode(b'{"session_id": "' + session_id.encode() + b'"}').decode()
    dated = f"{payload}.{_urlsafe(_SIGNED_AT_S.to_bytes(4, 'big'))}"
    key = hashlib.sha1(b"itsdangerous.Signersigner" + _SECRET, usedforsecurity=False).digest()
    return f"{dated}.{_urlsafe(hmac.digest(key, dated.encode(), 'sha1'))}"


def set_cookie(name: str, value: str) -> str:
    """The `Set-Cookie` field by which Starlette's session middleware sends the session again."""
    return f"{name}={value}; {_COOKIE_ATTRIBUTES}"


def nested_error(server: str, body: bytes) -> bytes:
    """The 500 that `server` (`<Class>___<name>`) answers when a server behind it answered `body`.

    Gym 0.7, `SimpleServer.setup_exception_middleware`: a JSON string that holds the repr of the inner bytes.
    """
    return orjson.dumps(f"Hit an exception in {server} calling an inner server: {body!r}")


def exception_error(error: BaseException) -> bytes:
    """The 500 of any other exception: its repr, as a JSON string."""
    return orjson.dumps(repr(error))


def validation_detail(error: ValidationError) -> bytes:
    """FastAPI's 422 body for a request that does not fit its model."""
    found = error.errors(include_url=False, include_context=False)
    detail = [{**problem, "loc": ["body", *problem["loc"]]} for problem in found]
    return orjson.dumps({"detail": detail})


def message(role: str, text: str, number: str) -> dict[str, Any]:
    """An assistant's turn as the Responses API writes it."""
    content: list[dict[str, Any]] = [{"annotations": [], "text": text, "type": "output_text", "logprobs": None}]
    return {"id": f"msg_{number}", "content": content, "role": role, "status": "completed", "type": "message"}
