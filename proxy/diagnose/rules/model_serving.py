"""Model serving: what stands behind the base URL answered wrongly, or could not run the model."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gymtap.proxy.core.literals import NotALiteral, value
from gymtap.proxy.diagnose.answers import answers, echo, read_answer
from gymtap.proxy.diagnose.evidence import Seen, listed, read_json
from gymtap.proxy.diagnose.rule import (
    GENERATION,
    NOT_SERVED,
    PROVIDER,
    Rule,
    Sight,
    Strength,
    View,
    both,
    exchange_sight,
    said,
    sight_of,
    web_pages,
)
from gymtap.proxy.diagnose.tool_answers import rewarded, unknown_tools
from gymtap.proxy.diagnose.tools import called, offered_tools
from gymtap.proxy.diagnose.transcripts import Echo, echoes
from gymtap.proxy.diagnose.wording import asked_model
from gymtap.schemas import Call, Layer, LeafKind, Severity

_ENGINE = (
    r"enginecore (?:encountered|failed|died|process)|enginedeaderror|engine ?core[^\n]{0,40}(?:died|dead|exit|fail)|"
    r"asyncenginedeaderror|engine (?:is )?(?:dead|not running|loop (?:is not running|has died))|"
    r"background loop (?:has errored|is not running)|mqengineerror|workerproc (?:failed|initialization)|"
    r"executor failed|engine process failed|server is not ready|model is (?:not ready|loading|currently loading)|"
    r"engine core initialization failed|response from (?:the )?detokenizer|scheduler (?:hit an exception|"
    r"process[^\n]{0,30}(?:died|exited))|(?:scheduler|self\.watchdog)[^\n]{0,30}(?:watchdog )?timeout"
)
_KERNEL = (
    r"cuda error:? [^\n]{0,20}(?:illegal (?:memory access|instruction)|device-side assert|misaligned address|"
    r"invalid (?:argument|configuration|device function)|no kernel image|cublas_status_(?:execution_failed|"
    r"internal_error|invalid_value))|cudaerrorillegal\w+|triton error \[cuda\]"
)
"""A kernel of the engine's that failed; what the driver or the hardware says is the node's."""
_OTHERS_4XX = {401, 402, 403, 404, 407, 408, 413, 429, 431, 499}
"""Statuses that say whose the failure is by themselves, so that other layers' rules know them."""
_START = (
    r"tokenizer class \w+ does not exist|model architectures? \[[^\]]*\] (?:are|is) not supported|trust_remote_code|"
    r"unrecognized (?:model|"
    r"configuration class)|max_model_len[^\n]{0,60}(?:greater|larger)|user-specified max_model_len|(?:tokenizer|model|"
    r"checkpoint|weights?)[^\n]{0,40}(?:could not be|cannot be|can't be|failed to|unable to)[^\n]{0,20}load|"
    r"can't load (?:the )?(?:tokenizer|model|config\w*|processor|weights)|does not recognize this architecture|"
    r"is not a (?:local folder|valid model identifier)|"
    r"safetensors[^\n]{0,30}error|tensor[- ]parallel[^\n]{0,60}divisible|total number of attention heads|"
    r"bfloat16 is only supported|unsupported dtype|unsupported quantization|flash[- ]?attn[^\n]{0,40}(?:not|error)"
)
_TEMPLATE = (
    r"jinja2\.|templateerror|undefinederror|chat template|conversation roles must alternate|"
    r"can only get item pairs from a mapping|'(?:str|dict|list|None\w*)[^']*' (?:object )?has no (?:element|"
    r"attribute)|only user and assistant roles|system role not supported|roles must alternate|"
    r"after the optional system message|can only concatenate str"
)


def _success_without_answer(view: View) -> Iterator[Sight]:
    """200 from a provider whose body holds no answer: an error, HTML, null, not JSON, no or empty choices."""
    for exchange in view.material.exchanges:
        if exchange.call not in PROVIDER or exchange.status is None or exchange.status >= 300:
            continue
        reason = _no_answer(exchange)
        if reason:
            sight = exchange_sight(view, exchange, f"200 {(exchange.response or '')[:200]}", reason)
            yield replace(sight, advice=_ABORT_ADVICE) if reason.startswith("finish_reason abort") else sight


_ABORT_ADVICE = (
    "The engine ended the request itself, as it does for new weights, a pause or flush of its cache, or a caller that "
    "went away: see in its log which of these happened at that time, and let the run hold or repeat requests over a "
    "weight update. A reward of 0 for it is no score: leave the row out or run it again."
)


def _no_answer(exchange: Seen) -> str | None:
    text = exchange.response
    if text is None or exchange.unwrapped.leaf.kind is LeafKind.HTML:
        return None
    leaf = exchange.unwrapped.leaf
    if not text.strip():
        return "an empty body"
    body = exchange.response_json
    if any(wrapper.kind == "sse" for wrapper in exchange.unwrapped.wrappers) or text.lstrip().startswith(
        ("data:", "event:", ":", "id:", "retry:")
    ):
        return "an error event within the stream" if leaf.kind is LeafKind.PROVIDER_ERROR else _cut_stream(text)
    if not isinstance(body, dict):
        return "null" if text.strip() == "null" else "a body that is not a JSON object"
    if body.get("error"):
        return f"an error in its body ({leaf.message[:120]})"
    return _empty_choices(body)


def _cut_stream(text: str) -> str | None:
    ended = "[DONE]" in text or "response.completed" in text or "response.incomplete" in text or "message_stop" in text
    return None if ended or '"finish_reason":"' in text.replace(" ", "") else "a stream that stops without its end"


def _empty_choices(body: dict[str, Any]) -> str | None:
    if "prompt_token_ids" in body or "output" in body or "content" in body:
        return None
    choices = body.get("choices")
    if not isinstance(choices, list):
        return "no choices"
    if not choices:
        return "empty choices"
    first = choices[0]
    if not isinstance(first, dict) or not isinstance(
        first.get("message", first.get("delta", first.get("text"))), dict | str
    ):
        return "a choice without a message"
    return _broken_off(first, body)


_ENDS = frozenset(
    {"stop", "length", "tool_calls", "function_call", "content_filter", "eos", "eos_token", "stop_sequence"}
)
"""Reasons for which a model's answer ends by itself or by its limit, in Chat Completions and its relatives."""


def _broken_off(choice: dict[str, Any], body: dict[str, Any]) -> str | None:
    """An answer without a word that the engine, and not the model, ended."""
    answer = read_answer(body)
    reason = choice.get("finish_reason")
    if answer is None or answer.text.strip() or answer.calls or not isinstance(reason, str) or reason.lower() in _ENDS:
        return None
    error = choice.get("error")
    told = error.get("message") if isinstance(error, dict) else None
    return f"finish_reason {reason}" + (f": {told}" if told else "")


def _not_finite(view: View) -> Iterator[Sight]:
    """NaN or Infinity in a provider's 200, which JSON does not have."""
    for exchange in view.material.of(Call.PROVIDER, judge=None):
        if (
            exchange.status == 200
            and exchange.response
            and re.search(r"[:\[,]\s*-?(?:NaN|Infinity)\b", exchange.response)
        ):
            yield exchange_sight(view, exchange, "NaN or Infinity in the body of a 200")


def _said_nothing(view: View) -> Iterator[Sight]:
    """A finished answer without text and without a tool call, although tokens were generated."""
    for exchange, answer in answers(view.material):
        nothing = not answer.text.strip() and not answer.calls
        ended = answer.finish is None or answer.finish.lower() in _ENDS
        if nothing and ended and not answer.cut and not exchange.judge and not _child_failed(view, exchange):
            what = "only reasoning" if answer.reasoning else "nothing"
            yield exchange_sight(view, exchange, f"finish {answer.finish}, {answer.completion_tokens} tokens", what)


def _said_nothing_told(view: View) -> Iterator[Sight]:
    """A result that finished without text or call although its usage tells of generated tokens."""
    if view.material.exchanges:
        return
    for source, where, row in view.result_rows:
        answer = read_answer(row.get("response"))
        if answer and not answer.text.strip() and not answer.calls and not answer.cut and answer.completion_tokens:
            text = f"{answer.completion_tokens} tokens generated, nothing in the output"
            yield Sight(source, where, text, what="nothing", pointer="/response/output")


_CALL_MARKUP = re.compile(
    r"<tool_call>|</tool_call>|<function=\w|<function_call>|\[TOOL_CALLS\]|<\|tool_calls?|<\|python_tag\|>|<TOOLCALL>|"
    "<\N{FULLWIDTH VERTICAL LINE}tool|<invoke name="
)


def _call_left_in_text(view: View) -> Iterator[Sight]:
    """A call of an offered tool that stands in the text as the model wrote it: no parser took it out."""
    for exchange, answer in answers(view.material):
        marked = _CALL_MARKUP.search(answer.text)
        called_one = marked and any(name in answer.text[marked.start() :] for name in offered_tools(view))
        if marked and called_one and not answer.calls and not answer.cut:
            yield exchange_sight(view, exchange, answer.text[marked.start() :][:200], marked[0])


def _bare_call(text: str, names: set[str]) -> str | None:
    """The name of the offered tool of which a text is nothing but a call: as JSON, as Python, or in Harmony's form."""
    harmony = re.search(r"\bto=(?:functions\.)?(\w+)", text) if "<|" in text else None
    if harmony and harmony[1] in names:
        return harmony[1]
    bare = re.sub(r"^```\w*\s*|\s*```$", "", text.strip())
    python = re.fullmatch(r"\[?\s*(\w+)\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\]?", bare)
    if python and python[1] in names:
        return python[1]
    return _json_call(bare, names)


def _json_call(text: str, names: set[str]) -> str | None:
    found = read_json(text) if text[:1] in {"{", "["} else None
    call = found[0] if isinstance(found, list) and found else found
    named = call.get("name", call.get("function")) if isinstance(call, dict) else None
    given = isinstance(call, dict) and call.keys() & {"arguments", "parameters", "args"}
    return named if given and isinstance(named, str) and named in names else None


def _call_is_the_text(view: View) -> Iterator[Sight]:
    """An answer that is nothing but a call of an offered tool, as text, in a row that got no reward."""
    names = offered_tools(view)
    if not names or rewarded(view.material.exchanges):
        return
    for exchange, answer in answers(view.material):
        name = None if answer.calls or answer.cut or exchange.judge else _bare_call(answer.text, names)
        if name is not None:
            yield exchange_sight(view, exchange, answer.text[:200], f"a call of {name}")


_TURN_TOKEN = re.compile(
    r"<\|(?:im_(?:start|end)|eot_id|eom_id|start_header_id|end_header_id|end_of_text|endoftext|end|user|assistant|"
    r"system|return|channel|message)\|>|<(?:start|end)_of_turn>|\[/?INST\]|"
    "<\N{FULLWIDTH VERTICAL LINE}(?:User|Assistant|end\N{LOWER ONE EIGHTH BLOCK}of)"
)


def _turn_tokens(view: View) -> Iterator[Sight]:
    """An answer that goes on past a turn's own tokens, in a row that got no reward."""
    if rewarded(view.material.exchanges):
        return
    for exchange, answer in answers(view.material):
        tokens = _TURN_TOKEN.findall(answer.text)
        if len(tokens) >= 2 and not exchange.judge and not _TURN_TOKEN.search(exchange.request or ""):
            yield exchange_sight(view, exchange, answer.text[:200], ", ".join(dict.fromkeys(tokens)))


def _one_id_twice(view: View) -> Iterator[Sight]:
    """One answer with several calls of one id, so that their outputs cannot be told apart."""
    for exchange, answer in answers(view.material):
        ids = list(_call_ids(exchange.response_json)) if len(answer.calls) > 1 else []
        twice = next((id_ for id_ in ids if ids.count(id_) > 1), None)
        if twice is not None:
            yield exchange_sight(
                view, exchange, f"{len(ids)} calls, {ids.count(twice)} of them with the id {twice}", twice
            )


def _call_ids(body: Any) -> Iterator[str]:
    choices = listed(body.get("choices")) if isinstance(body, dict) else []
    message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
    calls = listed(message.get("tool_calls")) if isinstance(message, dict) else []
    items = listed(body.get("output")) if isinstance(body, dict) else []
    for call in [*calls, *(item for item in items if isinstance(item, dict) and item.get("type") == "function_call")]:
        found = call.get("call_id", call.get("id")) if isinstance(call, dict) else None
        if found is not None:
            yield str(found)


def _child_failed(view: View, exchange: Seen) -> bool:
    return any(child.failed for child in view.tree.children[exchange.id])


def _malformed_arguments(view: View) -> Iterator[Sight]:
    """Tool arguments that are whole but not a JSON object."""
    for exchange, answer in answers(view.material):
        for name, arguments in answer.calls:
            if arguments.strip() and not _is_object(arguments) and not _only_cut(arguments):
                sight = exchange_sight(view, exchange, f"{name}({arguments[:160]})", name)
                yield sight if view.run_failed else replace(sight, shown=echo(view.material, arguments))


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (json.JSONDecodeError, RecursionError):
        return False


def _only_cut(arguments: str) -> bool:
    try:
        return not value(arguments).closed
    except NotALiteral:
        return False


def _unknown_tool(view: View) -> Iterator[Sight]:
    """404 for a tool that the row never offered: the model made the name up."""
    offered = offered_tools(view)
    for exchange in view.material.of(Call.TOOL):
        name = exchange.path.rsplit("/", 1)[-1]
        if exchange.status == 404 and name not in offered and (offered or called(view, name)):
            yield exchange_sight(
                view, exchange, f"404 on {exchange.path}; offered: {', '.join(sorted(offered)) or 'none'}", name
            )


def _told_unknown(view: View) -> Iterator[Sight]:
    offered = offered_tools(view)
    for exchange, name, text in unknown_tools(view.material.exchanges):
        if offered and name not in offered:
            yield exchange_sight(view, exchange, text[:300], name)


_PERMANENT = r"\b401\b|unauthori[sz]ed|api[_ ]?key|authentication|quota|billing|credit|permanentendpoint"
"""What Gym 0.7.0 remembers as an endpoint's permanent error: a rejected key, or a quota that is used up."""


def _poisoned(view: View) -> Iterator[Sight]:
    """A model server that answers with a provider's error although it asked no provider."""
    if not view.material.of(Call.RUN, Call.RESPONSES, judge=None):
        return
    asked_provider = {
        view.tree.parents[e.id].id for e in view.material.of(Call.PROVIDER, judge=None) if e.id in view.tree.parents
    }
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or exchange.call not in {Call.MODEL, Call.JUDGE} or exchange.id in asked_provider:
            continue
        if exchange.wraps and re.search(_PERMANENT, failure.said, re.IGNORECASE):
            yield exchange_sight(view, exchange, failure.said[:300], exchange.unwrapped.leaf.message[:160])


def _tokens_do_not_extend(view: View) -> Iterator[Sight]:
    """The next turn's prompt tokens do not begin with this turn's prompt and output tokens."""
    previous: list[int] | None = None
    for exchange in view.material.of(Call.PROVIDER):
        prompt, generated = _token_ids(exchange.response_json)
        if prompt is None:
            continue
        if previous is not None and len(prompt) > len(previous) and prompt[: len(previous)] != previous:
            place = next(n for n, (one, other) in enumerate(zip(prompt, previous, strict=False)) if one != other)
            text = f"prompt_token_ids do not begin with the tokens of the turn before: they differ at index {place}"
            yield exchange_sight(view, exchange, text)
        previous = prompt + generated


def _token_ids(body: Any) -> tuple[list[int] | None, list[int]]:
    if not isinstance(body, dict):
        return None, []
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    prompt = body.get("prompt_token_ids", choice.get("prompt_token_ids"))
    generated = choice.get("token_ids", choice.get("generation_token_ids", body.get("generation_token_ids")))
    if not isinstance(prompt, list):
        return None, []
    return prompt, generated if isinstance(generated, list) else []


def _broken_answer(view: View) -> Iterator[Sight]:
    """A model server that could not read a provider's 200: the fault is in the provider's body."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.call not in {Call.MODEL, Call.JUDGE} or failure.status != 500:
            continue
        unreadable = re.search(_UNREADABLE, failure.said) or _lacks_key(view, exchange)
        if unreadable and not _child_failed(view, exchange):
            told = failure.said.partition("\n")[0][:160]
            sight = exchange_sight(view, exchange, failure.said[:300], told + _text_there(view, exchange, told))
            yield replace(sight, advice=_IDS_ADVICE) if re.search(r"'\w*token_ids'", told) else sight


_IDS_ADVICE = (
    "The engine did not send the token ids that the model server asked for (return_token_ids): serve with a version "
    "that knows this parameter (its `GET /version` and the start of its log tell which runs), or switch off in the "
    "model server's configuration what asks for them, where nothing is trained."
)
_CHARS_AROUND = 24


def _text_there(view: View, exchange: Seen, words: str) -> str:
    """What the provider's body has at the character at which a parser gave up; empty where neither is known."""
    place = re.search(r"\bchar (\d+)\)", words)
    bodies = [child.response for child in view.tree.children[exchange.id] if child.call is Call.PROVIDER]
    if place is None or not bodies or not bodies[-1]:
        return ""
    at = int(place[1])
    there = bodies[-1][max(0, at - _CHARS_AROUND) : at + _CHARS_AROUND]
    return f"; there the provider's body has …{there}…" if there else ""


def _lacks_key(view: View, exchange: Seen) -> bool:
    """Whether a model server raised KeyError at a key that the provider's good answer does not have."""
    missing = re.search(r"KeyError(?:\(|: )'(\w+)'", exchange.unwrapped.leaf.text)
    answers_ = [child.response for child in view.tree.children[exchange.id] if child.call is Call.PROVIDER]
    return bool(missing and answers_ and answers_[-1]) and f'"{missing[1]}"' not in (answers_[-1] or "")  # type: ignore[index]  # just found


_ABOVE_MODEL = {Call.RUN: 2, Call.RESPONSES: 1}
"""How often what a model server raised is wrapped at each hop above it; a tool's exception is fed to the model."""


def _broken_answer_above(view: View) -> Iterator[Sight]:
    """The same, told by a hop above the model server alone: the number of wrappers says who raised."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if (
            exchange is None
            or exchange.call not in _ABOVE_MODEL
            or exchange.unwrapped.leaf.kind is not LeafKind.EXCEPTION
        ):
            continue
        wrappers = sum(wrapper.kind == "gym" for wrapper in exchange.unwrapped.wrappers)
        below = view.tree.children[exchange.id]
        if wrappers == _ABOVE_MODEL[exchange.call] and not below and re.search(_UNREADABLE, failure.said):
            yield exchange_sight(view, exchange, failure.said[:300], failure.said.partition("\n")[0][:160])


_broken_told = said("", calls=frozenset({Call.OTHER}), sources=("result", "row"), unless=r"NeMoGym|VerifyResponse")


def _broken_answer_told(view: View) -> Iterator[Sight]:
    """The same, told by a sidecar: a verifier's or an agent's own exception is wrapped once, a model server's twice."""
    for sight in _broken_told(view):
        innermost = sight.failure.innermost if sight.failure else None
        wrappers = sum(wrapper.kind == "gym" for wrapper in innermost.wrappers) if innermost else 0
        unreadable = re.search(_UNREADABLE, sight.failure.said) if sight.failure else None
        if unreadable and wrappers >= _ABOVE_MODEL[Call.RUN]:
            yield replace(sight, what=unreadable[0])


_UNREADABLE = (
    r"JSONDecodeError|UnicodeDecodeError|surrogates not allowed|KeyError(?:\(|: )'(?:choices|message|output|content|"
    r"usage|index|delta|finish_reason|logprobs|\w*token_ids)'\)?|IndexError|'NoneType' object is not subscriptable|"
    r"validation errors? for \w*(?:ChatCompletion|Completion)\b|ContentTypeError|usage\.\w+_details|"
    r"usage(?:\.\w+)?\n\s+(?:Input|Field)"
)


def _empty_told(view: View) -> Iterator[Sight]:
    """A provider's body that others wrap, and that is empty: only a 5xx comes without a word."""
    for failure in (*view.exchange_failures, *view.told_failures):
        leaf = failure.innermost.leaf if failure.innermost else None
        wrapped = failure.exchange is None or failure.exchange.call is not Call.PROVIDER
        told = failure.source != "log" and failure.call is Call.PROVIDER and wrapped and not failure.judge
        if told and leaf is not None and leaf.kind is LeafKind.EMPTY:
            yield sight_of(failure, "it sent an empty body")


def _token_counts(view: View) -> Iterator[Sight]:
    """Result items whose token ids and log-probabilities do not go together, or are none although there is text."""
    for source, where, row in view.result_rows:
        response = row.get("response")
        items = response.get("output") if isinstance(response, dict) else None
        for number, item in enumerate(items if isinstance(items, list) else ()):
            lengths = _token_lengths(item)
            if len(set(lengths.values())) > 1 or (lengths and not any(lengths.values()) and item.get("content")):
                text = ", ".join(f"{count} {name}" for name, count in lengths.items())
                yield Sight(source, where, text, what=text, pointer=f"/response/output/{number}")


def _token_lengths(item: Any) -> dict[str, int]:
    names = ("generation_token_ids", "generation_log_probs")
    return {name: len(item[name]) for name in names if isinstance(item, dict) and isinstance(item.get(name), list)}


def _null_details(view: View) -> Iterator[Sight]:
    """A model server that rejects a null or missing part of a provider's usage or envelope."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.call not in {Call.MODEL, Call.JUDGE} or (failure.status or 0) < 500:
            continue
        text = exchange.unwrapped.leaf.text
        places = re.findall(r"(?m)^([a-z_][\w.-]*)\n\s+(?:Input|Field)", text)
        lacking = re.search(r"type=missing|input_value=None|none_required", text)
        if places and (lacking or all(not place.startswith("output") for place in places)):
            yield exchange_sight(view, exchange, text[:300], ", ".join(places[:4]))


_ENGINE_SERVER = re.compile(r"apiserver|enginecore|vllm|sglang|worker_tp|\btp\d", re.IGNORECASE)
_ENGINE_FRAME = re.compile(
    r"File \"[^\"\n]*/(?:vllm|sglang|tensorrt_llm|lmdeploy|text_generation_server|flashinfer|xgrammar|torch)/[^\"\n]*\""
)
_FRAME = re.compile(r"File \"[^\"\n]+\"")
_EXCEPTION_LINE = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b[:(]?", re.MULTILINE)


def _engine_raised(view: View) -> Iterator[Sight]:
    """An exception in the serving engine's own log: the last frame is in its code, or the line is its process'."""
    for failure in view.told_failures:
        raised = _EXCEPTION_LINE.search(failure.said) if failure.source == "log" else None
        if raised is None or failure.recovered:
            continue
        frames = _FRAME.findall(failure.said)
        if _ENGINE_FRAME.search(frames[-1]) if frames else _ENGINE_SERVER.search(failure.server):
            last = list(_EXCEPTION_LINE.finditer(failure.said))[-1]
            yield sight_of(failure, failure.said[last.start() :].partition("\n")[0][:200])


def _dropped(view: View) -> Iterator[Sight]:
    """A model that a provider says it does not serve, although it answered under that name earlier in the recording."""
    for sight in _not_served(view):
        exchange = sight.exchange
        if exchange is not None and any(_served(view, earlier, exchange) for earlier in view.material.exchanges):
            yield sight


_not_served = said(NOT_SERVED, calls=GENERATION, statuses=(400, 404), sources=("exchange",))


def _served(view: View, earlier: Seen, exchange: Seen) -> bool:
    """Whether an earlier call asked the same server for the same model and got an answer."""
    asked = asked_model(exchange)
    return (
        asked is not None
        and earlier.status is not None
        and not earlier.failed
        and (earlier.server, earlier.call, asked_model(earlier)) == (exchange.server, exchange.call, asked)
        and view.tree.began_after(exchange, earlier)
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="model.null_envelope",
        layer=Layer.MODEL_SERVING,
        needs="A model server's validation error about the provider's envelope, or about something null or missing",
        sees=_null_details,
        cause="The provider's answer lacks parts that Gym's model server requires: {what}.",
        next_action="Fill them in where the provider or its proxy makes the answer, or use a Gym whose adapter takes "
        "null there.",
        source="LiteLLM's Responses bridge sends null usage details",
        strength=Strength.PROVEN,
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="model.token_counts",
        layer=Layer.MODEL_SERVING,
        needs="Token ids and log-probabilities of one output item in different numbers, or none for a text",
        sees=_token_counts,
        cause="The serving path gave token ids and log-probabilities that do not go together: {what}.",
        next_action="Leave the row out of training, and compare with the provider's own token ids and logprobs of "
        "that turn (a request with top_logprobs: null gets none from vLLM).",
        source="NeMo RL trains on generation_token_ids with generation_log_probs",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.poisoned_client",
        layer=Layer.MODEL_SERVING,
        needs="A model server's wrapped provider error without a provider call under it",
        sees=_poisoned,
        cause="The model server repeats an old provider error without asking the provider: {what}.",
        next_action="Repair what the old error says, then restart the model server; it answers with that error until "
        "restarted.",
        source="Gym 0.7.0: a 401 or quota error stops the model server's client for good",
        strength=Strength.STATUS,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.engine_dead",
        layer=Layer.MODEL_SERVING,
        needs="The serving engine's words that it died or is not running",
        sees=said(_ENGINE),
        cause="The serving engine died or is not ready, while its API process still answers: {what}.",
        next_action="Read the engine's own log for its first error, restart it, and look at the first request that "
        "failed.",
        source="vLLM 0.32 EngineDeadError",
    ),
    Rule(
        id="model.dropped",
        layer=Layer.MODEL_SERVING,
        needs="A provider's words that it does not serve a model under whose name it has answered before",
        sees=_dropped,
        cause="The provider served this model a moment ago and does not any more: {what}.",
        next_action="Find what unloaded or renamed it (a newer adapter or weights, a restart), keep what rollouts in "
        "flight still ask for, and run this row again; the configured name was right when the row began.",
        source="vLLM and SGLang load and unload adapters while they serve",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.unavailable",
        layer=Layer.MODEL_SERVING,
        needs="A provider's words that the model or deployment is out of service for now",
        sees=said(
            r"\bdegraded function|(?:is|state|status)\W{1,4}degraded|(?:model|deployment|function|"
            r"endpoint)[^\n]{0,60}(?:temporarily unavailable|"
            r"(?:currently |is )not (?:available|ready|deployed|running|active)|paused|under maintenance)",
            calls=GENERATION,
            statuses=(400, 404, 409, 422, 424, 500, 503),
        ),
        cause="The provider says that this model is out of service for now: {what}.",
        next_action="Wait for it or use another deployment; the same request works again once it serves, so nothing "
        "in the row has to change.",
        source="NVIDIA NIM, Azure and Hugging Face endpoints",
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="model.parser",
        layer=Layer.MODEL_SERVING,
        needs="A tool or reasoning parser's words that it does not fit the model",
        sees=said(
            r"(?:tool|reasoning) parser[^\n]{0,60}(?:could not|cannot|failed|not found|invalid)|"
            r"(?:invalid|unknown) (?:tool call|tool|reasoning) parser[^\n]{0,60}|"
            r"does not support (?:the )?(?:chat )?completions api|could not locate tool call"
        ),
        cause="The parser or API that the engine was started with does not fit this model: {what}.",
        next_action="Choose the --tool-call-parser and --reasoning-parser that the model's card names, and restart "
        "the engine.",
        source="vLLM parsers",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.tokens_told",
        layer=Layer.MODEL_SERVING,
        needs="A trainer's words that a turn's tokens do not continue the one before",
        sees=said(
            r"(?:non-?|not )contiguous[^\n]{0,120}|token(?: ?ids?|s)[^\n]{0,60}(?:do not|don't|does not|not)[^\n]{0,30}"
            r"(?:prefix|start with|extend|match)|prefix[- ]stab\w+|retokeni[sz]ation[^\n]{0,40}mismatch|"
            r"no generation data[^\n]{0,60}|(?:generation|prompt)_token_ids[^\n]{0,60}(?:missing|empty|none|length)",
            sources=("log", "result", "row"),
        ),
        cause="The tokens of the turns do not continue each other: {what}.",
        next_action="Use the serving path that keeps the prefix's tokens, or end the trajectory at the first break.",
        source="NeMo RL's check of Gym's token ids",
    ),
    Rule(
        id="model.start",
        layer=Layer.MODEL_SERVING,
        needs="The serving engine's words that it cannot load or run this model",
        sees=said(_START, sources=("log", "row", "result")),
        cause="The engine cannot serve this model as it was started: {what}.",
        next_action="Correct the model path, length, parallelism or dtype in the engine's flags and wait for GET "
        "/v1/models.",
        source="vLLM start-up messages",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.chat_template",
        layer=Layer.MODEL_SERVING,
        needs="The chat template's words",
        sees=both(
            said(_TEMPLATE, calls=PROVIDER, statuses=(400, 500), sources=("exchange", "result", "row")),
            said(_TEMPLATE, calls=PROVIDER, statuses=(400, 500), sources=("log",), unless=r"nemo_gym/|responses_api_"),
        ),
        cause="The model's chat template cannot render these messages: {what}.",
        next_action="Give the engine a template that takes this shape (tools, roles, arguments as objects), or change "
        "the messages.",
        source="transformers and vLLM render messages with the model's Jinja template",
        strength=Strength.PROVEN,
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="model.web_page",
        layer=Layer.MODEL_SERVING,
        needs="200 from the provider with an HTML page that is neither a login nor a web application",
        sees=web_pages(of_people=False),
        cause="The provider answered 200 with a web page instead of an answer ({what}).",
        next_action="Read the log of the gateway or proxy that made the page, and treat such a 200 as a failure; ask "
        "GET <base_url>/models whether an API stands there at all.",
        source="Gateways that mask an upstream error as 200",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.kernel",
        layer=Layer.MODEL_SERVING,
        needs="A CUDA kernel's failure, as the engine tells it",
        sees=said(_KERNEL),
        cause="A kernel of the serving engine failed, and takes the engine with it: {what}.",
        next_action="Restart the engine, find the first request that failed and send it alone; try the engine's other "
        "attention or quantization kernels, or another version. If other programs fail on this GPU too, "
        "exclude the node.",
        source="CUDA and cuBLAS errors as PyTorch tells them",
        strength=Strength.PROVEN,
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="model.success_without_answer",
        layer=Layer.MODEL_SERVING,
        needs="200 from the provider with {error, null, no choices, not JSON, a cut stream}",
        sees=_success_without_answer,
        cause="The provider answered 200 with {what}, and no answer.",
        next_action="Read the provider's (or the proxy's before it) own log for this request and treat such a 200 as "
        "a failure.",
        source="Gateways that mask an upstream error as 200; vLLM streams put errors in an event",
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="model.not_finite",
        layer=Layer.MODEL_SERVING,
        needs="NaN or Infinity in a provider's JSON, or its words that floats are out of range",
        sees=both(
            _not_finite,
            said(
                r"out of range float values|not json compliant|nan[^\n]{0,30}log_?prob|log_?prob[^\n]{0,30}(?:nan|"
                r"inf)\b",
                calls=GENERATION,
            ),
        ),
        cause="The model produced a number that JSON cannot carry (NaN or infinite), usually a log-probability.",
        next_action="Switch logprobs off for this row or sanitize them, and see whether the weights or the dtype "
        "produce NaN.",
        source="Python's json and Starlette refuse or emit NaN",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="model.broken_answer",
        layer=Layer.MODEL_SERVING,
        needs="A model server's exception while reading a provider's 200",
        sees=both(
            _broken_answer,
            _broken_answer_above,
            _broken_answer_told,
            said(rf"responses_api_models[\s\S]*(?P<what>{_UNREADABLE})", sources=("log",)),
        ),
        cause="The model server could not read what the provider answered: {what}.",
        next_action="Look at the body that the provider answered this call with (`gymtap tree ROW`, then `gymtap show` "
        "of the provider's exchange), for it is in no log of Gym's; mend it in the engine or in the proxy before it.",
        source="Gym 0.7.0 model servers index choices without checking",
        strength=Strength.STATUS,
    ),
    Rule(
        id="model.malformed_arguments",
        layer=Layer.MODEL_SERVING,
        needs="Tool arguments that are not a JSON object",
        sees=_malformed_arguments,
        cause="The model's call to {what} has arguments that are not JSON, and its history repeats them.",
        next_action="Check the tool parser of this model; blank or repair such arguments before they go into the next "
        "turn.",
        source="vLLM parses the history's arguments and answers 400 for the next turn",
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="model.malformed_history",
        layer=Layer.MODEL_SERVING,
        needs="A 400 with a JSON parser's words about what was sent",
        sees=said(
            r"expecting (?:',' delimiter|value|property name|':' delimiter)|unterminated string|extra data: line|"
            r"invalid \\\\?escape|unexpected end of (?:json|data|hex)|json (?:parse|decode) error|"
            r"invalid json arguments|arguments[^\n]{0,40}(?:not valid json|must be valid json|invalid json)",
            calls=GENERATION,
            statuses=(400, 422),
            sources=("exchange", "result", "row"),
        ),
        cause="The provider cannot parse the tool arguments that an earlier turn left in the history: {what}.",
        next_action="Blank or repair malformed arguments before they go into the next turn, and check the tool parser.",
        source="vLLM 0.32 parses assistant tool_calls of the history",
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="model.tool_choice",
        layer=Layer.MODEL_SERVING,
        needs="A provider's words that tool_choice came without tools",
        sees=said(
            r"tool_choice[`'\"]? ?(?:,|is|was|cannot|can't|may)?[^\n]{0,40}(?:[`'\"]tools[`'\"]? must be set|"
            r"without tools|only (?:allowed|valid) when|tools (?:is|are) (?:not )?specified)"
        ),
        cause="The model server sent tool_choice without tools.",
        next_action="Drop tool_choice from the row, or use a Gym whose converter omits it when there are no tools.",
        source="vLLM and OpenAI request validation",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="model.unknown_tool",
        layer=Layer.MODEL_SERVING,
        needs="404 for a tool that the row does not offer",
        sees=both(_unknown_tool, _told_unknown, echoes(Echo.NOT_FOUND, offered=False)),
        cause="The model called a tool that nobody offers ({what}); the error was fed back to it as the tool's output.",
        next_action="Count it as the model's behaviour, or check the tool parser if the name is garbled.",
        source="Gym pastes a tool's 404 into function_call_output",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.said_nothing",
        layer=Layer.MODEL_SERVING,
        needs="A finished answer with neither text nor a tool call",
        sees=both(_said_nothing, _said_nothing_told),
        cause="The provider finished an answer that holds {what}: its reasoning or tool parser dropped the rest.",
        next_action="Compare with the raw tokens (return_token_ids), and check --reasoning-parser and "
        "--tool-call-parser for this model.",
        source="vLLM parsers that swallow what they cannot read",
        strength=Strength.NAMED,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.call_in_text",
        layer=Layer.MODEL_SERVING,
        needs="A tool call in the text of an answer, in markup, JSON or Python, of a tool that is offered",
        sees=both(_call_left_in_text, _call_is_the_text),
        cause="The model called a tool, but the call was left in the text ({what}), so no tool ran.",
        next_action="Start the engine with the --tool-call-parser of this model (and --enable-auto-tool-choice); do "
        "not count this row.",
        source="vLLM and SGLang tool parsers take the markup out of the text",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.turn_tokens",
        layer=Layer.MODEL_SERVING,
        needs="Tokens that begin or end a turn in the text of an answer, in a row without reward",
        sees=_turn_tokens,
        cause="The answer runs on through the tokens that separate turns ({what}): the engine neither stops at them "
        "nor takes them out.",
        next_action="Compare the chat template with the model's tokenizer and generation_config (eos_token_id, stop), "
        "and do not count this row.",
        source="ChatML, Llama, Gemma, Mistral, Harmony and DeepSeek templates",
        strength=Strength.NAMED,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.call_ids",
        layer=Layer.MODEL_SERVING,
        needs="Several tool calls of one id in one answer",
        sees=_one_id_twice,
        cause="The provider gave several calls of one answer the id {what}, so their outputs cannot be told apart.",
        next_action="Use an engine version or tool parser that numbers its calls, or number them in the model server.",
        source="OpenAI: call ids are unique",
    ),
    Rule(
        id="model.tokens_do_not_extend",
        layer=Layer.MODEL_SERVING,
        needs="prompt_token_ids of a turn that do not begin with the turn before",
        sees=_tokens_do_not_extend,
        cause="The tokens of this turn's prompt do not continue the turn before, so training would learn from tokens "
        "that were not generated.",
        next_action="Use the serving path that keeps the prefix's tokens, or end the trajectory at the first break.",
        source="Re-tokenised or re-templated history, as NeMo RL checks for",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="model.grammar_backend",
        layer=Layer.MODEL_SERVING,
        needs="A structured-output backend that is missing or fails for every schema",
        sees=said(
            r"structural[_ ]tag (?:is )?not supported|no module named '(?:xgrammar|outlines|lmformatenforcer|"
            r"llguidance)|unsupported structured output (?:type|backend)|grammar backend[^\n]{0,40}(?:not|fail)"
        ),
        cause="The engine's structured-output backend cannot do what was asked: {what}.",
        next_action="Choose another --structured-outputs-config.backend (auto or xgrammar) and restart the engine.",
        source="vLLM 0.32: one backend for an engine's life",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.engine_raised",
        layer=Layer.MODEL_SERVING,
        needs="An exception from the serving engine's own code or process in a log, which no other rule knows",
        sees=_engine_raised,
        cause="The serving engine raised: {what}.",
        next_action="Read the engine's log up from there for its first error; look at the request that was running, "
        "the engine's version and its flags.",
        source="vLLM and SGLang logs name their processes; tracebacks name their packages",
        strength=Strength.FALLBACK,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="model.provider_5xx",
        layer=Layer.MODEL_SERVING,
        needs="500 from the provider, or its words about an internal error",
        sees=both(
            said(calls=PROVIDER, statuses=range(500, 600), sources=("exchange", "log"), judge=False),
            _empty_told,
            said(
                r"internalservererror|internal server error|internal error",
                calls=PROVIDER,
                sources=("result", "row", "told"),
                judge=False,
            ),
        ),
        cause="The model provider failed inside: {what}.",
        next_action="Read the provider's own log around this request, and send this one row again with request logging "
        "on; where only some rows fail, look at what they ask for (logprobs: `Out of range float values`, "
        "response_format, media).",
        source="HTTP 5xx",
        strength=Strength.STATUS,
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="model.provider_4xx",
        layer=Layer.MODEL_SERVING,
        needs="A 4xx from the provider with words that no other rule knows",
        sees=both(
            said(
                calls=PROVIDER, statuses={*range(400, 500), 501} - _OTHERS_4XX, sources=("exchange", "log"), judge=False
            ),
            said(calls=PROVIDER, sources=("result", "row", "told"), judge=False),
        ),
        cause="The provider rejected the request: {what}.",
        next_action="Send the recorded request again and change one field at a time (`gymtap replay EXCHANGE --set "
        "POINTER=VALUE`); then decide whether row, converter or provider is at fault.",
        source="HTTP 4xx",
        strength=Strength.FALLBACK,
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="model.recovered",
        layer=Layer.MODEL_SERVING,
        needs="A provider call that failed and then succeeded",
        sees=lambda view: (
            exchange_sight(view, f.exchange, f"{f.status or f.error}, then answered", str(f.status or f.error))
            for f in view.exchange_failures
            if f.recovered and f.exchange is not None and f.call in GENERATION
        ),
        cause="The provider failed ({what}) and answered when asked again.",
        next_action="Nothing for this row; count how often it happens.",
        source="Gym 0.7.0 tries three times",
        strength=Strength.FALLBACK,
        severity=Severity.NOTE,
    ),
)
