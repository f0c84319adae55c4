"""Verifier and runtime: resources servers, agents, judges' use and Gym's own servers raised or answered wrongly."""

import base64
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gymtap.proxy.core.unwrap import innermost_bytes
from gymtap.proxy.diagnose.answers import read_answer
from gymtap.proxy.diagnose.evidence import Seen, read_json
from gymtap.proxy.diagnose.raised import frame_of, missing_key, raised_at, rows_without, stumbled_over
from gymtap.proxy.diagnose.rule import (
    CONTENT_POLICY,
    MCP_SESSION,
    NO_SESSION,
    NOT_OVERFLOW,
    OVERFLOW,
    RESOURCES,
    Rule,
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
from gymtap.proxy.diagnose.verdicts import told_failures
from gymtap.schemas import Call, Layer, LeafKind, Severity

_VERDICT = re.compile(
    r"\[\[.{1,40}?\]\]|\\boxed|\b(?:yes|no|true|false|correct|incorrect|pass|fail|equal|score|rating|verdict|grade)\b|"
    r"\b\d+(?:\.\d+)?\b",
    re.IGNORECASE,
)
_KEYS_SHOWN = 8
_GYM_CALLS = frozenset({Call.RUN, Call.RESPONSES, Call.AGENT_SESSION, Call.MODEL})
_OWN = frozenset({Call.VERIFY, Call.SEED_SESSION, Call.CLOSE_SESSION})


def _bad_reward(view: View) -> Iterator[Sight]:
    """A verify 200 without a usable reward."""
    for exchange in view.material.of(Call.VERIFY):
        if exchange.status is None or exchange.status >= 300 or exchange.response is None:
            continue
        reason = _why_no_reward(exchange)
        if reason:
            yield exchange_sight(view, exchange, f"200 with {reason}{_instead(exchange)}", reason, "/reward")


def _instead(exchange: Seen) -> str:
    """What the answer has, for it is long: its keys, or its beginning."""
    body = exchange.response_json
    if not isinstance(body, dict):
        return f": {(exchange.response or '')[:200]}"
    shown = ", ".join(str(key) for key in list(body)[:_KEYS_SHOWN])
    return f"; it has {shown}{', …' if len(body) > _KEYS_SHOWN else ''}" if body else "; it is empty"


def _why_no_reward(exchange: Seen) -> str | None:
    body = exchange.response_json
    if not isinstance(body, dict):
        return "no JSON object"
    if body.get("failure"):
        return None
    if "reward" not in body:
        near = next((name for name in body if re.search(r"reward|score|grade|point", name, re.IGNORECASE)), None)
        return f"no `reward` (but `{near}`)" if near else "no `reward`"
    reward = body["reward"]
    if reward is None:
        return "a null reward"
    if _number(reward) is None:
        return f"a reward that is {type(reward).__name__}, not a number"
    return None if math.isfinite(_number(reward) or 0.0) else f"a reward of {reward}"


def _number(reward: Any) -> float | None:
    """A reward as pydantic reads it: true is 1.0 and "0.5" is 0.5; None where it is no number."""
    try:
        return float(reward) if isinstance(reward, bool | int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _reward_changed(view: View) -> Iterator[Sight]:
    """A row whose /run tells another reward than its one verify did."""
    verified: dict[Any, list[float]] = {}
    for exchange in view.material.of(Call.VERIFY):
        reward, key = _rewarded(exchange)
        if key is not None and reward is not None:
            verified.setdefault(key, []).append(reward)
    for exchange in view.material.of(Call.RUN):
        reward, key = _rewarded(exchange)
        given = verified.get(key, [])
        if len(given) == 1 and reward is not None and not math.isclose(reward, given[0]):
            text = f"verify said {given[0]:g}, {exchange.boundary} /run {reward:g}"
            yield exchange_sight(view, exchange, text, text, "/reward")
            return


def _rewarded(exchange: Seen) -> tuple[float | None, Any]:
    """The reward of an answer, and the row that it is of; None where there is none."""
    asked, answer = exchange.request_json, exchange.response_json
    if exchange.failed or not isinstance(asked, dict) or not isinstance(answer, dict):
        return None, None
    index = asked.get("_ng_task_index")
    return _number(answer.get("reward")), None if index is None else (
        index,
        asked.get("_ng_rollout_index"),
        asked.get("_ng_attempt_index", 0),
    )


def _bad_reward_told(view: View) -> Iterator[Sight]:
    for source, where, row in view.result_rows:
        if "reward" not in row and "response" not in row:
            continue
        reward = row.get("reward")
        number = _number(reward)
        usable = number is not None and math.isfinite(number)
        if not usable and not (source == "row" and "reward" not in row):
            yield Sight(source, where, f"reward is {reward!r}", what=f"a reward of {reward!r}", pointer="/reward")


def _lost_body(view: View) -> Iterator[Sight]:
    """A verify 500 whose body hides a judge's failure that the exchanges show."""
    for exchange in view.material.of(Call.VERIFY, Call.SEED_SESSION, Call.TOOL):
        if (exchange.status or 0) < 500 or exchange.wraps:
            continue
        inner = _innermost_failed(view, exchange)
        if inner is not exchange and 400 <= (inner.status or 0) < 500:
            text = (
                f"{exchange.path} said {exchange.unwrapped.leaf.text[:80]!r}; {inner.boundary} had said {_leaf(inner)}"
            )
            yield exchange_sight(view, exchange, text, _leaf(inner))


def _disagrees(view: View) -> Iterator[Sight]:
    """A /run error whose text ends in another body than the failing exchange at the end of its branch sent."""
    for run in view.material.of(Call.RUN):
        inner = _innermost_failed(view, run)
        if inner is run or not run.wraps or inner.response is None or inner.call is Call.RUN:
            continue
        told, truncated = innermost_bytes(run.response or "")
        sent = _leaf(inner)
        if not truncated and told.decode("utf-8", "replace") != inner.response and _leaf(run) != sent:
            yield exchange_sight(view, run, f"/run tells {_leaf(run)!r}; {inner.boundary} had said {sent!r}", sent)


def _innermost_failed(view: View, exchange: Seen) -> Seen:
    while below := [child for child in view.tree.children[exchange.id] if child.failed]:
        exchange = below[0]
    return exchange


def _leaf(exchange: Seen) -> str:
    leaf = exchange.unwrapped.leaf
    return (leaf.message or leaf.text)[:160]


def _judge_overflow(view: View) -> Iterator[Sight]:
    for failure in view.exchange_failures:
        if (
            failure.judge
            and failure.exchange
            and re.search(rf"{OVERFLOW}|max_tokens", failure.said, re.IGNORECASE)
            and not re.search(NOT_OVERFLOW, failure.said, re.IGNORECASE)
        ):
            yield exchange_sight(view, failure.exchange, failure.said[:300], failure.said.partition("\n")[0][:160])


def _judge_filtered(view: View) -> Iterator[Sight]:
    """A content filter's refusal of the judge's prompt under a verify that scored the row all the same."""
    for sight in _judge_refused(view):
        if sight.failure is not None and scored_unjudged(view, sight.failure):
            yield sight


_judge_refused = said(CONTENT_POLICY, judge=True, sources=("exchange",))


def _judge_rejected(view: View) -> Iterator[Sight]:
    """A judge's 4xx that is neither its key nor its rate."""
    for failure in view.exchange_failures:
        if failure.judge and failure.exchange and failure.status in {400, 404, 405, 409, 413, 415, 422}:
            yield exchange_sight(
                view, failure.exchange, f"{failure.status} {failure.said[:300]}", failure.said.partition("\n")[0][:160]
            )


def _judge_unparseable(view: View) -> Iterator[Sight]:
    """A judge's answer without any verdict in it, empty or cut, for a row that got no reward from it."""
    if any(e.failed for e in view.material.exchanges if e.judge):
        return
    if not _scored_zero(view):
        return
    for exchange in view.material.of(Call.JUDGE, Call.MODEL, Call.PROVIDER, judge=True):
        answer = read_answer(exchange.response_json)
        asked = _asked_for(exchange)
        if answer is None or any(child.judge for child in view.tree.children[exchange.id]):
            continue
        wanted = asked and not any(option in answer.text for option in asked)
        if wanted or not _VERDICT.search(answer.text) or answer.cut:
            yield exchange_sight(view, exchange, f"judge said: {answer.text[:200]!r}", answer.text[:80] or "nothing")


def _asked_for(exchange: Seen) -> list[str]:
    """The verdict forms that the judge's prompt names, as `[[A=B]]`."""
    return list(dict.fromkeys(re.findall(r"\[\[[^\[\]\n]{1,24}\]\]", exchange.request or "")))


def _scored_zero(view: View) -> bool:
    bodies = [e.response_json for e in view.material.of(Call.VERIFY)] + list(view.material.results)
    rewards = [body.get("reward") for body in bodies if isinstance(body, dict) and "reward" in body]
    return not rewards or any(not isinstance(reward, int | float) or reward <= 0 for reward in rewards)


def _masked(view: View) -> Iterator[Sight]:
    """A verify 200 that itself says that its judge or its check failed, with a reward all the same."""
    for source, where, order, told in told_failures(view):
        yield Sight(source, where, told[:300], order, told[:160])


def _cookie_lost(view: View) -> Iterator[Sight]:
    """A call to resources without any session that a seed_session before it began.

    Recordings of concurrent rows do not say which seed is whose, and may lack some; there only a missing cookie
    counts, not another one.
    """
    began: set[tuple[str, str]] = set()
    seeded = False
    alone = len(view.material.of(Call.VERIFY)) <= 1
    for exchange in view.material.of(Call.SEED_SESSION, Call.TOOL, Call.VERIFY):
        set_now = set(_sessions(exchange.response_headers.get("set-cookie")).items())
        if exchange.call is Call.SEED_SESSION:
            began |= set_now
            seeded = seeded or not exchange.failed
            continue
        given = set(_sessions(exchange.request_headers.get("cookie")).items())
        kept = given & began if alone else {name for name, _ in given} & {name for name, _ in began}
        if kept:
            began |= set_now  # a session cookie is signed anew, and holds the session's data, so it changes
        if seeded and not exchange.failed and not kept and (began or set_now - given):
            reason = "without the cookie of seed_session" if began else "seed_session set no cookie"
            yield exchange_sight(view, exchange, f"{exchange.path}: {reason}", exchange.path)
            return


_SESSION = re.compile(r"(?:^|[;,]\s*)(\w+___[\w.-]+)=([^;,.\s]+)")


def _sessions(header: str | None) -> dict[str, str]:
    """Sessions in a Cookie or Set-Cookie header by name; the payload without signature and time, which change."""
    return dict(_SESSION.findall(header or ""))


def _session_shared(view: View) -> Iterator[Sight]:
    """One resources session used by two rows."""
    owners: dict[tuple[str, str], tuple[str, Seen]] = {}
    for exchange in view.material.of(Call.VERIFY, Call.SEED_SESSION):
        body = exchange.request_json
        row = f"{body.get('_ng_task_index')}.{body.get('_ng_rollout_index')}" if isinstance(body, dict) else ""
        if not isinstance(body, dict) or body.get("_ng_task_index") is None:
            continue
        for session in _sessions(exchange.request_headers.get("cookie")).items():
            if "Agent___" in session[0] or "Model___" in session[0]:
                continue
            owner, _ = owners.setdefault(session, (row, exchange))
            if owner != row:
                yield exchange_sight(
                    view, exchange, f"rows {owner} and {row} use one session of {session[0]}", exchange.path
                )


def _state_flickers(view: View) -> Iterator[Sight]:
    """The same read in one session, answered differently with nothing between, or first so, then so, then so again.

    A read that is made again in a later turn may find what has happened since: then only its going back tells.
    """
    for reads in _reads_in_a_row(view):
        answers = [read.response or "" for read in reads]
        changed = next((n for n in range(1, len(reads)) if answers[n] != answers[n - 1]), None)
        if changed is None:
            continue
        back = any(answers[n] != answers[n - 1] and answers[n] in answers[: n - 1] for n in range(2, len(reads)))
        if back or view.tree.order(reads[changed]) == view.tree.order(reads[changed - 1]) + 1:
            path = reads[changed].path
            text = f"{path} answered {answers[changed - 1][:60]} and then {answers[changed][:60]}"
            yield exchange_sight(view, reads[changed], text, path)


_READS = re.compile(r"get|read|list|show|query|status|count|view|fetch|state", re.IGNORECASE)


def _reads_in_a_row(view: View) -> Iterator[list[Seen]]:
    """The good answers to one and the same read, as long as no other tool was called between them."""
    run: list[Seen] = []
    for call in view.material.of(Call.TOOL):
        if run and (call.path, call.request) != (run[0].path, run[0].request):
            yield run
            run = []
        if (call.status or 500) < 400 and _READS.search(call.path):
            run.append(call)
    yield run


def _rejects_answer(view: View) -> Iterator[Sight]:
    """A Gym server that does not take what the one below answered with 200."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.call not in _GYM_CALLS or (failure.status or 0) < 500:
            continue
        if re.search(r"validation errors? for \w+|ResponseValidationError|literal_error|union_tag", failure.said):
            yield exchange_sight(view, exchange, failure.said[:300], failure.said.partition("\n")[0][:160])


_FEW_NULLS = 3
_STUMBLED = frozenset({"KeyError", "TypeError", "AttributeError", "IndexError", "ValidationError"})
"""What Python raises at a value that is missing, null, or not of its kind."""


def _gym_stumbled(view: View) -> Iterator[Sight]:
    for sight in _gym_raised(view):
        if sight.exchange is None or sight.exchange.unwrapped.leaf.code not in _STUMBLED:
            continue
        exception = sight.exchange.unwrapped.leaf.text
        then = stumbled_over(sight.exchange, exception)
        nulls = _nulls(sight.exchange.request_json) if "NoneType" in sight.text and not then else ""
        seen = replace(sight, advice=then)
        yield replace(seen, what=f"{sight.what}; its request has null for {nulls}") if nulls else seen


def _metrics_raised(view: View) -> Iterator[Sight]:
    """An exception while metrics were computed, with the rows that lack what it names."""
    for sight in _raised_by(view, frozenset({Call.AGGREGATE})):
        exchange = sight.exchange
        key = missing_key(exchange.unwrapped.leaf.text) if exchange is not None else None
        rows = rows_without(exchange.request_json, key) if exchange is not None and key else ""
        yield replace(sight, what=f"{sight.what}; {rows}") if rows else sight


def _nulls(body: Any) -> str:
    """The few fields of a request that are null; empty where none is, or where Gym wrote out all that it knows."""
    found = [str(name) for name, item in body.items() if item is None] if isinstance(body, dict) else []
    return ", ".join(found) if len(found) <= _FEW_NULLS else ""


def _gym_raised(view: View) -> Iterator[Sight]:
    """An exception of a Gym server itself while it worked on a row, with nothing failing below it."""
    return _raised_by(view, _GYM_CALLS | _OWN | {Call.JUDGE})


def _raised_by(view: View, calls: frozenset[Call]) -> Iterator[Sight]:
    """5xx of a Gym server to one of these calls, nothing failing below it; with where the log says it was raised."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.call not in calls:
            continue
        if exchange.wraps and exchange.unwrapped.leaf.kind is not LeafKind.EXCEPTION:
            continue  # it passes on what another server said, which was not recorded
        own = failure.status not in {502, 503, 504} or exchange.unwrapped.leaf.kind is LeafKind.DETAIL
        if (failure.status or 0) >= 500 and own:
            yield exchange_sight(
                view,
                exchange,
                failure.said[:300] or "an empty body",
                f"{exchange.callee} on {exchange.path}: {_leaf(exchange)}{_at(view, exchange.unwrapped.leaf.text)}",
            )


def _at(view: View, exception: str) -> str:
    place = raised_at(view.material.log, exception)
    return f" at {place}" if place else ""


def _raised_told(view: View) -> Iterator[Sight]:
    """A sidecar whose innermost body is an exception of a server that an agent called."""
    for failure in view.told_failures:
        leaf = failure.innermost.leaf if failure.innermost else None
        told = failure.source in {"result", "row"} and failure.call is Call.OTHER
        if told and leaf is not None and leaf.kind is LeafKind.EXCEPTION:
            yield sight_of(failure, leaf.message[:160])


def _told_no_session(view: View) -> Iterator[Sight]:
    """A tool that answers 200 and tells of nothing but a session that it does not have."""
    for exchange, text in hopeless_tools(view.material.exchanges):
        if _no_session(text):
            yield exchange_sight(view, exchange, text[:200], exchange.path)


def _seed_missing(view: View) -> Iterator[Sight]:
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.call not in RESOURCES or not _no_session(failure.said):
            continue
        if not _of_another_session(exchange, failure.said):
            yield exchange_sight(view, exchange, failure.said[:200], exchange.path)


def _no_session(words: str) -> bool:
    """Whether words are of a session of Gym's that is not known, and not of one between a tool and its MCP server."""
    return bool(re.search(NO_SESSION, words, re.IGNORECASE)) and not re.search(MCP_SESSION, words, re.IGNORECASE)


def _of_another_session(exchange: Seen, words: str) -> bool:
    """Whether the session that the words name is not the one that the call came with: then it is the server's own."""
    came_with = {_session_id(payload) for payload in _sessions(exchange.request_headers.get("cookie")).values()} - {""}
    named = re.findall(r"['\"]([\w-]{3,64})['\"]", words)
    return bool(came_with and named) and not came_with & set(named)


def _session_id(payload: str) -> str:
    """The id in a Starlette session cookie; empty where there is none to read."""
    try:
        held = read_json(base64.b64decode(payload + "=" * (-len(payload) % 4)).decode())
    except ValueError:
        return ""
    return str(held.get("session_id", "")) if isinstance(held, dict) else ""


def _typed_failure(view: View) -> Iterator[Sight]:
    """A typed environment's 200 with `failure`."""
    for exchange in view.material.exchanges:
        if (
            exchange.status == 200
            and exchange.unwrapped.leaf.kind is LeafKind.FAILURE
            and not _only_a_reason(exchange.response_json)
            and exchange.call in {Call.RUN, Call.VERIFY, Call.AGENT_SESSION}
        ):
            yield exchange_sight(view, exchange, _leaf(exchange), _leaf(exchange))


def _only_a_reason(body: Any) -> bool:
    """Whether a body has a reward and a reason for it, and no kind of failure: then the reason is the verdict's."""
    return isinstance(body, dict) and "reward" in body and not body.get("failure") and not body.get("failure_kind")


def _tool_raised(view: View) -> Iterator[Sight]:
    for failure in view.exchange_failures:
        if failure.call is Call.TOOL and failure.exchange and (failure.status or 0) >= 500:
            yield exchange_sight(
                view,
                failure.exchange,
                f"{failure.status} {failure.said[:200]}",
                f"{failure.exchange.path.rsplit('/', 1)[-1]} ({_leaf(failure.exchange) or failure.status})"
                + _at(view, failure.exchange.unwrapped.leaf.text),
            )


def _not_raised(view: View) -> Iterator[Sight]:
    """A Gym server that answered 200 although what it needed failed, and that is no swallowed overflow."""
    for failure in view.exchange_failures:
        if (
            failure.swallowed
            and failure.exchange
            and failure.call in {Call.VERIFY, Call.SEED_SESSION, Call.MODEL, Call.RESPONSES, Call.PROVIDER}
        ):
            yield exchange_sight(
                view, failure.exchange, f"{failure.status} {failure.said[:200]}", failure.said.partition("\n")[0][:120]
            )


_HISTORY = (
    r"provided without its required (?:following|preceding) item|no tool output found for function call|"
    r"no tool call found for function call output|tool_call_id[^\n]{0,60}(?:not found|did not|missing|without)|"
    r"must be (?:a response to|followed by)[^\n]{0,60}tool|unexpected `?tool_use_id|"
    r"tool_use[^\n]{0,60}without[^\n]{0,20}tool_result|previous response[^\n]{0,60}not found|"
    r"previous_response_not_found|function (?:call|response) (?:turn|part)|item with id '[^']*' not found"
)


def _agent_history(view: View) -> Iterator[Sight]:
    """A provider's 4xx about the messages of a later turn: the agent built them, not the row."""
    places = r"messages\.\d+|messages\[\d+\]|input\[\d+\]|input\.\d+|body\.(?:messages|input)"
    return (sight for words, sight in _refused_later(view) if re.search(places, words))


def _later_turn_refused(view: View) -> Iterator[Sight]:
    """A provider's 4xx about calls, thoughts or signatures in a conversation whose earlier turns it took."""
    for words, sight in _refused_later(view):
        of_form = re.search(r"\bmust be a-z|with a length of", words)  # the engine's own form of an id
        if not of_form and re.search(_OF_A_TURN, words, re.IGNORECASE):
            yield sight


def _refused_later(view: View) -> Iterator[tuple[str, Sight]]:
    """Each 400 or 422 of a provider's that took an earlier turn of the row: its words, and the sight."""
    providers = view.material.of(Call.PROVIDER)
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.call is not Call.PROVIDER or failure.status not in {400, 422}:
            continue
        if any(not one.failed and view.tree.order(one) < view.tree.order(exchange) for one in providers):
            words = failure.said
            yield words, exchange_sight(view, exchange, words[:300], words.partition("\n")[0][:160])


_log_said = said(
    r"^Traceback[\s\S]*?(?P<what>(?:\w+\.)*\w*(?:Error|Exception)\b[^\n]{0,160})\s*\Z|"
    r"^(?:Syntax|Indentation|Tab|Name|UnboundLocal|Type|Attribute|Index|ZeroDivision|Recursion|"
    r"NotImplemented)Error: [^\n]*|^RuntimeError: (?:there is no current event loop|"
    r"(?:this )?event loop is)[^\n]*",
    sources=("log",),
    unless=r"CancelledError|KeyboardInterrupt|SystemExit|unhandled errors in a TaskGroup|"
    r"ClientResponseError: 500|GeneratorExit|InvalidStateError",
)


def _log_exception(view: View) -> Iterator[Sight]:
    """An exception in a log, with the file and line that its traceback ends in."""
    for sight in _log_said(view):
        text = sight.failure.said if sight.failure else ""
        place = frame_of(text) or raised_at(view.material.log, sight.what)
        yield replace(sight, what=f"{sight.what} at {place}", advice=_AT_THAT_LINE) if place else sight


_AT_THAT_LINE = (
    "Read the code at that line and what it was given (the request that led there, or what the server read at its "
    "start), and mend what it takes for granted."
)


_OF_A_TURN = (
    r"function ?call|tool[_ ]?(?:call|use|result|response)|thought|thinking|signature|reasoning (?:item|content)|"
    r"assistant message|preceding|content block"
)


RULES: tuple[Rule, ...] = (
    Rule(
        id="verifier.agent_history",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A provider's words about a call without its output, or a place in the messages of a later turn",
        sees=both(_agent_history, said(_HISTORY, calls=frozenset({Call.PROVIDER}), statuses=(400, 404, 422))),
        cause="The agent built a history that the provider does not take: {what}.",
        next_action="Look at the recorded request of that turn; keep calls with their outputs and reasoning with what "
        "follows it.",
        source="OpenAI Responses, Chat Completions and Anthropic history rules",
        strength=Strength.PROVEN,
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="verifier.later_turn_refused",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A provider's 4xx about calls, thoughts or signatures, after it took the turns before",
        sees=_later_turn_refused,
        cause="The provider took the first turns and refuses the next one for what was sent back of them: {what}.",
        next_action="Compare what the provider answered with what the next request repeats of it: the agent or the "
        "model server's converter drops or changes a part (call ids, thought signatures, reasoning items).",
        source="Gemini, Anthropic and OpenAI want parts of their answers back unchanged",
        strength=Strength.STATUS,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="verifier.bad_reward",
        layer=Layer.VERIFIER_RUNTIME,
        needs="verify 200 whose reward is missing, null, not finite or not a number",
        sees=_bad_reward,
        cause="The verifier answered 200 with {what}; the agent that refuses it is not at fault.",
        next_action="Make verify return a finite number in `reward` on every path, and run the row's verify again "
        "(`gymtap replay ROW --from verify`).",
        source="Gym 0.7.0 SimpleAgentVerifyResponse",
        strength=Strength.PROVEN,
        failure_kind="verifier_error",
    ),
    Rule(
        id="verifier.reward_changed",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A /run that tells another reward than verify did",
        sees=_reward_changed,
        cause="The reward was changed on its way from the verifier to the collector: {what}.",
        next_action="Let the agent pass verify's answer on as it is; score these rows again.",
        source="Gym's agents answer /run with verify's body",
    ),
    Rule(
        id="verifier.bad_reward_told",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A collected row without a usable reward, or a told one that the agent refused",
        sees=both(
            _bad_reward_told,
            said(r"validation errors? for \w*VerifyResponse\s+reward[^\n]*", sources=("log", "result", "row")),
        ),
        cause="The row ended with {what}.",
        next_action="Make verify return a finite number in `reward` on every path.",
        source="Gym rollouts",
        failure_kind="verifier_error",
    ),
    Rule(
        id="verifier.lost_body",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A resources server's 500 that does not carry the 4xx of the call below it",
        sees=_lost_body,
        cause="The server calls with a bare raise_for_status, so the real answer of its judge is in no log: {what}.",
        next_action="Use nemo_gym.server_utils.raise_for_status there, and repair what the recorded inner answer says.",
        source="Gym 0.7.0: only its own raise_for_status keeps the body",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
        failure_kind="verifier_error",
    ),
    Rule(
        id="verifier.disagrees",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A /run error whose innermost text is not what the innermost failing exchange sent",
        sees=_disagrees,
        cause="The error that /run tells is not the one on the wire: {what}.",
        next_action="Believe the exchange; the text is of an exception that came after it, or of an earlier call.",
        source="The recorded call tree",
        severity=Severity.WARNING,
        strength=Strength.FALLBACK,
    ),
    Rule(
        id="verifier.judge_overflow",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A judge's words that its prompt does not fit",
        sees=_judge_overflow,
        cause="What the verifier sent does not fit the judge's context, and the empty verdict was scored: {what}.",
        next_action="Shorten the answer before judging, or serve the judge with a longer context; score these rows "
        "again.",
        source="Gym 0.7.0 vllm_model swallows context errors, the judge's too",
        strength=Strength.PROVEN,
        runner_up=Layer.DATA_SCHEMA,
        failure_kind="judge_failed",
    ),
    Rule(
        id="verifier.judge_filtered",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A content filter's refusal of a judge's prompt, under a verify that answered with a reward",
        sees=_judge_filtered,
        cause="A content filter refused the judge's prompt, so nothing was judged, and the row was scored all the "
        "same: {what}.",
        next_action="Let the verifier mask such rows instead of scoring them, and judge them with a provider or "
        "deployment whose filter lets the text pass; the answers need not be generated again.",
        source="Azure and OpenAI content filters; except-and-return-0 in resources servers",
        strength=Strength.PROVEN,
        runner_up=Layer.DATA_SCHEMA,
        failure_kind="judge_failed",
    ),
    Rule(
        id="verifier.judge_unparseable",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A judge's answer without a verdict, for a row with no reward",
        sees=_judge_unparseable,
        cause="The judge's answer holds no verdict that the verifier reads ({what}), so nothing was judged.",
        next_action="Give the judge room to finish, make its form strict or the parser lenient, and count unparseable "
        "apart from wrong.",
        source="Gym judges' parsers fall back to 0",
        strength=Strength.PROVEN,
        failure_kind="judge_unparseable",
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="verifier.judge_rejected",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A judge's 4xx",
        sees=_judge_rejected,
        cause="The judge refused what the verifier asked: {what}.",
        next_action="Correct the judge's parameters or address in the resources server's configuration, then score "
        "again.",
        source="HTTP 4xx",
        strength=Strength.STATUS,
        runner_up=Layer.CONFIG,
        failure_kind="judge_failed",
    ),
    Rule(
        id="verifier.masked",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A reward of 0 beside fields that tell of an error",
        sees=_masked,
        cause="An error in the verifier was turned into reward 0: {what}.",
        next_action="Let the verifier fail such rows instead of scoring them, and leave them out of the mean.",
        source="except-and-return-0 in resources servers",
        strength=Strength.STATUS,
        runner_up=Layer.INFRA,
        failure_kind="verifier_error",
    ),
    Rule(
        id="verifier.cookie_lost",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A call to resources without the session cookie that seed_session set",
        sees=_cookie_lost,
        cause="The session cookie was lost before {what}, so it worked on a fresh, empty session.",
        next_action="Pass cookies=request.cookies on every call and take the ones that come back; see whether a proxy "
        "or a newer Starlette drops Set-Cookie, and score these rows again.",
        source="Gym sessions are Starlette cookies, moved by hand",
        strength=Strength.NAMED,
        failure_kind="session_lost",
    ),
    Rule(
        id="verifier.session_shared",
        layer=Layer.VERIFIER_RUNTIME,
        needs="Two rows with one resources session",
        sees=_session_shared,
        cause="Two rows use one session, so each sees what the other did ({what}).",
        next_action="Do not keep cookies across rollouts; begin every row with a seed_session of its own.",
        source="Gym sessions are Starlette cookies, moved by hand",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="verifier.state_flickers",
        layer=Layer.VERIFIER_RUNTIME,
        needs="The same read in one session, answered differently",
        sees=_state_flickers,
        cause="The session's state depends on which worker answers {what}: it is kept in a worker's memory.",
        next_action="Run that resources server with one worker, or keep its state where all workers see it.",
        source="uvicorn workers do not share memory",
        strength=Strength.PROVEN,
        failure_kind="session_lost",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="verifier.session_unknown",
        layer=Layer.VERIFIER_RUNTIME,
        needs="Words that a session is not known",
        sees=both(_seed_missing, _told_no_session),
        cause="The resources server does not know the session of {what}: seed_session, the cookie or the worker is "
        "another one.",
        next_action="See whether seed_session ran for this row and whether its cookie came along; use one worker for "
        "in-memory state.",
        source="Gym sessions",
        failure_kind="session_lost",
    ),
    Rule(
        id="verifier.rejects_answer",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A Gym server's validation error about what the server below answered with 200",
        sees=_rejects_answer,
        cause="A Gym server does not take an answer that is whole on the wire: {what}.",
        next_action="Use a Gym whose models know this type, or switch off what produces it (hosted tools, extra "
        "items).",
        source="Gym 0.7.0 response models are closed unions",
        strength=Strength.NAMED,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="verifier.seed_refused",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A resources server's 200 whose body says that it failed",
        sees=said(calls=_OWN, sources=("exchange",), soft=True),
        cause="The resources server answered 200 and said that it failed: {what}.",
        next_action="Let it answer with an error status, and leave these rows out of the mean.",
        source="Environments that answer 200 with an error",
        strength=Strength.STATUS,
        runner_up=Layer.INFRA,
        failure_kind="verifier_error",
    ),
    Rule(
        id="verifier.typed_failure",
        layer=Layer.VERIFIER_RUNTIME,
        needs="200 with `failure`",
        sees=_typed_failure,
        cause="The environment reports a failure of its own: {what}.",
        next_action="Read failure_kind and stage in the body, and the environment server's log at that time.",
        source="Gym 0.7.0 EpisodeFailure",
        strength=Strength.STATUS,
    ),
    Rule(
        id="verifier.tool_raised",
        layer=Layer.VERIFIER_RUNTIME,
        needs="5xx from a tool",
        sees=both(_tool_raised, echoes(Echo.RAISED)),
        cause="A tool raised, and its error was fed to the model as the tool's output: {what}.",
        next_action="Read the resources server's traceback for this call, run it again alone (`gymtap replay "
        "EXCHANGE`), and leave such rows out of the mean.",
        source="Gym pastes a tool's error body into function_call_output",
        strength=Strength.STATUS,
        failure_kind="verifier_error",
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="verifier.metrics_raised",
        layer=Layer.VERIFIER_RUNTIME,
        needs="5xx from /aggregate_metrics, with nothing failing below it",
        sees=_metrics_raised,
        cause="Computing the metrics raised: {what}.",
        next_action="The rollouts are written and safe; only their metrics are to be computed again. Let the server's "
        "compute_metrics allow for rows that lack the field (masked and failed ones do), or leave those rows out, then "
        "run this call again alone (`gymtap replay EXCHANGE`).",
        source="Gym 0.7.0 /aggregate_metrics gets all rows of an agent at once",
        strength=Strength.STATUS,
        failure_kind="verifier_error",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="verifier.stumbled",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A Gym server's KeyError, TypeError or their kin, with nothing failing below it",
        sees=_gym_stumbled,
        cause="The Gym server raised at a value that it did not expect: {what}.",
        next_action="Look for the field in the recorded request of this call (`gymtap show EXCHANGE`): where it is "
        "null or missing, fill or drop it in the row or use a Gym that takes it; where it is there, the server's code "
        "is at fault. `gymtap replay EXCHANGE` runs this call again alone.",
        source="Gym 0.7.0 exception middleware answers 500 with repr(exception)",
        strength=Strength.STATUS,
        failure_kind="verifier_error",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="verifier.raised",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A Gym server's 500 with nothing failing below it",
        sees=both(_gym_raised, _raised_told, said(calls=_OWN, statuses=(500,), sources=("log",), judge=False)),
        cause="The Gym server raised: {what}.",
        next_action="Read that server's traceback at that time, and run this call again alone (`gymtap replay "
        "EXCHANGE`) once its code or what it needs is mended.",
        source="Gym 0.7.0 exception middleware answers 500 with repr(exception)",
        strength=Strength.STATUS,
        failure_kind="verifier_error",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="verifier.verify_4xx",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A 4xx other than 422 from verify or seed_session",
        sees=said(
            calls=frozenset({Call.VERIFY, Call.SEED_SESSION, Call.CLOSE_SESSION, Call.AGGREGATE}),
            statuses=range(400, 500),
            sources=("exchange",),
        ),
        cause="The resources server refused the call: {what}.",
        next_action="Read why in its body and its code; a dependency's status is passed on here, most often.",
        source="FastAPI HTTPException",
        strength=Strength.FALLBACK,
        failure_kind="verifier_error",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="verifier.pickled",
        layer=Layer.VERIFIER_RUNTIME,
        needs="An exception that cannot be pickled",
        sees=said(
            r"can(?:not|'t) pickle|picklingerror|unpickl|raytaskerror[^\n]{0,60}(?:pickle|serializ)|could not serialize"
        ),
        cause="An exception that cannot be pickled hid the real one while it crossed a process: {what}.",
        next_action="Look for the first failure before it (the exchange, or `/run failed`), and wrap exceptions "
        "before they cross Ray.",
        source="aiohttp exceptions hold multidicts; Ray pickles exceptions",
    ),
    Rule(
        id="verifier.log_exception",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A traceback in a server's log that no other rule knows",
        sees=_log_exception,
        cause="Code of a server raised: {what}.",
        next_action="Find its traceback in that server's own log: the last frame in the server's code, and the request "
        "that led there.",
        source="Python tracebacks",
        strength=Strength.FALLBACK,
        failure_kind="verifier_error",
    ),
    Rule(
        id="verifier.dependency",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A module, program or sandbox that a server needs and lacks",
        sees=said(
            r"modulenotfounderror[^\n]{0,120}|importerror[^\n]{0,120}|no module named '?(?P<what>[\w.]+)|"
            r"no such kernel|unknown package '|^(?:ba)?sh: [^\n]*: (?:no such file|not found)|"
            r"could not import module|error loading asgi app|command not found|"
            r"executable[^\n]{0,40}not found|nltk[^\n]{0,40}not found|shared librar(?:y|ies)[^\n]{0,60}cannot"
        ),
        cause="A server lacks something that it runs with: {what}.",
        next_action="Install it in that server's own environment or image, on every node, and start again.",
        source="Python import and shell messages",
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="verifier.swallowed",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A failed call under a call that answered well",
        sees=_not_raised,
        cause="A failure was swallowed and the row was scored all the same: {what}.",
        next_action="Do not count this row; let the caller fail when what it needs fails.",
        source="Gym 0.7.0 swallows some provider errors",
        strength=Strength.FALLBACK,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="verifier.run_failed",
        layer=Layer.VERIFIER_RUNTIME,
        needs="Only outer 500s, with no body of what failed",
        sees=said(
            r"/run failed status=\d+|ClientResponseError: 500|None of the \d+ dispatched rollouts produced|"
            r"rollout dropped from the score|500, message='Internal Server Error'",
            sources=("log", "result", "row"),
        ),
        cause="Only outer errors are known; the inner one is in none of what was given.",
        next_action="Run one such row through gymtap, which keeps the inner body, or with "
        "++global_aiohttp_client_request_debug=True.",
        source="Gym 0.7.0 collector",
        strength=Strength.NOISE,
        severity=Severity.WARNING,
    ),
)
