"""Reads what a model answered, in either dialect (Chat Completions, Responses), into what the rules ask for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gymtap.proxy.diagnose.evidence import Material, Seen, listed
from gymtap.schemas import Call


@dataclass(frozen=True)
class Answer:
    """`text` is what was said, `reasoning` what was thought; `calls` are (tool name, arguments as text).

    `finish` is the finish reason or the incomplete reason; `cut`: the output limit ended it.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    cut: bool = False
    completion_tokens: int | None = None


def answers(material: Material) -> Iterator[tuple[Seen, Answer]]:
    """The answers of providers, judges' included; the models' own where no provider call was recorded."""
    providers = [e for e in material.exchanges if e.call is Call.PROVIDER]
    for exchange in providers or material.of(Call.MODEL, Call.JUDGE, Call.RESPONSES, judge=None):
        if exchange.status is not None and exchange.status < 400:
            answer = read_answer(exchange.response_json)
            if answer is not None:
                yield exchange, answer


def read_answer(body: Any) -> Answer | None:
    """The answer in a body; None when it is in neither dialect."""
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("choices"), list) and body["choices"]:
        return _chat(body["choices"][0], body)
    return _responses(body) if isinstance(body.get("output"), list) else None


def tool_calls(answer: Answer) -> tuple[tuple[str, str], ...]:
    """Its tool calls: (name, arguments as text)."""
    return answer.calls


def _chat(choice: Any, body: dict[str, Any]) -> Answer | None:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return None
    message = choice["message"]
    calls = [_function(call) for call in listed(message.get("tool_calls")) if isinstance(call, dict)]
    finish = choice.get("finish_reason")
    return Answer(
        text=_text(message.get("content")) or _text(message.get("refusal")),
        reasoning=_text(message.get("reasoning_content") or message.get("reasoning")),
        calls=tuple((str(call.get("name")), _arguments(call.get("arguments"))) for call in calls),
        finish=finish if isinstance(finish, str) else None,
        cut=finish == "length",
        completion_tokens=_tokens(body, "completion_tokens"),
    )


def _responses(body: dict[str, Any]) -> Answer:
    items = [item for item in body["output"] if isinstance(item, dict)]
    incomplete = body.get("incomplete_details")
    reason = incomplete.get("reason") if isinstance(incomplete, dict) else None
    calls = [item for item in items if str(item.get("type")).endswith("_call")]  # hosted tools' calls are calls too
    return Answer(
        text="".join(_text(item.get("content")) for item in items if item.get("type") in {"message", None}),
        reasoning="".join(
            _text(item.get("summary")) + _text(item.get("content")) for item in items if item.get("type") == "reasoning"
        ),
        calls=tuple((str(item.get("name") or item["type"]), _arguments(item.get("arguments"))) for item in calls),
        finish=reason if isinstance(reason, str) else None,
        cut=reason == "max_output_tokens",
        completion_tokens=_tokens(body, "output_tokens"),
    )


def _function(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text") or part.get("refusal") or "") for part in content if isinstance(part, dict))
    return ""


def _arguments(found: Any) -> str:
    return found if isinstance(found, str) else "" if found is None else str(found)


def _tokens(body: dict[str, Any], name: str) -> int | None:
    usage = body.get("usage")
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def echo(material: Material, arguments: str) -> str | None:
    """What the next turn told the model about the call with these arguments; None when no turn repeats it."""
    for exchange in material.of(Call.PROVIDER, Call.MODEL, judge=None):
        body = exchange.request_json
        if isinstance(body, dict):
            found = _chat_echo(body.get("messages"), arguments) or _responses_echo(body.get("input"), arguments)
            if found is not None:
                return found
    return None


def _chat_echo(messages: Any, arguments: str) -> str | None:
    called: set[Any] = set()
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            continue
        for call in listed(message.get("tool_calls")):
            if isinstance(call, dict) and _function(call).get("arguments") == arguments:
                called.add(call.get("id"))
        if message.get("role") == "tool" and message.get("tool_call_id") in called:
            return _text(message.get("content"))
    return None


def _responses_echo(items: Any, arguments: str) -> str | None:
    called: set[Any] = set()
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict):
            continue
        if item.get("type") == "function_call" and item.get("arguments") == arguments:
            called.add(item.get("call_id"))
        if item.get("type") == "function_call_output" and item.get("call_id") in called:
            return _text(item.get("output"))
    return None
