"""Gym's own `<rollout>.capture.jsonl`: one rollout's model calls, with `observability_enabled` (Gym 0.7.0).

Requests and responses are there as parsed JSON, without headers. The rollout is in the file's name, and goes where
Gym itself puts it on the wire: before the path.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymtap.proxy.core.recorded import Recorded, Recording
from gymtap.proxy.imports.fields import MS_NS, SECOND_NS, Fields, body_bytes, checked, json_lines
from gymtap.schemas import Server, ServerKind, TransportError, TransportErrorKind

SUFFIX = ".capture.jsonl"
_PATHS = {
    "responses": "/v1/responses",
    "chat_completions": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "anthropic_messages": "/v1/messages",
}
_JSON = ((b"content-type", b"application/json"),)


class _ModelRef(Fields):
    name: str = "model"


class _ModelCall(Fields):
    model_call_id: str
    dialect: str = "responses"
    model_ref: _ModelRef | None = None
    started_at: float
    completed_at: float | None = None
    latency_ttft_ms: float | None = None
    status_code: int | None = None
    error_category: str | None = None
    request: Any = None
    response: Any = None


def is_model_call(value: Any) -> bool:
    """Whether a line's value is one of these."""
    return isinstance(value, dict) and "model_call_id" in value


def read_model_calls(file: Path) -> list[Recording]:
    """The file as one recording. Raises UsageError."""
    return [Recording(file, recorded=list(_recorded(file)))]


def _recorded(file: Path) -> Iterator[Recorded]:
    rollout = file.name.removesuffix(SUFFIX) if file.name.endswith(SUFFIX) else ""
    prefix = f"/ng-rollout/{rollout}" if rollout else ""
    for number, value in json_lines(file):
        call = checked(_ModelCall, value, f"{file}:{number}")
        name = call.model_ref.name if call.model_ref else "model"
        started_ns = round(call.started_at * SECOND_NS)
        first_ms = call.latency_ttft_ms
        yield Recorded(
            server=Server(name=name, kind=ServerKind.MODEL, listen="", upstream=""),
            method="POST",
            target=prefix + _PATHS.get(call.dialect, f"/v1/{call.dialect}"),
            started_ns=started_ns,
            request_headers=_JSON,
            request_body=body_bytes(call.request),
            status=call.status_code,
            response_headers=_JSON,
            response_body=body_bytes(call.response),
            first_byte_ns=None if first_ms is None else started_ns + round(first_ms * MS_NS),
            ended_ns=None if call.completed_at is None else round(call.completed_at * SECOND_NS),
            error=_error(call),
            key=call.model_call_id,
        )


def _error(call: _ModelCall) -> TransportError | None:
    """Gym says only a category of what ended a call without a status."""
    if call.status_code is not None or call.error_category is None:
        return None
    return TransportError(kind=TransportErrorKind.CLOSED, message=f"Gym recorded: {call.error_category}")
