"""What Gym 0.7's model servers ask of a provider's answer before they take it, as models of our own.

Gym validates with the models of the openai client, which are stricter than the servers that imitate that API: a
finish reason, a service tier or a missing token count that nobody looks at is a 500. Only fields that are validated
are here; measured on nemo-gym 0.7.0's `vllm_model` (Chat Completions) and `openai_model` (Responses).
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from gymtap.proxy.core.contracts.pydantic_errors import findings_of
from gymtap.proxy.core.pointer import Path, pointer
from gymtap.schemas import Finding

type _Tier = Literal["auto", "default", "flex", "scale", "priority"] | None
type _ItemStatus = Literal["in_progress", "completed", "incomplete"]


class _Function(BaseModel):
    name: str
    arguments: str


class _ToolCall(BaseModel):
    id: str
    type: Literal["function", "custom"]
    function: _Function | None = None


class _Citation(BaseModel):
    type: Literal["url_citation"]


class _Message(BaseModel):
    role: Literal["assistant"]
    content: str | None = None
    refusal: str | None = None
    annotations: list[_Citation] | None = None
    audio: dict[str, Any] | None = None
    function_call: _Function | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(BaseModel):
    index: int
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
    logprobs: dict[str, Any] | None = None
    message: _Message


class _PromptDetails(BaseModel):
    audio_tokens: int | None = None
    cached_tokens: int | None = None


class _CompletionDetails(BaseModel):
    audio_tokens: int | None = None
    reasoning_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class ChatCompletion(BaseModel):
    """An answer of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[_Choice]
    service_tier: _Tier = None
    system_fingerprint: str | None = None
    usage: _Usage | None = None


class _Annotation(BaseModel):
    type: Literal["file_citation", "url_citation", "container_file_citation", "file_path"]


class _OutputText(BaseModel):
    type: Literal["output_text"]
    text: str
    annotations: list[_Annotation]
    logprobs: list[Any] | None = None


class _Refusal(BaseModel):
    type: Literal["refusal"]
    refusal: str


class _OutputMessage(BaseModel):
    id: str
    role: Literal["assistant"] = "assistant"
    status: _ItemStatus = "completed"
    content: list[Annotated[_OutputText | _Refusal, Field(discriminator="type")]]


class _OutputCall(BaseModel):
    id: str | None = None
    call_id: str
    name: str
    arguments: str
    status: _ItemStatus | None = None


class _Summary(BaseModel):
    type: Literal["summary_text"]
    text: str


class _ReasoningText(BaseModel):
    type: Literal["reasoning_text"]
    text: str


class _Reasoning(BaseModel):
    id: str
    summary: list[_Summary]
    content: list[_ReasoningText] | None = None
    encrypted_content: str | None = None


_ITEMS: dict[str, type[BaseModel]] = {
    "message": _OutputMessage,
    "function_call": _OutputCall,
    "reasoning": _Reasoning,
}


class _InputDetails(BaseModel):
    cached_tokens: int


class _OutputDetails(BaseModel):
    reasoning_tokens: int


class _ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: _InputDetails
    output_tokens: int
    output_tokens_details: _OutputDetails
    total_tokens: int


class _Incomplete(BaseModel):
    reason: Literal["max_output_tokens", "content_filter"] | None = None


class _Effort(BaseModel):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class _Tool(BaseModel):
    type: str


class Response(BaseModel):
    """An answer of /v1/responses; its output items are validated one by one."""

    id: str
    object: Literal["response"]
    created_at: float
    model: str
    output: list[Any]
    parallel_tool_calls: bool
    tool_choice: Literal["none", "auto", "required"] | _Tool
    tools: list[_Tool]
    status: Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"] | None = None
    incomplete_details: _Incomplete | None = None
    metadata: dict[str, str] | None = None
    reasoning: _Effort | None = None
    service_tier: _Tier = None
    temperature: float | None = None
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    usage: _ResponseUsage | None = None


def refused_by_gym(value: dict[str, Any], *, responses: bool) -> Iterator[Finding]:
    """Every place for which a model server of Gym 0.7 does not take this answer."""
    yield from _against(Response if responses else ChatCompletion, value, ())
    output = value.get("output")
    for index, item in enumerate(output if responses and isinstance(output, list) else ()):
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "message" and isinstance(item.get("content"), str):
            continue  # Gym 0.7 takes it for a message of the input
        if isinstance(kind, str) and kind in _ITEMS:
            yield from _against(_ITEMS[kind], item, ("output", index))


def _against(model: type[BaseModel], value: Any, path: Path) -> Iterator[Finding]:
    try:
        model.model_validate(value)
    except ValidationError as wrong:
        errors = wrong.errors(include_url=False, include_context=False)
        for found in findings_of(errors, value, "answer.model", "Gym 0.7 does not take the answer"):
            placed = pointer(path) + (found.pointer or "")
            yield found.model_copy(update={"pointer": placed})
