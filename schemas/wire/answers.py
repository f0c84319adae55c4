"""What comes back: the model server's response, /verify's and /run's answers, and the sidecar's failure rows."""

from typing import Any

from pydantic import Field

from gymtap.schemas.wire._wire import Wire


class ModelResponse(Wire):
    """A Responses-form answer: every version needs its `output`. Some environments keep a list per turn in it."""

    id: str | None = None
    output: list[dict[str, Any] | list[Any]]
    usage: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None


class VerifyResponse(Wire):
    """The answer of /verify and /run, and a line of a rollouts file. `reward` is a number, or the agent fails."""

    reward: float
    response: ModelResponse | None = None
    responses_create_params: dict[str, Any] | None = None
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None


class FailureRow(Wire):
    """A line of the failures sidecar (`X_failures.jsonl`, 0.7); the body is cut after 2,000 characters."""

    failure_class: str = Field(alias="_ng_failure_class")
    failure_type: str | None = Field(default=None, alias="_ng_failure_type")
    failure_message: str | None = Field(default=None, alias="_ng_failure_message")
    http_status: int | None = Field(default=None, alias="_ng_failure_http_status")
    response_body: str | None = Field(default=None, alias="_ng_failure_response_body")
