"""The nouns: frozen models, no input or output. Standard library and pydantic only."""

from gymtap.schemas.attribution import Attribution, Confidence, Method
from gymtap.schemas.capture import (
    FORMAT_VERSION,
    CaptureInfo,
    Gap,
    GapKind,
    Row,
    RowState,
    Server,
    ServerContract,
)
from gymtap.schemas.diagnosis import Diagnosis, Evidence, Hop, Layer, Leaf, LeafKind, Unwrapped, Wrapper
from gymtap.schemas.exchange import (
    ROWLESS_CALLS,
    Body,
    Call,
    Exchange,
    Headers,
    Request,
    Response,
    ServerKind,
    State,
    TransportError,
    TransportErrorKind,
)
from gymtap.schemas.finding import Finding, Severity
from gymtap.schemas.row import RowKey

__all__ = [
    "FORMAT_VERSION",
    "ROWLESS_CALLS",
    "Attribution",
    "Body",
    "Call",
    "CaptureInfo",
    "Confidence",
    "Diagnosis",
    "Evidence",
    "Exchange",
    "Finding",
    "Gap",
    "GapKind",
    "Headers",
    "Hop",
    "Layer",
    "Leaf",
    "LeafKind",
    "Method",
    "Request",
    "Response",
    "Row",
    "RowKey",
    "RowState",
    "Server",
    "ServerContract",
    "ServerKind",
    "Severity",
    "State",
    "TransportError",
    "TransportErrorKind",
    "Unwrapped",
    "Wrapper",
]
