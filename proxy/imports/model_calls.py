"""Gym's own `<rollout>.capture.jsonl`: one rollout's model calls, with `observability_enabled` (Gym 0.7.0).

Requests and responses are there without headers, as parsed JSON, and as text (`request_raw`, `response_raw`) where
they were none, were streamed, or came from behind the server that failed: the text is what crossed the wire. The
rollout is in the file's name, and goes where Gym itself puts it on the wire: before the path.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gymtap.proxy.core.event_stream import is_event_stream
from gymtap.proxy.core.recorded import Foreign, Recording
from gymtap.proxy.imports.fields import (
    MS_NS,
    SECOND_NS,
    Fields,
    Milliseconds,
    Seconds,
    Status,
    Text,
    body_bytes,
    checked,
    json_lines,
)
from gymtap.proxy.imports.transport import transport_error
from gymtap.schemas import Server, ServerKind, TransportError

SUFFIX = ".capture.jsonl"
_PATHS = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "chat_completions": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "anthropic_messages": "/v1/messages",
}
_JSON = ((b"content-type", b"application/json"),)
_STREAM = ((b"content-type", b"text/event-stream"),)
_UNANSWERED = frozenset({"stream_truncated", "cancelled", "timeout", "connection", "exception"})
"""Gym's words for what ended a call apart from its status (`_classify_exception` of nemo_gym 0.7.0)."""


class _ModelRef(Fields):
    name: Text = "model"


class _ModelCall(Fields):
    model_call_id: str
    dialect: Text = "responses"
    model_ref: _ModelRef | None = None
    started_at: Seconds
    completed_at: Seconds | None = None
    latency_ttft_ms: Milliseconds | None = None
    status_code: Status | None = None
    error_category: Text | None = None
    request: Any = None
    response: Any = None
    request_raw: str | None = None
    response_raw: str | None = None


def read_model_calls(file: Path) -> Iterator[Recording]:
    """The file as one recording."""
    rollout = file.name.removesuffix(SUFFIX) if file.name.endswith(SUFFIX) else ""
    prefix = f"/ng-rollout/{rollout}" if rollout else ""
    yield Recording(file, json_lines(file, partial(_recorded, prefix)))


def _recorded(prefix: str, value: Any, place: str) -> Foreign:
    call = checked(_ModelCall, value, place)
    name = call.model_ref.name if call.model_ref else "model"
    started_ns = round(call.started_at * SECOND_NS)
    first_ms = call.latency_ttft_ms
    answered = body_bytes(call.response if call.response_raw is None else call.response_raw)
    return Foreign(
        server=Server(name=name, kind=ServerKind.MODEL, listen="", upstream=""),
        method="POST",
        target=prefix + _PATHS.get(call.dialect, f"/v1/{call.dialect}"),
        started_ns=started_ns,
        request_headers=_JSON,
        request_body=body_bytes(call.request if call.request_raw is None else call.request_raw),
        status=call.status_code,
        response_headers=_STREAM if answered and is_event_stream(answered) else _JSON,
        response_body=answered,
        first_byte_ns=None if first_ms is None else started_ns + round(first_ms * MS_NS),
        ended_ns=None if call.completed_at is None else round(call.completed_at * SECOND_NS),
        error=_error(call),
        key=call.model_call_id,
    )


def _error(call: _ModelCall) -> TransportError | None:
    """Gym says only a category of what ended a call; where there is a status of an error, that says it."""
    if call.error_category is None or (call.status_code is not None and call.error_category not in _UNANSWERED):
        return None
    if call.status_code is not None and call.status_code >= 400:
        return None
    return transport_error(f"Gym recorded: {call.error_category}")
