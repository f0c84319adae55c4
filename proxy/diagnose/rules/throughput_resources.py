"""Throughput and resources: rate limits, time limits, memory, descriptors, output budgets."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gymtap.proxy.core.literals import NotALiteral, value
from gymtap.proxy.diagnose.answers import Answer, answers, echo, read_answer, tool_calls
from gymtap.proxy.diagnose.evidence import Seen
from gymtap.proxy.diagnose.rule import (
    ALLOTMENT,
    GENERATION,
    RESOURCES,
    Rule,
    Sees,
    Sight,
    Strength,
    View,
    both,
    exchange_sight,
    said,
)
from gymtap.proxy.diagnose.tool_answers import hopeless_tools, told_status
from gymtap.schemas import Call, Layer, Severity

_RATE = (
    r"rate[_ -]?limit|too many requests|throttl(?:ed|ing)|requests per (?:min|day|second)|tokens per min|slow ?down|"
    r"resource_?exhausted|overloaded|capacity exceeded|server is (?:busy|at capacity)|concurrency limit|"
    r"queue[^\n]{0,30}(?:is )?full|backpressure|load ?shed|too busy|no (?:free )?slots?\b|"
    r"no deployments available for selected model|"
    r"max(?:imum)? (?:number of )?(?:concurrent|parallel) requests"
)
_MEMORY = (
    r"^\s*killed\s*$|low on (?:resource: )?memory|"
    r"outofmemoryerror|"
    r"calledprocesserror\(-9\b|out[- ]of[- ]memory|memory pressure|\(oom\)|oom[-_ ]?kill(?:ed|er)?|memorykilled|"
    r"killed process \d+|"
    r"objectstorefull|object store[^\n]{0,30} is full|cannot allocate memory|errno 12\]|"
    r"memoryerror|std::bad_alloc|memory (?:usage|limit)[^\n]{0,60}(?:exceed|threshold)|oomkilled|"
    r"exit(?:ed)?(?: with)?(?: the)? (?:code|status)[ :=]+(?:-9|137)\b|returned? (?:non-zero )?exit (?:code|"
    r"status) (?:-9|137)|\bsigkill\b|signal 9|not enough memory"
)
_GPU_MEMORY = (
    r"(?:cuda|hip)[^\n]{0,20} out of memory|torch\.(?:cuda\.)?outofmemory|cublas_status_alloc_failed|"
    r"not enough gpu memory"
)
_ENGINE_MEMORY = (
    r"no available memory for the cache blocks|kv cache[^\n]{0,80}(?:larger|exceed|not enough|insufficient)|"
    r"free memory on device[^\n]{0,80}less than"
)
_TIMED_OUT = (
    r"time[d]? ?out error|timeouterror|timed out|read ?timeout|connect ?timeout|deadline exceeded|apitimeouterror|"
    r"request timeout|serve timeout|timeout(?:expired| while| waiting| reached| exceeded)|exceeded (?:the )?(?:time|"
    r"deadline)|time limit exceeded"
)


def _cut_arguments(view: View) -> Iterator[Sight]:
    """Tool arguments that stop in the middle: the output budget ended them, whatever the finish reason says."""
    for exchange, answer in answers(view.material):
        for name, arguments in tool_calls(answer):
            if _stops_midway(arguments) and (answer.cut or not _refused_later(view, exchange)):
                sight = exchange_sight(view, exchange, f"{name}({arguments[-120:]}", name)
                yield replace(sight, shown=echo(view.material, arguments))


def _refused_later(view: View, exchange: Seen) -> bool:
    """Whether a later turn was refused: then what the history holds ended the row, whoever made it."""
    return any(
        failure.call is Call.PROVIDER and failure.status in {400, 422} and failure.exchange is not exchange
        for failure in view.exchange_failures
    )


def _stops_midway(arguments: str) -> bool:
    if not arguments.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(arguments)
    except json.JSONDecodeError:
        try:
            found = value(arguments)
        except NotALiteral:
            return False
        return not found.closed
    return False


def _cut_by_length(view: View) -> Iterator[Sight]:
    """An answer that the output limit ended before it said anything usable."""
    for exchange, answer in answers(view.material):
        empty = answer.cut and not answer.text.strip() and not answer.calls
        if empty and not exchange.judge and not _made_of_an_error(view, exchange, answer):
            text = "the output limit was reached and no answer is there"
            yield exchange_sight(view, exchange, text, answer.finish or "length")


def _made_of_an_error(view: View, exchange: Seen, answer: Answer) -> bool:
    """Whether a model server wrote the empty answer itself, for a provider's error: no token was generated then."""
    failed_below = any(child.failed for child in view.tree.children[exchange.id])
    return failed_below or (exchange.call is not Call.PROVIDER and not answer.completion_tokens)


def _cut_but_answered(view: View) -> Iterator[Sight]:
    for exchange, answer in answers(view.material):
        if answer.cut and answer.text.strip() and not exchange.judge:
            yield _cut_sight(view, exchange, answer)


def _cut_and_lost(view: View) -> Iterator[Sight]:
    """A row without reward whose last answer was cut in the middle of its text."""
    verdicts = [e.response_json for e in view.material.of(Call.VERIFY) if not e.failed]
    rewards = [body.get("reward") for body in verdicts if isinstance(body, dict)]
    if len(rewards) == 1 and rewards[0] in (0, None):
        said_last = [(e, answer) for e, answer in answers(view.material) if not e.judge][-1:]
        yield from (_cut_sight(view, e, answer) for e, answer in said_last if answer.cut and answer.text.strip())
    for source, where, row in view.result_rows if not view.material.exchanges else ():
        answer = read_answer(row.get("response"))
        if answer and answer.cut and answer.text.strip() and row.get("reward") == 0:
            yield Sight(source, where, answer.text[-120:], what=answer.finish or "length")


def _cut_sight(view: View, exchange: Seen, answer: Answer) -> Sight:
    return exchange_sight(view, exchange, answer.text[-120:], answer.finish or "length")


def _retry_storm(view: View) -> Iterator[Sight]:
    """The same provider request failed many times over."""
    failed = [f for f in view.exchange_failures if f.call in GENERATION and f.exchange is not None]
    counted = Counter((f.exchange.path, f.exchange.request, f.status) for f in failed if f.exchange)
    for (path, request, status), count in counted.items():
        if count >= 10 and status in {429, 529, None}:
            first = next(
                f.exchange for f in failed if f.exchange and (f.exchange.path, f.exchange.request) == (path, request)
            )
            yield exchange_sight(
                view, first, f"{count} tries of {path}, each {status or 'without an answer'}", f"{count} tries"
            )


def _tool_tells(pattern: str, *statuses: int) -> Sees:
    """Sees tools that told nothing but such an error of what stands behind them."""
    words = re.compile(pattern, re.IGNORECASE)

    def sees(view: View) -> Iterator[Sight]:
        for exchange, text in hopeless_tools(view.material.exchanges):
            if told_status(text) in statuses or words.search(text):
                yield exchange_sight(view, exchange, text[:300], text[:160])

    return sees


def _pinned(view: View) -> Iterator[Sight]:
    """First turns of several conversations that carry one and the same model session cookie."""
    by_cookie: dict[str, list[Seen]] = {}
    for exchange in view.material.of(Call.MODEL, judge=None):
        cookie = exchange.request_headers.get("cookie", "")
        for value_ in re.findall(r"\w*Model___[^=;]+=[^;.]+", cookie):
            by_cookie.setdefault(value_, []).append(exchange)
    for shared in by_cookie.values():
        if len(shared) >= 3 and len({_conversation(view, exchange) for exchange in shared}) >= 3:
            yield exchange_sight(
                view, shared[0], f"{len(shared)} conversations with one model cookie", str(len(shared))
            )


def _conversation(view: View, exchange: Seen) -> str:
    """What tells conversations apart: the row's outermost exchange, else what the first message says."""
    root = view.tree.chain(exchange)[0]
    if root is not exchange:
        return root.id
    body = exchange.request_json
    given = body.get("input", body.get("messages")) if isinstance(body, dict) else None
    return str(given[0]) if isinstance(given, list) and given else str(body)


def _cut_result(view: View) -> Iterator[Sight]:
    """A result without an answer whose own usage says that tokens were generated up to the limit."""
    if view.material.exchanges:
        return
    for source, where, row in view.result_rows:
        response = row.get("response")
        answer = read_answer(response)
        if answer and answer.cut and not answer.text.strip() and not answer.calls and answer.completion_tokens:
            yield Sight(
                source, where, f"{answer.completion_tokens} tokens and no answer", what=str(answer.completion_tokens)
            )


_KILLED = (
    re.compile(r"name=(?P<name>[^,\s]+), pid=(?P<pid>\d+), memory used=(?P<held>[\d.]+ ?[KMGT]?i?B)"),
    re.compile(r"[Kk]illed process (?P<pid>\d+) \((?P<name>[^)]+)\)(?:[^\n]*?anon-rss:(?P<held>\d+ ?kB))?"),
)
"""How Ray's memory monitor and the kernel name what they killed."""
_NODE_MEMORY = re.compile(r"\b[\d.]+ ?[GT]i?B ?/ ?[\d.]+ ?[GT]i?B")


def _memory(view: View) -> Iterator[Sight]:
    """Words that memory ran out, with who was killed for it where a log names it."""
    log = "\n".join(view.material.log)
    victim = next(filter(None, (pattern.search(log) for pattern in _KILLED)), None)
    for sight in said(_MEMORY, unless=_GPU_MEMORY)(view):
        if victim is None:
            yield sight
            continue
        held = f" with {victim['held']}" if victim["held"] else ""
        node = _NODE_MEMORY.search(log)
        killed = f"the process killed was {victim['name']} (pid {victim['pid']}){held}" + (
            f", the node at {node[0]}" if node else ""
        )
        yield replace(sight, what=f"{sight.what.rstrip('.')}; {killed}", advice=_VICTIM_ADVICE)


_VICTIM_ADVICE = (
    "See whether the process that was killed is the one that grew (it is often only the largest): lower what it keeps "
    "at once (rollouts in flight, batch, sizes of answers), give that node or container more memory, or move "
    "what runs beside it; then resume."
)
_CONGESTED = re.compile(
    r"waiting: [1-9]\d{2,} reqs|queue-req: [1-9]\d{2,}|kv cache usage: (?:9\d|100)|token usage: (?:0\.9\d|1\.0)",
    re.IGNORECASE,
)
_LOAD = re.compile(
    r"running: \d+ reqs|waiting: \d+ reqs|(?:gpu )?kv cache usage: [\d.]+%|#(?:running|queue)-req: \d+|"
    r"token usage: [\d.]+",
    re.IGNORECASE,
)


def _timed_out(view: View) -> Iterator[Sight]:
    """Calls that a time limit ended; of those to a model, with the engine's own words that too many waited."""
    lines = [line for line in view.material.log if _CONGESTED.search(line)]
    load = ", ".join(_LOAD.findall(lines[-1])) if lines else ""
    for sight in _timeouts(view):
        waits = load and sight.failure is not None and (sight.failure.call in GENERATION or sight.failure.call is None)
        if waits:
            what = f"{sight.what.rstrip('.')}; the engine's log says {load}"
            yield replace(sight, what=what, advice=_CONGESTED_ADVICE)
        else:
            of_tool = sight.exchange is not None and sight.exchange.call is Call.TOOL
            yield replace(sight, advice=_TOOL_ADVICE) if of_tool else sight


_TOOL_ADVICE = (
    "See why what stands behind the tool took so long (its own log at that time): give it more capacity, lower the "
    "rollouts in flight, or raise the tool's limit, and leave these rows out of the mean."
)


_CONGESTED_ADVICE = (
    "The engine has more requests than it can run, so they wait beyond the caller's limit: lower the concurrency in "
    "front of it (num_samples_in_parallel) or add replicas; a longer limit alone only lengthens the queue."
)
_timeouts = both(
    said(timeout=True),
    _tool_tells(
        r"(?:request|read|connect(?:ion)?|gateway|upstream|backend|server)[ -]{0,2}(?:has )?timed?[- ]?out|"
        r"request to [^\n]{0,40} timed out",
        408,
        504,
    ),
    said(_TIMED_OUT, unless=r"spin[- ]?up|nccl|collective|gcs|placement group|watchdog"),
)


RULES: tuple[Rule, ...] = (
    Rule(
        id="throughput.pinned",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="Several conversations with one model session cookie",
        sees=_pinned,
        cause="{what} conversations share one model session cookie, so all of them go to one of the engines.",
        next_action="Do not keep cookies across rollouts (aiohttp.DummyCookieJar), so that each conversation is "
        "routed by itself.",
        source="Gym 0.7.0 vllm_model pins a session to an engine by its cookie",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="throughput.cut_result",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="A result that was cut by length, without an answer, with tokens in its usage",
        sees=_cut_result,
        cause="The output limit was used up ({what} tokens) before any answer came.",
        next_action="Raise max_output_tokens or lower the reasoning effort, and do not count this row as wrong.",
        source="Responses incomplete_details and usage",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="throughput.rate_limit",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="429 or 529, or words about a rate or capacity limit",
        sees=both(
            said(statuses=(429, 529), sources=("exchange", "log", "result")),
            said(_RATE, statuses=(400, 403, 413, 429, 500, 503, 529), unless=r"toomanyrequests: |pull rate limit"),
            _tool_tells(
                r"too many requests|rate[_ -]?limit|requests per (?:second|min)|quota exceeded for [^\n]{0,20}\bapi",
                429,
                529,
            ),
        ),
        cause="The {role}'s provider limits the rate, and more was asked of it than it takes: {what}.",
        next_action="Lower the {role}'s concurrency (num_samples_in_parallel bounds both), back off as Retry-After "
        "says, or raise the limit or add replicas; count the rows that were lost to it.",
        source="HTTP 429, Anthropic 529; Gym 0.7.0 retries 3 times and ignores Retry-After",
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="throughput.gpu_memory",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="Words that the GPU's memory ran out while something ran on it",
        sees=said(_GPU_MEMORY),
        cause="The GPU's memory ran out: {what}.",
        next_action="Lower batch size (max_num_batched_tokens, max_num_seqs), context length or "
        "gpu_memory_utilization, or free the GPU of other processes; an engine that died of it has to be started "
        "again.",
        source="PyTorch and vLLM",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
        failure_kind="provider_oom_killed",
    ),
    Rule(
        id="throughput.memory",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="Words that a host's or a container's memory ran out, or a kill by the kernel",
        sees=_memory,
        cause="Memory ran out: {what}.",
        next_action="See on that node who was killed and what grew (`dmesg -T | grep -i 'killed process'`, the "
        "container's or the job's state), lower what it keeps at once or give it more memory, then resume.",
        source="PyTorch, vLLM, Linux OOM killer, Ray memory monitor, Slurm",
        strength=Strength.PROVEN,
        runner_up=Layer.INFRA,
        failure_kind="provider_oom_killed",
    ),
    Rule(
        id="throughput.allotment",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="A tool's or an environment's words that its share of disk, memory, processors or sandboxes is used up",
        sees=said(ALLOTMENT, calls=RESOURCES | {Call.RUN, Call.OTHER, Call.AGENT_SESSION}, unless=r"\berrno 122\b"),
        cause="The environment's allotment is used up: {what}.",
        next_action="Free what earlier rows left behind, bound the concurrency to the allotment, or raise it; leave "
        "these rows out of the mean.",
        source="Daytona, Modal, E2B and Kubernetes quotas",
        strength=Strength.PROVEN,
        runner_up=Layer.INFRA,
        failure_kind="provider_quota_exhausted",
    ),
    Rule(
        id="throughput.tool_queue",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="A tool that tells of nothing but waiting for a free worker, in a row without reward",
        sees=both(
            said(r"pool (?:is )?(?:exhausted|full)", calls=frozenset({Call.TOOL})),
            _tool_tells(
                r"\bqueued (?:for )?\d|(?:wait\w*|queue\w*)[^\n]{0,40} for (?:a |an )?(?:free|available|"
                r"idle) (?:worker|"
                r"slot|sandbox|container|session)|queue (?:is )?full|no (?:free|idle|available) (?:worker|slot)s?"
            ),
        ),
        cause="The tool's own pool had no room, so the call waited until its time limit: {what}.",
        next_action="Give the pool more workers or lower the rollouts in flight, and leave these rows out of the mean; "
        "neither the program nor the model is at fault.",
        source="Sandbox servers that count the wait in the time limit",
        runner_up=Layer.INFRA,
        failure_kind="provider_unavailable",
    ),
    Rule(
        id="throughput.engine_memory",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="The engine's words at its start that the GPU has no room for weights or cache",
        sees=said(_ENGINE_MEMORY),
        cause="The engine does not start, since the GPU's memory does not hold what it was asked to: {what}.",
        next_action="Raise gpu_memory_utilization, lower max_model_len, use more GPUs, or free this one of other "
        "processes, and start the engine again.",
        source="vLLM and SGLang start-up messages",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
        failure_kind="provider_oom_killed",
    ),
    Rule(
        id="throughput.descriptors",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="Words that descriptors, threads, processes or local ports ran out",
        sees=said(
            r"too many open files|errno 24|emfile|enfile|file table overflow|can't start new thread|errno 11\]|"
            r"resource temporarily unavailable|cannot assign requested address|errno 99|eaddrnotavail|"
            r"connection slots are reserved|too many (?:clients|connections)\b|inotify[^\n]{0,40}limit|fork: retry|"
            r"queuepool limit|pool ?timeout|connection pool is (?:full|exhausted)"
        ),
        cause="This process ran out of descriptors, threads or ports: {what}.",
        next_action="Raise the limit (`ulimit -n`, `-u`) where the servers start and bound the concurrency.",
        source="Linux errno",
        strength=Strength.PROVEN,
        runner_up=Layer.INFRA,
        failure_kind="transport_local_resource",
    ),
    Rule(
        id="throughput.cut_arguments",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="Tool arguments that stop in the middle of their JSON",
        sees=_cut_arguments,
        cause="The output limit cut the arguments of the call to {what}; the tool never ran as the model meant.",
        next_action="Raise max_output_tokens for this row; the tool's schema is not at fault.",
        source="vLLM may say finish_reason tool_calls for a call that the limit cut",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="throughput.cut_by_length",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="finish_reason length, or incomplete max_output_tokens, without an answer",
        sees=_cut_by_length,
        cause="The output limit was used up before any answer came (by reasoning, most often), so the reward is of "
        "nothing.",
        next_action="Raise max_output_tokens or lower the reasoning effort, and do not count this row as wrong.",
        source="OpenAI finish_reason length, Responses incomplete_details",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="throughput.cut_and_lost",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="A reward of 0 for a row whose last answer the output limit cut",
        sees=_cut_and_lost,
        cause="The output limit cut the last answer, and the verifier gave 0 for what is left of it.",
        next_action="Raise max_output_tokens (or lower the reasoning effort), and count such rows apart from wrong "
        "ones.",
        source="OpenAI finish_reason length, Responses incomplete_details",
        strength=Strength.STATUS,
    ),
    Rule(
        id="throughput.cut_answer",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="An answer that the output limit cut",
        sees=_cut_but_answered,
        cause="The output limit cut the answer.",
        next_action="Raise max_output_tokens if the verifier needs the end of the answer.",
        source="OpenAI finish_reason length, Responses incomplete_details",
        severity=Severity.WARNING,
        strength=Strength.STATUS,
    ),
    Rule(
        id="throughput.retry_storm",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="Ten or more failed tries of one request",
        sees=_retry_storm,
        cause="The same request is tried again and again: {what}.",
        next_action="Stop the run, repair what refuses, and bound the retries before resuming.",
        source="Gym 0.5 to 0.7 retry dropped connections and judges' 429 without end",
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="throughput.judge_timeout",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="A judge call that a time limit ended",
        sees=said(timeout=True, judge=True, sources=("exchange",)),
        cause="The judge needs longer than its time limit, so its rows are lost or scored 0, long and image-heavy ones "
        "first: {what}.",
        next_action="Raise the judge's time limit or its capacity, then score the stored answers again.",
        source="Judge clients with a fixed time limit",
        strength=Strength.PROVEN,
        failure_kind="judge_failed",
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="throughput.timeout",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="A call that a time limit ended",
        sees=_timed_out,
        cause="A time limit ended the call before the answer came: {what}.",
        next_action="See which hop used the time (`gymtap tree ROW` has each hop's): where it is the engine, lower the "
        "concurrency in front of it or add replicas; where one call needs it, raise the caller's limit above that.",
        source="aiohttp, httpx and openai client messages",
        strength=Strength.STATUS,
        runner_up=Layer.INFRA,
        failure_kind="transport_timeout",
    ),
    Rule(
        id="throughput.status_timeout",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="408, 504 or 524: a server or gateway that gave up waiting",
        sees=said(statuses=(408, 504, 524), calls=GENERATION | RESOURCES, sources=("exchange", "result", "row", "log")),
        cause="A gateway's time limit is shorter than the answer takes: {what}.",
        next_action="Raise the gateway's limit, cut max_output_tokens or stream; asking again only repeats it.",
        source="RFC 9110; Cloudflare 524",
        runner_up=Layer.INFRA,
        failure_kind="transport_timeout",
    ),
    Rule(
        id="throughput.saturated",
        layer=Layer.THROUGHPUT_RESOURCES,
        needs="Words about a full queue, preemption or a cache without room",
        sees=said(
            r"(?:queue|backlog)[^\n]{0,30}(?:is )?full|waiting reqs: [1-9]\d{2,}|waiting: [1-9]\d{2,}|preempted|"
            r"tasks are pending submission to actor|kv cache usage: (?:9\d|100)(?:\.\d)?%|event loop (?:is )?blocked|"
            r"slow callback|backpressure",
        ),
        cause="A server is saturated: {what}.",
        next_action="Lower the concurrency in front of it, or add capacity; output that grows steadily is no fault.",
        source="vLLM scheduler lines, asyncio debug, Gym 0.7.0 499 lines",
        strength=Strength.FALLBACK,
    ),
)
