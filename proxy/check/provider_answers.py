"""The 200→500 detector: what in a provider's good answer Gym's model server or agent cannot parse.

A pure function over one body. The provider says 200, its body is in no log of Gym's, and what the collector
sees is a 500 with a KeyError or a pydantic text: here the place in the body is named instead.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gymtap.proxy.check.answer_models import refused_by_gym
from gymtap.proxy.core.contracts.finding import finding
from gymtap.proxy.core.event_stream import is_event_stream
from gymtap.proxy.core.pointer import Path
from gymtap.schemas import Finding, Severity

OUTPUT_TYPES_ALWAYS = frozenset({"message", "function_call", "reasoning"})
"""Output items that every Gym reads; before items of hosted tools were added, nothing else."""

OUTPUT_TYPES_0_7 = OUTPUT_TYPES_ALWAYS | {
    "mcp_call", "mcp_list_tools", "mcp_approval_request", "file_search_call", "web_search_call", "computer_call",
    "image_generation_call", "code_interpreter_call", "local_shell_call", "custom_tool_call", "computer_call_output",
    "custom_tool_call_output", "local_shell_call_output", "mcp_approval_response", "apply_patch_call",
    "apply_patch_call_output", "compaction", "shell_call", "shell_call_output", "tool_search_call",
    "tool_search_output", "function_call_output",
}  # fmt: skip
"""Output items that Gym 0.7.0 reads."""

_TEXT_MAX = 60
_NAN = object()


def check_answer(body: bytes, *, parsed: Any = None, became: int | None = None) -> list[Finding]:
    """Findings about the body of a 2xx answer, in either dialect; none means that Gym can parse it.

    `parsed` is the body as JSON, where the caller has it; None says nothing.
    `became` is the status that Gym's model server answered with, where it is known. After a 500 all that Gym's own
    models refuse, and other clients do not look at, is an error; where they refuse nothing, what only some versions
    choke on is.
    """
    found = list(_of_object(parsed) if isinstance(parsed, dict) else _findings(body))
    if became is None or became < 500:
        return found
    refused = list(_refused(body, parsed))
    told = [_as_error(one) if not refused or _is_told(one, refused) else one for one in found]
    return told + [one for one in refused if not _is_told(one, found)]


def _as_error(found: Finding) -> Finding:
    return found.model_copy(update={"severity": Severity.ERROR})


def _refused(body: bytes, parsed: Any) -> Iterator[Finding]:
    """What Gym 0.7's models and its vllm_model refuse, and other clients take."""
    if is_event_stream(body):
        yield _error("answer.stream", "a stream, which no model server of Gym asks for", (), expected="one JSON object")
        return
    try:
        value = orjson.loads(body) if parsed is None else parsed
    except orjson.JSONDecodeError:
        return
    if not isinstance(value, dict) or _is_error(value):
        return
    refused = list(refused_by_gym(value, responses=_is_response(value)))
    yield from refused
    if not refused and (path := _thought(value)):
        message = "reasoning apart from content, which a vllm_model with uses_reasoning_parser: false refuses"
        fix = "Set uses_reasoning_parser: true, or start vLLM without --reasoning-parser."
        yield _error("answer.reasoning", message, path, fix=fix)


def _thought(value: Mapping[str, Any]) -> Path:
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return ()
    key = next((key for key in ("reasoning_content", "reasoning") if message.get(key)), None)
    return ("choices", 0, "message", key) if key else ()


def _is_response(value: Mapping[str, Any]) -> bool:
    return "output" in value or value.get("object") == "response"


def _findings(body: bytes) -> Iterator[Finding]:
    if not body.strip():
        yield _error("answer.empty", "the body is empty", (), expected="a completion")
        return
    if is_event_stream(body):
        yield from _stream(body)
        return
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        yield _not_json(body, error)
        return
    if not isinstance(value, dict):
        yield _error("answer.not_an_object", "the body is not an object", (), found=value, expected="a completion")
    else:
        yield from _of_object(value)


def _of_object(value: dict[str, Any]) -> Iterator[Finding]:
    if _is_error(value):
        message = "an error inside of a 200: " + _error_text(value["error"])
        fix = "Make the gateway pass the error's status on; the KeyError that follows is a consequence."
        yield _error("answer.error_in_200", message, ("error",), found=value["error"], fix=fix)
    elif _is_response(value):
        yield from _responses(value)
    else:
        yield from _chat(value)


def _is_told(found: Finding, others: list[Finding]) -> bool:
    """Whether another finding is about the same place, what it is in, or what is in it."""
    place = (found.pointer or "") + "/"
    places = [(one.pointer or "") + "/" for one in others]
    return any(place.startswith(other) or other.startswith(place) for other in places)


def _error(rule: str, message: str, path: Path, **more: Any) -> Finding:
    return finding(rule, Severity.ERROR, message, path, **more)


def _warning(rule: str, message: str, path: Path, **more: Any) -> Finding:
    return finding(rule, Severity.WARNING, message, path, **more)


def _is_error(value: Mapping[str, Any]) -> bool:
    return bool(value.get("error")) and not value.get("choices") and not value.get("output")


def _error_text(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:200]


def _not_json(body: bytes, error: orjson.JSONDecodeError) -> Finding:
    text = body.decode(errors="replace")
    if text.lstrip()[:1] == "<":
        return _error("answer.html", "the body is HTML, from a gateway rather than a model", (), found=text[:_TEXT_MAX])
    try:
        lenient = json.loads(text, parse_constant=lambda _name: _NAN)
    except (ValueError, RecursionError):
        return _error("answer.not_json", f"the body is not JSON: {error}", (), found=text[:_TEXT_MAX])
    path = _where(lenient)
    if path is None:
        return _error("answer.not_json", f"the body is not strict JSON: {error}", (), found=text[:_TEXT_MAX])
    message = f"NaN or Infinity, which is not JSON: {error}"
    return _error("answer.nan", message, path, expected="a number or null", fix="Make the producer emit null.")


def _stream(body: bytes) -> Iterator[Finding]:
    """An event stream: vLLM sends errors as data, after a 200, and ends with [DONE] or a last response event."""
    failed = False
    events = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
    for number, event in enumerate(events):
        try:
            value = orjson.loads(event)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict) and _is_error(value):
            failed = True
            message = f"event {number} of the stream is an error: {_error_text(value['error'])}"
            yield _error("answer.error_in_stream", message, (), found=value["error"])
    ended = (b"[DONE]", b'"response.completed"', b'"response.incomplete"', b'"response.failed"')
    if not failed and not any(mark in event for event in events[-1:] for mark in ended):
        yield _error("answer.stream_cut", f"the stream ends after {len(events)} events, without its last one", ())


def _where(node: Any, path: Path = ()) -> Path | None:
    if node is _NAN:
        return path
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return next((found for key, child in pairs if (found := _where(child, (*path, key))) is not None), None)


def _chat(value: Mapping[str, Any]) -> Iterator[Finding]:
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        message = "choices is empty" if choices == [] else "choices is missing"
        yield _error("answer.no_choices", message, ("choices",), found=choices, expected="a list with one choice")
        return
    for index, choice in enumerate(choices):
        yield from _choice(choice, ("choices", index), value)
    if value.get("usage") is not None and not isinstance(value["usage"], dict):
        yield _error("answer.usage", "usage is not an object", ("usage",), found=value["usage"])


def _choice(choice: Any, at: Path, value: Mapping[str, Any]) -> Iterator[Finding]:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        text = "a choice has no message"
        yield _error("answer.no_message", text, (*at, "message"), found=message, expected="an object")
        return
    calls, finish = message.get("tool_calls"), choice.get("finish_reason")
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        yield from _tool_call(call, (*at, "message", "tool_calls", index), finish)
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        yield _error(
            "answer.content", "content is not text", (*at, "message", "content"), found=content, expected="text"
        )
    elif not content and not calls:
        yield from _nothing_said(message, finish, (*at, "message", "content"), value)


def _nothing_said(message: Mapping[str, Any], finish: Any, at: Path, value: Mapping[str, Any]) -> Iterator[Finding]:
    usage = value.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    spent = f"{tokens} completion tokens, " if isinstance(tokens, int) and tokens else ""
    thought = message.get("reasoning") or message.get("reasoning_content")
    if thought and finish == "length":
        text = f"{spent}all of them reasoning: finish_reason is length, and nothing was said"
        yield _warning("answer.reasoning_only", text, at, fix="Raise max_output_tokens.")
    elif spent and finish != "length":
        text = f"{spent}but no content and no tool call (finish_reason {finish}): a reasoning or tool parser dropped it"
        yield _warning("answer.content_null", text, at, fix="Check the server's parsers against the model.")
    else:
        yield _warning("answer.content_null", f"no content and no tool call (finish_reason {finish})", at)


def _tool_call(call: Any, at: Path, finish: Any) -> Iterator[Finding]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        yield _error("answer.tool_call", "a tool call has no function name", (*at, "function"), found=call)
        return
    if not isinstance(call.get("id"), str):
        yield _warning("answer.tool_call", "a tool call has no id", (*at, "id"), found=call.get("id"))
    yield from _arguments(function, (*at, "function", "arguments"), finish)


def _arguments(function: Mapping[str, Any], at: Path, finish: Any) -> Iterator[Finding]:
    arguments, name = function.get("arguments"), function["name"]
    if not isinstance(arguments, str):
        text = f"the arguments of {name} are not text"
        yield _error("answer.arguments", text, at, found=arguments, expected="a JSON object, as a string")
        return
    try:
        value = json.loads(arguments)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(arguments.rstrip()) or error.msg.startswith("Unterminated string")
        why = f"are cut off (finish_reason {finish})" if cut else f"are not JSON: {error}"
        fix = (
            "Raise max_output_tokens."
            if cut
            else "Repair them before they are replayed: the next turn will be refused."
        )
        yield _error("answer.arguments", f"the arguments of {name} {why}", at, found=arguments, fix=fix)
        return
    if not isinstance(value, dict):
        yield _warning("answer.arguments", f"the arguments of {name} are no object", at, found=arguments)


def _responses(value: Mapping[str, Any]) -> Iterator[Finding]:
    output = value.get("output")
    if not isinstance(output, list):
        yield _error("answer.output", "output is not a list", ("output",), found=output, expected="a list of items")
        return
    for index, item in enumerate(output):
        yield from _item(item, ("output", index))
    yield from _usage(value.get("usage"))


def _item(item: Any, at: Path) -> Iterator[Finding]:
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str):
        text = "an output item has no type"
        yield _error("answer.item_type", text, (*at, "type"), found=item, fix="Add its type, say message.")
    elif kind not in OUTPUT_TYPES_0_7:
        text = f"Gym 0.7 knows no output item of type {kind}"
        yield _error("answer.item_type", text, (*at, "type"), found=kind)
    elif kind not in OUTPUT_TYPES_ALWAYS:
        text = f"older Gyms read message, function_call and reasoning only, not {kind}"
        fix = "Upgrade Gym, or turn the model's hosted tools off."
        yield _warning("answer.item_type", text, (*at, "type"), found=kind, fix=fix)
    elif kind == "message" and isinstance(item.get("content"), str):
        text = "a message's content is text: Gym 0.7 takes it for a message of the input, older ones refuse it"
        yield _warning("answer.content", text, (*at, "content"), found=item["content"], expected="a list of parts")
    elif kind == "message" and not isinstance(item.get("content"), list):
        text = "a message's content is not a list"
        yield _error("answer.content", text, (*at, "content"), found=item.get("content"), expected="a list of parts")
    elif kind == "function_call":
        yield from _function_call(item, at)
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        text = "a reasoning item has no summary list"
        yield _warning("answer.reasoning", text, (*at, "summary"), found=item.get("summary"), expected="a list")


def _function_call(item: Mapping[str, Any], at: Path) -> Iterator[Finding]:
    if not isinstance(item.get("name"), str):
        yield _error("answer.tool_call", "a function call has no name", (*at, "name"), found=item.get("name"))
    elif not isinstance(item.get("call_id"), str):
        yield _error("answer.tool_call", "a function call has no call_id", (*at, "call_id"), found=item.get("call_id"))
    else:
        yield from _arguments(item, (*at, "arguments"), item.get("status"))


def _usage(usage: Any) -> Iterator[Finding]:
    if usage is None:
        return
    if not isinstance(usage, dict):
        yield _error("answer.usage", "usage is not an object", ("usage",), found=usage, expected="an object or null")
        return
    for field in ("input_tokens_details", "output_tokens_details"):
        if field in usage and not isinstance(usage[field], dict):
            text = f"usage.{field} is {'null' if usage[field] is None else 'no object'}; older Gyms need an object"
            fix = "Upgrade Gym, or make the gateway fill it in."
            yield _warning("answer.usage", text, ("usage", field), expected="an object", fix=fix)
