"""A diagnosis: symptom, failing layer, evidence, likely cause, next action.

The layers are the words of the Gym debugging guide. `unknown` is an honest answer; a confident wrong
layer is the worst one.
"""

from enum import StrEnum
from typing import Any

from gymtap.schemas._model import Model
from gymtap.schemas.finding import Finding


class Layer(StrEnum):
    """The seven layers, `none` for a healthy row, `unknown` where the evidence decides nothing."""

    INFRA = "infra"
    MODEL_SERVING = "model_serving"
    CONFIG = "config"
    DATA_SCHEMA = "data_schema"
    VERIFIER_RUNTIME = "verifier_runtime"
    CACHE_RESUME = "cache_resume"
    THROUGHPUT_RESOURCES = "throughput_resources"
    NONE = "none"
    UNKNOWN = "unknown"


class LeafKind(StrEnum):
    """What the innermost body is."""

    JSON = "json"
    PROVIDER_ERROR = "provider_error"  # an OpenAI, vLLM or LiteLLM error envelope
    DETAIL = "detail"  # FastAPI's {"detail": ...}
    FAILURE = "failure"  # a typed environment's 200 with `failure`
    EXCEPTION = "exception"  # an exception's repr, or pydantic's text
    HTML = "html"
    TEXT = "text"
    EMPTY = "empty"
    UNDECODABLE = "undecodable"


class Wrapper(Model):
    """One layer that was peeled off. `server` is `<ClassName>___<config name>` where the wrapper names one."""

    kind: str
    server: str | None = None


class Leaf(Model):
    """The innermost body. `text` is whole, `value` its JSON where it is JSON, `message` its one telling line."""

    kind: LeafKind
    text: str
    message: str = ""
    value: Any = None
    code: str | None = None


class Unwrapped(Model):
    """A body with its wrappers peeled off, outermost first. `truncated`: it was cut, so the leaf may be partial."""

    wrappers: tuple[Wrapper, ...]
    leaf: Leaf
    truncated: bool = False


class Evidence(Model):
    """One thing that was seen: `source` is exchange, log, file, row or body; `where` says which (`a42`, `x.log:17`)."""

    source: str
    where: str
    text: str


class Hop(Model):
    """One exchange in the chain from /run to the leaf; `status` is None where there was no answer."""

    exchange: str
    boundary: str
    call: str
    status: int | None
    error: str | None
    duration_ms: float | None
    request_bytes: int
    response_bytes: int


class Diagnosis(Model):
    """What a report always says; `cause` and `next_action` are whole sentences.

    `failure_kind` is Gym's own word for it (`nemo_gym.failure_kinds`), where one fits.
    """

    symptom: str
    layer: Layer
    cause: str
    next_action: str
    evidence: tuple[Evidence, ...] = ()
    runner_up: Layer | None = None
    rule: str | None = None
    failure_kind: str | None = None
    fingerprint: str | None = None
    row: str | None = None
    exchange: str | None = None
    chain: tuple[Hop, ...] = ()
    innermost: Unwrapped | None = None
    findings: tuple[Finding, ...] = ()
