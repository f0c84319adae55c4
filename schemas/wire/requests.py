"""What is sent: rows, and the bodies of /run, /seed_session, /v1/responses and /verify (Gym 0.4 to 0.7)."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from gymtap.schemas.wire._wire import Wire

KNOWN_PARAMS = frozenset(
    {
        "background", "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model",
        "parallel_tool_calls", "previous_response_id", "prompt", "reasoning", "service_tier", "store",
        "context_management", "conversation", "moderation", "prompt_cache_key", "prompt_cache_retention",
        "safety_identifier", "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
        "truncation", "user", "stream",
    }
)  # fmt: skip
"""The fields of `responses_create_params` in Gym 0.7.0, which answers 422 to any other."""


class AgentRef(Wire):
    """Which agent a row is for."""

    type: Literal["responses_api_agents"] = "responses_api_agents"
    name: str = Field(min_length=1)


class TextPart(Wire):
    """Text in a message's content. `text` is Chat's type; the Responses API says `input_text` or `output_text`."""

    type: Literal["input_text", "output_text", "summary_text"]
    text: str


class OtherPart(Wire):
    """Any other piece of a message's content, of which only the type is looked at."""

    type: Literal["input_image", "input_file", "input_audio", "input_video", "refusal"]


def _part_kind(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    return "text" if kind in ("input_text", "output_text", "summary_text") else "other"


Part = Annotated[Annotated[TextPart, Tag("text")] | Annotated[OtherPart, Tag("other")], Discriminator(_part_kind)]


class Message(Wire):
    """A message, with or without its `type`.

    Gym 0.7.0 does not refuse one that does not fit: without a `type` it passes for an item of another kind
    (`mcp_list_tools`), and the model never sees it.
    """

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]


class FunctionCall(Wire):
    """A call that the model made; `arguments` is JSON text, not an object."""

    type: Literal["function_call"]
    name: str
    call_id: str
    arguments: str


class FunctionCallOutput(Wire):
    """What a tool answered."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[Any]


class OtherItem(Wire):
    """Any other kind of input item, of which only the type is looked at."""

    type: str


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind in ("function_call", "function_call_output"):
        return str(kind)
    return "message" if kind in (None, "message") else "other"


InputItem = Annotated[
    Annotated[Message, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[OtherItem, Tag("other")],
    Discriminator(_kind),
]


class ResponsesCreateParams(Wire):
    """The request to the model, in Responses form."""

    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: dict[str, Any] | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = Field(default_factory=list)
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    stream: Literal[False] | None = None


class RunRequest(Wire):
    """A row as the collector sends it to /run. The indices are absent in a dataset, present once materialized."""

    responses_create_params: ResponsesCreateParams
    agent_ref: AgentRef | None = None
    task_index: int | None = Field(default=None, alias="_ng_task_index")
    rollout_index: int | None = Field(default=None, alias="_ng_rollout_index")
    attempt_index: int | None = Field(default=None, alias="_ng_attempt_index")
    rollout_id: str | None = Field(default=None, alias="_ng_rollout_id")


class SeedSessionRequest(Wire):
    """The body of /seed_session: the whole row in the legacy flow, identifiers in 0.7's single-agent-turn flow."""

    responses_create_params: ResponsesCreateParams | None = None
    resources_session_id: str | None = None
    episode_id: dict[str, Any] | None = None


class VerifyRequest(RunRequest):
    """The body of /verify: the row, and the model's response."""

    response: dict[str, Any]
