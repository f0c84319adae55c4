"""Data and schema: the row, or what it carries, does not fit what reads it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gymtap.proxy.check.vllm_rules import turned_down_keyword
from gymtap.proxy.diagnose.answers import answers, read_answer
from gymtap.proxy.diagnose.before_sending import before_sending
from gymtap.proxy.diagnose.evidence import SeenFile, listed, read_json
from gymtap.proxy.diagnose.parameters import in_row, refused_parameter
from gymtap.proxy.diagnose.rows import Flaw, line_flaws, row_flaws
from gymtap.proxy.diagnose.rule import (
    CONTENT_POLICY,
    GENERATION,
    NO_SESSION,
    NOT_OVERFLOW,
    OVERFLOW,
    RESOURCES,
    Rule,
    Sees,
    Sight,
    Strength,
    View,
    both,
    exchange_sight,
    said,
    scored_unjudged,
    sight_of,
)
from gymtap.proxy.diagnose.tool_answers import hopeless_tools
from gymtap.proxy.diagnose.transcripts import Echo, echoes
from gymtap.schemas import Call, Layer, Severity

_GRAMMAR = (
    r"grammar error|invalid grammar|invalid structural tag|not supported by xgrammar|unsupported json schema|"
    r"json schema[^\n]{0,60}(?:unsupported|not supported|invalid|is invalid)|invalid json schema|"
    r"invalid_function_parameters|invalid schema for (?:function|response_format)|(?:fail(?:ed|s|ure)?|error|can ?not|"
    r"can't|could not|couldn't|unable)[^\n]{0,20}(?:compil|convert|translat|pars|build|process|"
    r"validat)\w*[^\n]{0,40}(?:schema|grammar|regex)|schema (?:is not valid|compilation)|(?:schema|"
    r"grammar)[^\n]{0,40}(?:not supported|unsupported|could not be|cannot be|can't be)|unimplemented keys|"
    r"unknown format|invalid tool (?:definition|schema)|tools?\.\d+\.(?:function|custom|input_schema|parameters|name)|"
    r"input_schema|look-?(?:around|ahead|behind)|too many states|"
    r"unsatisfiable schema|xgrammar[^\n]{0,60}(?:error|unsupported)|outlines_core|"
    r"regex parse error|tools\[\d+\]|tool names must be unique|function\.(?:name|parameters)|"
    r"is not of type ['\"]object['\"]"
)
_MEDIA_WORDS = (
    r"invalid[_ ]image|cannot identify image|could not (?:load|decode|fetch|download) (?:the )?(?:image|video|audio|"
    r"media)|image_url|incorrect padding|failed to (?:load|fetch|open|decode) (?:image|media|video|audio)|"
    r"not a multimodal model|"
    r"at most \d+ (?:image|video|audio)|unsupported image|mime type|multi_modal_data|"
    r"allowed-local-media-path|url must be either a http|failed to (?:fetch|load) media"
)
_MEDIUM = r"(?:image|video|audio|file)(?:_url|s?\b|_data)|input_(?:image|audio|file)|mm_data|media"
_MEDIA_SHAPE = (
    rf"invalid type for [^\n]{{0,80}}(?:{_MEDIUM})|(?:{_MEDIUM})[^\n]{{0,60}}(?:expected an? [^\n]{{0,60}}but got an?|"
    r"input should be (?:a valid )?(?:an? )?(?:string|dict\w*|object|url)|must be an? (?:string|object|dict\w*)|"
    r"field required|(?:is )?missing)"
)
"""Words that a media item is of the wrong kind: its address was not even looked at."""
_GONE = (
    r"(?:fetch|download|load|retriev)\w*[^\n]{0,60}\b(?:image|media|video|audio|file|url|https?:)[^\n]{0,200}"
    r"\b(?:40[134]|410)\b|\b(?:40[134]|410) client error\b[^\n]{0,60}\burl: ?http|"
    r"\b(?:image|media|video|audio)\b[^\n]{0,120}(?:status(?: code)?|http error|client error)\W{0,3}(?:40[134]|410)\b"
)
"""Words that whoever holds a medium answered that it is not there, or is not for this caller."""
_ENCODING = (
    r"surrogates not allowed|textencodeinput must be|unicode(?:en|de)codeerror|codec can't (?:en|de)code|"
    r"invalid utf-?8|lone (?:leading |trailing )?surrogate|utf-8[^\n]{0,40}surrogate|"
    r"type is not json serializable: (?:float|nan)"
)
_MESSAGES = (
    r"\"param\": ?\"(?:messages|input|tools|prompt|functions)\b|invalid '(?:tools|messages|input|functions)|"
    r"array too long|array_above_max_length|invalid (?:message )?role|unexpected message role|unknown role|"
    r"['\"]body['\"], ?['\"](?:messages|input|tools)['\"]|messages\.\d+|messages\[\d+\]|input\[\d+\]|input\.\d+|"
    r"body\.messages|body\.input|"
    r"invalid value: '[^']*'\. supported values|[`'\"]tools[`'\"]? must not be|invalid value for `?(?:tool_choice|"
    r"function)|tool_choice[^\n]{0,40}(?:not found|not (?:in|one of)|does not match any)|messages must not be empty|"
    r"last message must|"
    r"(?:must|should) (?:be|have) non-?empty|content[^\n]{0,40}(?:is|are|be|cannot be) empty|must contain the word|"
    r"'nonetype' object is not iterable"
)


def _line_sights(*checks: str) -> Sees:
    def sees(view: View) -> Iterator[Sight]:
        for source, name, number, line in _dataset_lines(view):
            for flaw in line_flaws(line):
                if flaw.check in checks:
                    yield _flaw_sight(source, f"{name}{number}", flaw, number)

    return sees


def _dataset_lines(view: View) -> Iterator[tuple[str, str, int, str]]:
    for number, line in enumerate(view.material.rows, 1):
        yield "row", "line ", number, line
    for file in view.material.files:
        if file.name.endswith((".jsonl", ".ndjson")) and not _is_output(file):
            for number, line in enumerate(file.lines, 1):
                yield "file", f"{file.name}:", number, line


def _is_output(file: SeenFile) -> bool:
    """Whether a run wrote it: its last line may be cut, which is another layer's matter."""
    return bool(re.search(r"out|rollout|result|materialized|failures", file.name, re.IGNORECASE)) or any(
        '"reward"' in line or "_ng_rollout_index" in line for line in file.lines[:5]
    )


def _flaw_sight(source: str, where: str, flaw: Flaw, order: float = 0.0, *, alone: bool = False) -> Sight:
    """A flaw as a sight; `alone` leaves the line's number out of the words, for there is but one row."""
    text = f"{flaw.pointer} {flaw.message}" if flaw.pointer else flaw.message
    return Sight(source, where, text, order, text if alone else f"{where} {text}", flaw.pointer)


def _row_sights(*checks: str) -> Sees:
    def sees(view: View) -> Iterator[Sight]:
        for source, name, number, line in _dataset_lines(view):
            row = read_json(line)
            if row is None or (isinstance(row, dict) and row.keys() & {"_ng_failure_class", "reward", "failure_kind"}):
                continue
            alone = source == "row" and len(view.material.rows) == 1
            for flaw in row_flaws(row):
                if flaw.check in checks:
                    named = _with_tool_name(flaw, row) if flaw.check in {"tools", "schema"} else flaw
                    yield _flaw_sight(source, f"{name}{number}", named, number, alone=alone)

    return sees


def _sent_not_finite(view: View) -> Iterator[Sight]:
    """A request whose body holds NaN or Infinity, which JSON does not have."""
    for exchange in view.material.exchanges:
        if exchange.failed and exchange.request and re.search(r"[:\[,]\s*-?(?:NaN|Infinity)\b", exchange.request):
            text = f"NaN or Infinity sent to {exchange.path}"
            yield exchange_sight(view, exchange, text, text)


def _sent_lone_surrogate(view: View) -> Iterator[Sight]:
    for exchange in view.material.exchanges:
        sent = exchange.request if exchange.failed else None
        if sent and any(flaw.check == "surrogate" for flaw in line_flaws(sent)):
            text = f"half a surrogate pair sent to {exchange.path}"
            yield exchange_sight(view, exchange, text, text)


def _broken_json_sent(view: View) -> Iterator[Sight]:
    """FastAPI's json_invalid: what was sent is not JSON."""
    for failure in view.exchange_failures:
        if (
            failure.exchange
            and failure.status in {400, 422}
            and re.search(r"json_invalid|JSON decode error|error parsing the body", failure.said)
        ):
            yield exchange_sight(view, failure.exchange, failure.said[:300], failure.exchange.path)


def _no_generation(view: View) -> Iterator[Sight]:
    """A result that holds no assistant text and no call, and whose usage tells of no generated token."""
    if view.material.exchanges:
        return
    for source, where, row in view.result_rows:
        response = row.get("response")
        answer = read_answer(response)
        nothing = answer and not answer.text.strip() and not answer.calls and not answer.completion_tokens
        if answer and nothing and isinstance(response, dict) and (response.get("output") or answer.finish):
            text = f"no generation in response.output ({answer.finish or 'finished'})"
            yield Sight(source, where, text, what=text, pointer="/response/output")


def _no_generation_seen(view: View) -> Iterator[Sight]:
    """A model server's empty answer without any generated token, with no provider call recorded that would say why."""
    for exchange, answer in answers(view.material):
        nothing = answer.cut and not answer.text.strip() and not answer.calls and not answer.completion_tokens
        if nothing and exchange.call is not Call.PROVIDER and not exchange.judge:
            text = f"no generation in the answer of {exchange.path} ({answer.finish})"
            yield exchange_sight(view, exchange, text, text)


def _no_usage(view: View) -> Iterator[Sight]:
    """A given result without usage, on which profiles fail."""
    if view.material.exchanges:
        return
    for number, row in enumerate(view.material.row_values, 1):
        response = row.get("response")
        if isinstance(response, dict) and "reward" in row and not response.get("usage"):
            yield Sight("row", f"row {number}", "response.usage is null or missing", number, pointer="/response/usage")


_grammar_said = said(_GRAMMAR, calls=GENERATION, statuses=(400, 422, 500))


def _grammar(view: View) -> Iterator[Sight]:
    """A provider's words about a grammar, with the flaw that the row's own tools have, where one is seen in them."""
    flaw: Flaw | None = None
    looked = False
    for sight in _grammar_said(view):
        if not looked:
            flaw, looked = next(_tool_flaws(view), None), True
        if flaw is None:
            suspect = _suspect(sight.exchange.request_json) if sight.exchange else None
            yield replace(sight, what=f"{sight.what.rstrip('.')}; {suspect}") if suspect else sight
        else:
            what = f"{sight.what.rstrip('.')}; {flaw.pointer} {flaw.message}"
            yield replace(sight, what=what, pointer=flaw.pointer, advice=_FLAW_ADVICE)


def _suspect(body: Any) -> str | None:
    """The first keyword in a request's tools that vLLM does not offer to xgrammar; None where there is none."""
    for tool in listed(body.get("tools")) if isinstance(body, dict) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        parameters = function.get("parameters") if isinstance(function, dict) else None
        keyword = turned_down_keyword(parameters) if isinstance(parameters, dict) else None
        if isinstance(function, dict) and keyword:
            return f"look first at `{keyword}` in the tool {function.get('name')}, which xgrammar is not given"
    return None


_FLAW_ADVICE = (
    "Correct the row's tool at that pointer where the data is made; `gymtap check rows` names every row that has the "
    "same, `gymtap check tools` asks vLLM's grammar engines about the corrected schema, offline."
)


def _tool_flaws(view: View) -> Iterator[Flaw]:
    """What is wrong in the tools of the given rows, or of the row that /run was sent, with the tool's name."""
    given = [read_json(line) for _, _, _, line in _dataset_lines(view)]
    sent = [exchange.request_json for exchange in view.material.of(Call.RUN)]
    for row in (*given, *sent):
        for flaw in row_flaws(row) if isinstance(row, dict) and "responses_create_params" in row else ():
            if flaw.check in {"tools", "schema"}:
                yield _with_tool_name(flaw, row)


_TOOL_PLACE = re.compile(r"^/responses_create_params/tools/(\d+)")


def _with_tool_name(flaw: Flaw, row: dict[str, Any]) -> Flaw:
    place = _TOOL_PLACE.match(flaw.pointer or "")
    tools = listed(row["responses_create_params"].get("tools")) if place else []
    tool = tools[int(place[1])] if place and int(place[1]) < len(tools) else None
    name = tool.get("name") if isinstance(tool, dict) else None
    return replace(flaw, message=f"{flaw.message} (tool {name})") if isinstance(name, str) else flaw


def _own_parameter(view: View) -> Iterator[Sight]:
    for failure in (*view.exchange_failures, *view.soft_failures):
        parameter = refused_parameter(failure)
        if parameter and in_row(view, parameter) and not failure.judge:
            yield sight_of(failure, parameter)


_overflow_said = said(OVERFLOW, calls=GENERATION, statuses=(400, 413, 422, 424, 500), judge=False, unless=NOT_OVERFLOW)
_LARGE_CHARS = 4_000


def _overflow(view: View) -> Iterator[Sight]:
    """A provider's words that the prompt does not fit, with what is largest in it."""
    for sight in _overflow_said(view):
        over = re.search(r"max_(?:completion_|output_)?tokens[^\n]*?\bgot -([\d,]+)", sight.what)
        more = (
            f"the prompt alone is {over[1]} tokens too long" if over else None,
            _largest_message(sight.exchange.request_json) if sight.exchange else None,
            "the model server made an empty answer of it, and the row went on" if sight.swallowed else None,
        )
        yield replace(sight, what="; ".join([sight.what.rstrip("."), *filter(None, more)]))


def _largest_message(body: Any) -> str | None:
    """Whose message is the largest of a prompt that has several; None where none stands out."""
    items = listed(body.get("messages", body.get("input"))) if isinstance(body, dict) else []
    sizes = [(len(str(m.get("content", m.get("output")) or "")), m) for m in items if isinstance(m, dict)]
    size, message = max(sizes, key=lambda sized: sized[0], default=(0, {}))
    if len(sizes) < 2 or size < _LARGE_CHARS or size < sum(other for other, _ in sizes) / 2:
        return None
    whose = (
        "a tool's output"
        if message.get("role") == "tool" or "output" in message
        else f"a {message.get('role')} message"
    )
    return f"{whose} takes {size:,} characters of it"


_MEDIA = re.compile(
    r"\"(?:image_url|video_url|audio_url|file_url|url)\": ?(?:\{\s*\"url\": ?)?\"(?!data:)|"
    r"\"(?:image|video|audio)\": ?\"http"
)
_FETCH = re.compile(
    r"cannot connect|fetch|download|url|http|timed? ?out|local files|multi_modal|image|video|audio", re.IGNORECASE
)


def _media_unreachable(view: View) -> Iterator[Sight]:
    """A provider's failure about fetching, for a request that holds a media address (and no `data:` URL alone)."""
    for failure in view.exchange_failures:
        if failure.call is not Call.PROVIDER or failure.exchange is None or not (failure.status or 0) >= 400:
            continue
        if re.search(rf"{_MEDIA_SHAPE}|{_GONE}", failure.said, re.IGNORECASE):
            continue  # it was no fetch, or one that was answered
        if _MEDIA.search(failure.exchange.request or "") and _FETCH.search(failure.said):
            yield sight_of(failure, failure.said.partition("\n")[0][:160])


def _untyped_output(view: View) -> Iterator[Sight]:
    """An output item without a type in what verify was given: verifiers look for messages by type and find none."""
    sent = [(e, e.request_json) for e in view.material.of(Call.VERIFY) if not e.failed]
    for exchange, body in sent:
        response = body.get("response") if isinstance(body, dict) else None
        items = response.get("output") if isinstance(response, dict) else None
        for number, item in enumerate(listed(items)):
            if isinstance(item, dict) and "type" not in item:
                pointer = f"/response/output/{number}"
                yield exchange_sight(view, exchange, f"{pointer} has no type", pointer, pointer)


def _filtered(view: View) -> Iterator[Sight]:
    for exchange, answer in answers(view.material):
        if answer.finish == "content_filter":
            yield exchange_sight(view, exchange, "finish_reason content_filter")


_ROLES_IN_TURN = r"roles must alternate|after the optional system message"
_CALL_WITHOUT_OUTPUT = (
    r"must be followed by tool messages|no tool output found for function call|no tool call found for function call|"
    r"tool_use[^\n]{0,60}without[^\n]{0,20}tool_result|must be a response to|function (?:call|response) (?:turn|part)"
)


def _row_history(view: View) -> Iterator[Sight]:
    """A provider's words about an order of messages that the row's own input already has: no agent made it."""
    for failure in (*view.exchange_failures, *view.told_failures):
        if failure.call is not Call.PROVIDER or failure.status not in {400, 422, 500, None} or failure.judge:
            continue
        about_roles = re.search(_ROLES_IN_TURN, failure.said, re.IGNORECASE)
        about_calls = re.search(_CALL_WITHOUT_OUTPUT, failure.said, re.IGNORECASE)
        for items in _inputs(view) if about_roles or about_calls else ():
            flaw = _same_role_twice(items) if about_roles else _lone_call(items)
            if flaw is not None:
                number, what = flaw
                pointer = f"/responses_create_params/input/{number}"
                yield replace(sight_of(failure, f"{pointer} {what}"), pointer=pointer)
                break


def _inputs(view: View) -> Iterator[list[Any]]:
    """The inputs of the rows that /run was given, or that were given as rows or results."""
    runs = (exchange.request_json for exchange in view.material.of(Call.RUN))
    for body in (*runs, *view.material.row_values, *view.material.results):
        params = body.get("responses_create_params") if isinstance(body, dict) else None
        if isinstance(params, dict):
            yield [item for item in listed(params.get("input")) if isinstance(item, dict)]


def _same_role_twice(items: list[dict[str, Any]]) -> tuple[int, str] | None:
    roles = [item.get("role") for item in items]
    for number, role in enumerate(roles[1:], 1):
        if role in {"user", "assistant"} and roles[number - 1] == role:
            return number, f"is a second {role} message in a row"
    first = next((number for number, role in enumerate(roles) if role not in {"system", "developer"}), None)
    return (first, "is an assistant's, before any user message") if first and roles[first] == "assistant" else None


def _lone_call(items: list[dict[str, Any]]) -> tuple[int, str] | None:
    """The first call without an output, or output without a call."""
    called = {str(item.get("call_id")) for item in items if item.get("type") == "function_call"}
    answered = {str(item.get("call_id")) for item in items if item.get("type") == "function_call_output"}
    for number, item in enumerate(items):
        if str(item.get("call_id")) in called ^ answered and str(item.get("type")).startswith("function_call"):
            return number, "is a call without its output" if item["type"] == "function_call" else "answers no call"
    return None


def _told_wrong_arguments(view: View) -> Iterator[Sight]:
    """A tool that answers 200 and tells of nothing but arguments that do not fit it (MCP's and pydantic's words)."""
    words = r"input validation error|-32602\b|invalid (?:params|arguments)\b|validation errors? for (?:call\[)?\w+"
    for exchange, text in hopeless_tools(view.material.exchanges):
        if re.search(words, text, re.IGNORECASE):
            sent = (exchange.request or "nothing")[:160]
            name = exchange.path.rsplit("/", 1)[-1]
            yield exchange_sight(view, exchange, f"{text[:200]}; it was sent {sent}", f"{name} ({text[:160]})")


_OF_ARGUMENTS = r"\"loc\"|argument|param|required|missing|\bfields?\b|\btype\b|schema|json|valid|must be|should be"


def _wrong_tool_arguments(view: View) -> Iterator[Sight]:
    """A tool's 422: the model's arguments do not fit the tool's own model."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.call is not Call.TOOL or failure.status not in {400, 422}:
            continue
        if re.search(NO_SESSION, failure.said, re.IGNORECASE):
            continue
        if failure.status == 400 and not re.search(_OF_ARGUMENTS, failure.said, re.IGNORECASE):
            continue  # the world says no
        if "json" in exchange.request_headers.get("content-type", "json"):
            told = (failure.innermost.leaf.message if failure.innermost else "") or failure.said
            text = f"{failure.status} {told[:200]}; it was sent {(exchange.request or 'nothing')[:160]}"
            name = exchange.path.rsplit("/", 1)[-1]
            yield exchange_sight(view, exchange, text, f"{name} ({told[:160].rstrip('.')})")


_resources_422 = said(calls=RESOURCES - {Call.TOOL}, statuses=(422,), sources=("exchange", "log"))


def _refused_by_resources(view: View) -> Iterator[Sight]:
    """422 of a resources server; what verify refuses, the stored answer can be given again."""
    for sight in _resources_422(view):
        call = sight.failure.call if sight.failure else None
        of_answer = call is Call.VERIFY and re.search(r"body\W+response\b", sight.what)
        yield replace(sight, advice=_ANSWER_AGAIN if of_answer else _VERIFY_AGAIN) if call is Call.VERIFY else sight


_ANSWER_AGAIN = (
    "What the detail names is in the answer and not in the data: let the agent or the model server that wrote "
    "`response` give its items the form of the Responses API, and run only this call again (`gymtap replay ROW --from "
    "verify --set POINTER=VALUE`): nothing has to be generated again."
)
_VERIFY_AGAIN = (
    "Correct the fields that the detail names in the data (or where the row is made), and run only this call again "
    "with the stored response (`gymtap replay ROW --from verify --set POINTER=VALUE`): nothing has to be generated "
    "again. New runs need a fresh output path, for materialized inputs keep the old rows."
)


def _preflight(view: View) -> Iterator[Sight]:
    """What made Gym stop before it sent anything."""
    for failure in view.told_failures:
        found = before_sending(failure)
        if found is not None and found[0] is Layer.DATA_SCHEMA:
            yield sight_of(failure, found[1])


_prompt_refused = said(CONTENT_POLICY, calls=GENERATION, statuses=(400, 403, 404, 422, 500, 501))


def _refused_prompt(view: View) -> Iterator[Sight]:
    """A prompt that a content filter refused; that a verifier scores what its judge refused is the verifier's."""
    for sight in _prompt_refused(view):
        if sight.failure is None or not scored_unjudged(view, sight.failure):
            yield sight


RULES: tuple[Rule, ...] = (
    Rule(
        id="data.tool_arguments",
        layer=Layer.DATA_SCHEMA,
        needs="422 from a tool, or an answer that tells of nothing but wrong arguments",
        sees=both(_wrong_tool_arguments, _told_wrong_arguments, echoes(Echo.UNPROCESSABLE)),
        cause="The arguments do not fit what the tool takes, and the error was fed back to the model as the tool's "
        "output: {what}.",
        next_action="Compare the row's tool schema with the tool's request model and correct the one that drifted; "
        "where they agree, it is the model's behaviour.",
        source="FastAPI 422; Gym pastes it into function_call_output",
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.no_generation",
        layer=Layer.DATA_SCHEMA,
        needs="A result without any generation, and no generated tokens in its usage",
        sees=both(_no_generation, _no_generation_seen),
        cause="The row has {what}: its prompt did not fit the context, most likely, and the 400 was made an empty "
        "answer.",
        next_action="Check the prompt's length against the served context, and mask such rows instead of training on "
        "them.",
        source="Gym 0.7.0 swallows context errors; NeMo RL: no generation data",
        runner_up=Layer.THROUGHPUT_RESOURCES,
    ),
    Rule(
        id="data.no_usage",
        layer=Layer.DATA_SCHEMA,
        needs="A result row whose response has no usage",
        sees=_no_usage,
        cause="The result has no response.usage, which profiling reads.",
        next_action="Keep missing usage explicit (null) and skip it in profiles; check whether the provider sends it.",
        source="Gym reward profiling",
        strength=Strength.STATUS,
        severity=Severity.WARNING,
        runner_up=Layer.CACHE_RESUME,
    ),
    Rule(
        id="data.untyped_output",
        layer=Layer.DATA_SCHEMA,
        needs="An output item without a type in verify's request",
        sees=_untyped_output,
        cause="The output item at {what} has no type, so the verifier does not see it as a message and scores nothing.",
        next_action="Let the agent write `type: message` (or its kind) on every output item.",
        source="Gym's verifiers pick items by type",
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="data.content_filter",
        layer=Layer.DATA_SCHEMA,
        needs="finish_reason content_filter",
        sees=_filtered,
        cause="The provider's content filter ended the answer.",
        next_action="Check the row's text against the provider's filter, and do not count the row as wrong.",
        source="OpenAI and Azure finish_reason",
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.line",
        layer=Layer.DATA_SCHEMA,
        needs="A dataset line that is not one JSON object",
        sees=_line_sights("line"),
        cause="The dataset's {what}.",
        next_action="Repair that line, and check the whole file before running (`gymtap check rows` names every bad "
        "line).",
        source="JSON Lines: one JSON value a line",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="data.not_finite",
        layer=Layer.DATA_SCHEMA,
        needs="NaN or Infinity in a dataset line or a failing request",
        sees=both(_line_sights("not_finite"), _sent_not_finite),
        cause="A number in the data is NaN or infinite: {what}.",
        next_action="Replace it by null or a finite number where the data is made.",
        source="RFC 8259; Starlette cannot encode the error that would report it",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="data.surrogate",
        layer=Layer.DATA_SCHEMA,
        needs="Half of a surrogate pair in a dataset line or a failing request, or an encoder's words",
        sees=both(
            _line_sights("surrogate"),
            _sent_lone_surrogate,
            said(_ENCODING, calls=frozenset({Call.PROVIDER}), sources=("exchange", "result", "row")),
            said(  # what cannot be decoded is a file's, and no text's that was sent
                _ENCODING,
                calls=RESOURCES | {Call.RUN, Call.PROVIDER},
                unless=r"unicodedecodeerror|can't decode byte",
            ),
        ),
        cause="The text holds what cannot be encoded as UTF-8 (half a surrogate pair, most often): {what}.",
        next_action="Replace lone surrogates where the text is made (errors='replace'), and run the row again.",
        source="RFC 8259 section 8.2; tokenizers refuse such text",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.row",
        layer=Layer.DATA_SCHEMA,
        needs="A row without usable responses_create_params",
        sees=_row_sights("row", "params", "input"),
        cause="The row is not what Gym reads: {what}.",
        next_action="Write it as responses_create_params with `input` (and flat tools), as the Responses API has them.",
        source="Gym 0.7.0 row format, OpenAI Responses API",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="data.license",
        layer=Layer.DATA_SCHEMA,
        needs="A dataset's licence that Gym does not know",
        sees=_row_sights("license"),
        cause="The dataset's licence is not one that Gym takes, which it says only after everything has started: "
        "{what}.",
        next_action="Write the licence as Gym has it (`Apache 2.0`, `MIT`, …), and validate the data before "
        "starting a run.",
        source="Gym 0.7.0 config_types",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="data.chat_tools",
        layer=Layer.DATA_SCHEMA,
        needs="A tool with a nested `function` object in a Responses row",
        sees=_row_sights("chat_tool"),
        cause="The row's tools have the Chat Completions form: {what}.",
        next_action="Flatten each tool: name, description, parameters and strict beside type.",
        source="OpenAI Responses API function tools",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="data.duplicate_tools",
        layer=Layer.DATA_SCHEMA,
        needs="Two tools of one name in a row",
        sees=_row_sights("duplicate_tool"),
        cause="The row offers two tools of one name: {what}.",
        next_action="Keep one of them, or give them names of their own.",
        source="Calls are routed by name, so the second is never reached; several providers refuse it",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="data.tool_schema",
        layer=Layer.DATA_SCHEMA,
        needs="A tool whose parameters are no JSON Schema",
        sees=_row_sights("tools", "schema"),
        cause="The row's tools are not what they must be: {what}.",
        next_action="Correct it at that pointer where the data is made; `gymtap check rows` names every row that has "
        "the same.",
        source="JSON Schema drafts 6 to 2020-12",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="data.grammar",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's words about a grammar, a JSON Schema or a tool definition",
        sees=_grammar,
        cause="The provider cannot turn a tool's schema into a grammar, or refuses the tool: {what}.",
        next_action="Find the tool and keyword at fault (`gymtap check tools` asks vLLM's grammar engines offline, "
        "`gymtap preflight` the endpoint, for one token a tool), then rewrite that keyword in the data.",
        source="vLLM 0.32 with xgrammar, llguidance and outlines; OpenAI invalid_function_parameters",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.context_overflow",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's words that the prompt does not fit, outside a judge",
        sees=_overflow,
        cause="The prompt does not fit the model's context: {what}.",
        next_action="Shorten the prompt (or what tools may put into it) or serve with a longer context, and do not "
        "count this row: Gym's vllm_model makes an empty answer of such a 400, and a 0 of that, unless "
        "propagate_context_overflow_errors=true is set.",
        source="vLLM and OpenAI context errors; Gym 0.7.0 swallows any 400 with `context length` or `max_tokens`",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.media_shape",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's words that a media item has the wrong type or lacks a field",
        sees=said(_MEDIA_SHAPE, calls=GENERATION, statuses=(400, 422), unless=_GONE),
        cause="A media item is not of the shape that this API reads: {what}.",
        next_action='Write it in the row as Responses has it: {"type": "input_image", "image_url": "https://… or '
        'data:…"}, the address as a string; Chat Completions alone nests it ({"type": "image_url", "image_url": '
        '{"url": "…"}}). `gymtap show EXCHANGE` shows what was sent at the place that the message names.',
        source="OpenAI Responses and Chat Completions, vLLM 0.32",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.media_gone",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's words that a medium's own server answered 401, 403, 404 or 410",
        sees=said(
            _GONE,
            calls=GENERATION,
            statuses=(400, 404, 422, 500),
            sources=("exchange", "result", "row"),
        ),
        cause="An address in the row is dead, or closed to the provider: {what}.",
        next_action="Open that address yourself (`curl -I URL`); where it is gone, replace it or put the medium into "
        "the row as a data: URL, in the data and in every row that has it. Asking again does not help.",
        source="vLLM 0.32 and OpenAI tell what the medium's server answered",
        strength=Strength.PROVEN,
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="data.content_policy",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's words that its content filter refused the prompt, where the caller passed the refusal on",
        sees=_refused_prompt,
        cause="The content filter of the {role}'s provider refused this row's prompt: {what}.",
        next_action="Leave the row out, reword it, or have the filter relaxed for this account or deployment; the same "
        "prompt is refused again, and nothing was generated from it.",
        source="Azure and OpenAI content filters, DashScope, OpenRouter",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.content",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's words about an image or another medium",
        sees=said(
            _MEDIA_WORDS,
            calls=GENERATION,
            statuses=(400, 403, 404, 422, 500, 501),
            unless=rf"{_MEDIA_SHAPE}|{CONTENT_POLICY}|{_GONE}",
        ),
        cause="The provider cannot take a medium of this row: {what}.",
        next_action="Look at that item in the recorded request (`gymtap show EXCHANGE`): decode its base64 alone, "
        "see that its MIME type is the file's own and that its size and number are within what the model takes; then "
        "correct it in the data.",
        source="vLLM 0.32 answers unreachable images with 500 and 422; OpenAI",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.parameter",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's 4xx about a parameter that the row has",
        sees=_own_parameter,
        cause="The row asks for {what} in a way that the provider refuses.",
        next_action="Correct that parameter in the row's responses_create_params, or use a provider that takes it.",
        source="vLLM 0.32 and OpenAI name the parameter in their 400",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="data.media_unreachable",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's failure to fetch something, for a request that holds a media address",
        sees=_media_unreachable,
        cause="The provider could not fetch a medium that the row points to: {what}.",
        next_action="Make the address reachable from the provider, or put the medium into the row as data.",
        source="vLLM 0.32 answers 500, 422 or 400 for what it cannot fetch",
        strength=Strength.PROVEN,
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="data.row_history",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's words about roles or calls out of order, and a row whose own input has them so",
        sees=_row_history,
        cause="The row's own messages are in an order that the provider or its template refuses: {what}.",
        next_action="Merge or reorder the messages at that pointer (or add the call's output) where the data is made, "
        "or serve a chat template that takes them.",
        source="Mistral's and Llama's chat templates; OpenAI and Anthropic history rules",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.messages",
        layer=Layer.DATA_SCHEMA,
        needs="A provider's words about a place in the messages or the input",
        sees=said(_MESSAGES, calls=GENERATION, statuses=(400, 422)),
        cause="The messages do not have the form that the provider reads: {what}.",
        next_action="Look at that place in the recorded request and correct the row, or the agent that built the turn.",
        source="vLLM, OpenAI and Anthropic request validation",
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="data.verify_422",
        layer=Layer.DATA_SCHEMA,
        needs="422 from verify or seed_session",
        sees=_refused_by_resources,
        cause="The row does not fit the resources server's request model: {what}.",
        next_action="Correct the fields that the detail names in the data (or where the row is made), and try the "
        "correction on this call alone (`gymtap replay ROW --from {hop} --set POINTER=VALUE`). New runs need a fresh "
        "output path, for materialized inputs keep the old rows.",
        source="FastAPI 422; Gym sends the whole row to verify",
        strength=Strength.PROVEN,
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="data.run_422",
        layer=Layer.DATA_SCHEMA,
        needs="422 from /run",
        sees=said(
            calls=frozenset({Call.RUN, Call.AGENT_SESSION, Call.RESPONSES, Call.MODEL}),
            statuses=(422,),
            sources=("exchange", "log"),
        ),
        cause="The row does not fit what the server reads: {what}.",
        next_action="Correct the fields that the detail names where the data is made; Gym reads the Responses form "
        "(`responses_create_params` with `input`), not Chat Completions' `messages`. `gymtap check rows` names every "
        "such row.",
        source="FastAPI 422 of Gym's agents and models",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="data.validation_told",
        layer=Layer.DATA_SCHEMA,
        needs="A FastAPI detail with body places, in a sidecar or a log",
        sees=said(
            r"(?m)^body\.(?P<what>[\w.]+: .{1,120})|\"loc\": ?\[\"body\"|request validation failed|"
            r"validation errors? for \w*Request\b|RequestValidationError|/run failed status=422",
            sources=("exchange", "result", "row", "log"),
            calls=frozenset({Call.OTHER}),
        ),
        cause="A request does not fit its receiver's model: {what}.",
        next_action="Correct the fields that the detail names in the data, and use a fresh output path.",
        source="FastAPI and pydantic",
        strength=Strength.STATUS,
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="data.broken_json",
        layer=Layer.DATA_SCHEMA,
        needs="FastAPI's words that the body is not JSON",
        sees=_broken_json_sent,
        cause="What was sent to {what} is not JSON.",
        next_action="Look at the recorded request at the place the detail names, and correct what writes it.",
        source="FastAPI json_invalid",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="data.preflight",
        layer=Layer.DATA_SCHEMA,
        needs="A traceback from Gym's reading of the rows, which Python or Gym's words for a row ended",
        sees=_preflight,
        cause="Gym stopped while it read the rows, before anything was sent: {what}.",
        next_action="Run `gymtap check rows` on the input file, which names every line that is not as Gym reads it "
        "(`responses_create_params` with `input`), and correct them where the data is made.",
        source="Gym 0.7.0 rollout_collection and train_data_utils",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="data.told",
        layer=Layer.DATA_SCHEMA,
        needs="A log's words that a dataset line or field could not be read",
        sees=said(
            r"KeyError: '(?:responses_create_params|input|agent_ref|expected_answer|messages|question|prompt|tools)'|"
            r"(?:line|row) \d+[^\n]{0,80}(?:not valid json|invalid json|decode)|jsondecodeerror[^\n]{0,120}jsonl|"
            r"\.jsonl[^\n]{0,120}(?:decode|invalid|malformed|parse)|orjson\.JSONDecodeError|"
            r"missing (?:required )?(?:field|column|key)s?\b|unexpected end of data|dataset[^\n]{0,60}(?:empty|"
            r"no rows|schema)|(?:offending|malformed|invalid|corrupt(?:ed)?|bad)[ _](?:example|sample|row|"
            r"record|json ?line)s?|"
            r"(?:examples?|samples?|rows?|records?)[^\n]{0,30}(?:are|is|was|were) (?:malformed|invalid|corrupt)",
            sources=("log",),
            unless=r"omegaconf|hydra|\b(?:0|no) (?:offending|malformed|invalid|corrupt|bad)|tool_parser|\.ya?ml|"
            r"responses_api_models",
        ),
        cause="The data cannot be read: {what}.",
        next_action="Find the line or field the message names and correct it where the data is made.",
        source="Python and Gym 0.7.0 preprocessing messages",
        strength=Strength.STATUS,
    ),
)
