"""Gym's wire format as tolerant models: what every version from 0.4 to 0.7 has in common, and nothing more.

Unknown fields are allowed everywhere, since environments add their own; a field is required only where a
server of every one of these versions refuses the body without it. The exact model of one server is in its
OpenAPI document or its class, not here.
"""

from gymtap.schemas.wire.answers import FailureRow, ModelResponse, VerifyResponse
from gymtap.schemas.wire.requests import (
    KNOWN_PARAMS,
    AgentRef,
    ResponsesCreateParams,
    RunRequest,
    SeedSessionRequest,
    VerifyRequest,
)

__all__ = [
    "KNOWN_PARAMS",
    "AgentRef",
    "FailureRow",
    "ModelResponse",
    "ResponsesCreateParams",
    "RunRequest",
    "SeedSessionRequest",
    "VerifyRequest",
    "VerifyResponse",
]
