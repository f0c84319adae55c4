"""Finds what failed: the innermost failing exchanges first, then what rows, results and logs say failed.

The recorded call tree wins over text: an exchange that failed because one below it failed is not a failure of its
own. Where no parent was recorded, the latest exchange that contains it in time and whose callee is its caller is
its parent; without times, the nearest earlier one.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard

from gymtap.proxy.core.literals import NotALiteral, value
from gymtap.proxy.core.unwrap import unwrap
from gymtap.proxy.diagnose.evidence import Material, Seen
from gymtap.proxy.diagnose.sources import call_of, transport_kind
from gymtap.schemas import Call, LeafKind, TransportErrorKind, Unwrapped

_TOLERANCE_MS = 5.0
_SEARCHED_CHARS = 12_000


@dataclass(frozen=True)
class Failure:
    """One thing that failed.

    `source` is `exchange`, `result`, `row` or `log`; `where` names it. `said` is what is searched for a rule's words.
    `swallowed`: the caller went on as if nothing had happened. `recovered`: the same call succeeded later.
    `soft`: the answer was below 400 and its body told the failure. `server` is whose line a log's is, as its prefix
    says; empty where it has none.
    `url` is the address that a log's line on a retry names.
    `order` sorts failures in time within their source.
    """

    source: str
    where: str
    said: str
    order: float
    call: Call | None = None
    judge: bool = False
    status: int | None = None
    error: TransportErrorKind | None = None
    timeout: bool = False
    innermost: Unwrapped | None = None
    exchange: Seen | None = None
    swallowed: bool = False
    recovered: bool = False
    soft: bool = False
    server: str = ""
    url: str = ""

    @property
    def told(self) -> bool:
        """Whether it is an exchange that only tells what another hop was answered, which was not recorded."""
        return self.exchange is not None and self.call is not self.exchange.call


class CallTree:
    """Parents and children of exchanges, in the order in which they began."""

    def __init__(self, exchanges: tuple[Seen, ...]) -> None:
        self.exchanges = exchanges
        self._order = {exchange.id: number for number, exchange in enumerate(exchanges)}
        self.parents: dict[str, Seen] = {}
        self.children: dict[str, list[Seen]] = defaultdict(list)
        self._tried_again: dict[str, bool] = {}
        known = {exchange.id: exchange for exchange in exchanges}
        for exchange in exchanges:
            parent = known.get(exchange.parent or "") or self._parent(exchange)
            if parent is not None:
                self.parents[exchange.id] = parent
                self.children[parent.id].append(exchange)

    def order(self, exchange: Seen) -> int:
        """Its place in the recording."""
        return self._order[exchange.id]

    def began_after(self, one: Seen, other: Seen) -> bool:
        """Whether `one` began after `other`: by their times, else by their places in the recording."""
        if one.started_ms is None or other.started_ms is None or one.started_ms == other.started_ms:
            return self.order(one) > self.order(other)
        return one.started_ms > other.started_ms

    def chain(self, exchange: Seen) -> list[Seen]:
        """From the root to `exchange`, both included."""
        chain = [exchange]
        while (parent := self.parents.get(chain[-1].id)) is not None and len(chain) < 32:
            chain.append(parent)
        return chain[::-1]

    @cached_property
    def without_parent(self) -> dict[str, list[Seen]]:
        """By boundary, the exchanges whose caller was not recorded."""
        found: dict[str, list[Seen]] = defaultdict(list)
        for exchange in self.exchanges:
            if exchange.id not in self.parents:
                found[exchange.boundary].append(exchange)
        return found

    def tried_again(self, exchange: Seen) -> bool:
        """Whether the /run that it belongs to failed, and another attempt of the same row ended well."""
        root = self.chain(exchange)[0]
        if root.id not in self._tried_again:
            self._tried_again[root.id] = root.failed and self._passed_later(root)
        return self._tried_again[root.id]

    def _passed_later(self, root: Seen) -> bool:
        return any(
            other.call is Call.RUN
            and not other.failed
            and not other.is_open
            and other.id not in self.parents
            and self.began_after(other, root)
            and _same_row(other, root)
            for other in self.exchanges
        )

    def _parent(self, exchange: Seen) -> Seen | None:
        found: Seen | None = None
        for other in self.exchanges:
            if other is not exchange and _may_call(other, exchange) and self._encloses(other, exchange):
                found = other if found is None or self._later(other, found) else found
        return found

    def _later(self, one: Seen, other: Seen) -> bool:
        return (one.started_ms or 0.0, self.order(one)) >= (other.started_ms or 0.0, self.order(other))

    def _encloses(self, outer: Seen, inner: Seen) -> bool:
        if outer.started_ms is None or inner.started_ms is None:
            return self.order(outer) < self.order(inner)
        if outer.started_ms > inner.started_ms or (outer.started_ms == inner.started_ms and outer.call is inner.call):
            return False
        if outer.ended_ms is None:
            return True
        return max(inner.started_ms, (inner.ended_ms or 0.0) - _TOLERANCE_MS) <= outer.ended_ms


def mark_judges(tree: CallTree) -> None:
    """Marks model calls by where they stand: within a verify they serve a judge, within a seed or a tool they do not.

    What no recorded call encloses keeps what its names say.
    """
    for exchange in tree.exchanges:
        if exchange.call not in {Call.MODEL, Call.PROVIDER} or "judge" in f"{exchange.boundary} {exchange.server}":
            continue
        around = {hop.call for hop in tree.chain(exchange)[:-1]}
        if Call.VERIFY in around:
            exchange.judge = True
        elif around & {Call.SEED_SESSION, Call.TOOL}:
            exchange.judge = "judge" in exchange.target


_ROW_KEYS = ("_ng_task_index", "_ng_rollout_index", "agent_ref")


def _same_row(one: Seen, other: Seen) -> bool:
    bodies = [body for body in (one.request_json, other.request_json) if _is_dict(body)]
    keys = [_row_key(body) for body in bodies if body.get("_ng_task_index") is not None]
    return one.call is other.call and len(keys) == 2 and keys[0] == keys[1]


_OF_THE_RUN = frozenset({Call.SEED_SESSION, Call.VERIFY, Call.CLOSE_SESSION, Call.RUN})


def _may_call(outer: Seen, inner: Seen) -> bool:
    """Whether what answers `outer` is what made `inner`; a session's begin, end and verdict are /run's own calls."""
    if outer.callee != inner.caller or outer.callee in {"", "?"}:
        return False
    return not (inner.call in _OF_THE_RUN and outer.call in {Call.RESPONSES, Call.AGENT_SESSION})


def failing_exchanges(tree: CallTree) -> Iterator[Failure]:
    """The innermost failing exchanges, in the order in which they began."""
    for exchange in tree.exchanges:
        if not exchange.failed or exchange.call in {Call.HEALTH, Call.HEAD} or _cancelled(exchange, tree):
            continue
        if not _explained(exchange, tree):
            yield _exchange_failure(exchange, tree)


def _cancelled(exchange: Seen, tree: CallTree) -> bool:
    """Whether its caller gave it up because something failed there: then it is a consequence and no cause."""
    if exchange.error is not TransportErrorKind.CLIENT_GONE:
        return False
    above = tree.chain(exchange)[:-1]
    return any((hop.status or 0) >= 400 and "cancelled" not in hop.unwrapped.leaf.text for hop in above)


def _explained(exchange: Seen, tree: CallTree) -> bool:
    """Whether a failing exchange below it is why it failed."""
    return any(
        (child.failed or child.is_open)
        and not _recovered(child, tree)
        and not _cancelled(child, tree)
        and _reaches(exchange, child)
        for child in tree.children[exchange.id]
    )


def _reaches(parent: Seen, child: Seen) -> bool:
    """Whether the child's failure can be the parent's: a tool's is fed to the model, unless the parent carries it."""
    if child.call is not Call.TOOL:
        return True
    leaf = child.unwrapped.leaf.text
    return bool(leaf) and leaf == parent.unwrapped.leaf.text


def _recovered(exchange: Seen, tree: CallTree) -> bool:
    parent = tree.parents.get(exchange.id)
    if exchange.failed and (tree.tried_again(exchange) or _after_the_verdict(exchange, tree)):
        return True
    if not exchange.failed or (parent is None and exchange.call not in _TRIED_AGAIN):
        return False
    beside = tree.children[parent.id] if parent is not None else tree.without_parent[exchange.boundary]
    return any(
        other.call is exchange.call and not other.failed and not other.is_open and _mends(other, exchange)
        for other in beside
        if tree.began_after(other, exchange)
    )


_TRIED_AGAIN = frozenset({Call.PROVIDER, Call.JUDGE, Call.MODEL, Call.TOOL})
"""Calls whose caller tries them again; where no caller was recorded, the same call is looked for beside it."""


def _after_the_verdict(exchange: Seen, tree: CallTree) -> bool:
    """Whether it only put away the session of a row that had ended well."""
    root = tree.chain(exchange)[0]
    closes = exchange.call is Call.CLOSE_SESSION or exchange.path.endswith("/agent_sessions/close")
    return closes and root.call is Call.RUN and not root.failed and not root.is_open


def _mends(later: Seen, failed: Seen) -> bool:
    """Whether a later answer makes a failure good: to the same question, or of a tool that the model called better."""
    if failed.call is not Call.TOOL or (failed.status or 500) >= 500:
        return _asks_the_same(later, failed)
    return later.path == failed.path or failed.status in {404, 405}


def _asks_the_same(one: Seen, other: Seen) -> bool:
    """Whether two requests put the same question: a router may ask another model, a client may add a header or id."""
    if one.request == other.request:
        return True
    asked = [
        body.get("messages", body.get("input")) for body in (one.request_json, other.request_json) if _is_dict(body)
    ]
    return len(asked) == 2 and asked[0] is not None and asked[0] == asked[1]


def _is_dict(found: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(found, dict)


def _exchange_failure(exchange: Seen, tree: CallTree) -> Failure:
    parent = tree.parents.get(exchange.id)
    innermost = exchange.unwrapped
    recovered = _recovered(exchange, tree)
    quoted = _quotes_a_provider(exchange)
    beyond = Call.PROVIDER if quoted else _beyond(innermost) if innermost.leaf.kind is not LeafKind.EXCEPTION else None
    return Failure(
        source="exchange",
        where=exchange.id,
        said=said(innermost, exchange.error_text),
        order=exchange.started_ms if exchange.started_ms is not None else tree.order(exchange),
        call=beyond or exchange.call,
        judge=exchange.judge or _wrapped_by_judge(innermost) or (quoted and exchange.call is Call.VERIFY),
        status=_told_status(innermost) if beyond else exchange.status,
        error=exchange.error,
        timeout=exchange.timeout,
        innermost=innermost,
        exchange=exchange,
        swallowed=parent is not None and not parent.failed and not parent.is_open and not recovered,
        recovered=recovered,
    )


def _quotes_a_provider(exchange: Seen) -> bool:
    """Whether a Gym server raised what a provider told its own client (an SDK's exception), which nobody recorded."""
    innermost = exchange.unwrapped
    raised = any(wrapper.kind == "exception" for wrapper in innermost.wrappers)
    own = exchange.call in {Call.VERIFY, Call.RUN, Call.RESPONSES, Call.MODEL}
    return own and raised and innermost.leaf.kind is LeafKind.PROVIDER_ERROR and not exchange.wraps


def said(innermost: Unwrapped, *more: str) -> str:
    """Everything an innermost body says, as one text to search in."""
    leaf = innermost.leaf
    code = leaf.code if leaf.code and leaf.code not in leaf.message else ""
    parts = [leaf.message, code, leaf.text, *more]
    return "\n".join(dict.fromkeys(_unechoed(part) for part in parts if part))[:_SEARCHED_CHARS]


def _unechoed(text: str) -> str:
    """A text without what a list of validation errors echoes of the request: a prompt's words are no error's."""
    start = text.find("[{")
    if start < 0 or "loc" not in text or "input" not in text:
        return text
    try:
        found = value(text, start)
    except NotALiteral:
        return text
    if not isinstance(found.value, list) or not all(_is_dict(item) and "loc" in item for item in found.value):
        return text
    kept = [{key: item[key] for key in ("type", "loc", "msg") if key in item} for item in found.value]
    return text[:start] + json.dumps(kept, ensure_ascii=False) + text[found.end :]


def soft_failures(tree: CallTree) -> Iterator[Failure]:
    """Answers below 400 whose body says that it failed: a provider's error, a stream's error event, a refused session.

    The status is the one that the body tells, where it tells one. A tool's own `error` is no failure: it is its answer.
    """
    for exchange in tree.exchanges:
        if exchange.status is None or exchange.status >= 400 or exchange.call is Call.TOOL or exchange.response is None:
            continue
        told = _soft(exchange)
        if told is not None:
            yield Failure(
                source="exchange",
                where=exchange.id,
                said=said(exchange.unwrapped, told),
                order=exchange.started_ms if exchange.started_ms is not None else tree.order(exchange),
                call=exchange.call,
                judge=exchange.judge,
                status=_told_status(exchange.unwrapped),
                innermost=exchange.unwrapped,
                exchange=exchange,
                soft=True,
            )


def _soft(exchange: Seen) -> str | None:
    leaf = exchange.unwrapped.leaf
    if leaf.kind is LeafKind.PROVIDER_ERROR and exchange.call in {Call.PROVIDER, Call.JUDGE, Call.MODEL}:
        return leaf.message
    body = exchange.response_json
    if not isinstance(body, dict) or exchange.call not in {Call.SEED_SESSION, Call.VERIFY, Call.CLOSE_SESSION}:
        return None
    if exchange.call is Call.VERIFY and isinstance(body.get("reward"), int | float):
        return None  # then its `status` and `success` are the verdict
    refused = body.get("ok") is False or body.get("success") is False or body.get("status") in {"error", "failed"}
    if not refused and not (body.get("error") and "reward" not in body):
        return None
    return str(body.get("error") or body.get("message") or body.get("reason") or body.get("detail") or "refused")


def _told_status(innermost: Unwrapped) -> int | None:
    """The status that a body itself tells: its error's code, a field of it (RFC 9457), or the head of a page."""
    leaf = innermost.leaf
    fields = leaf.value if isinstance(leaf.value, dict) else {}
    for code in (leaf.code or "", *(str(fields.get(name)) for name in ("status", "statusCode", "status_code"))):
        if re.fullmatch(r"[45]\d\d", code):
            return int(code)
    page = _PAGE_STATUS.search(leaf.message) if leaf.kind in {LeafKind.HTML, LeafKind.TEXT} else None
    return int(page[1] or page[2]) if page else None


_PAGE_STATUS = re.compile(r"^(?:[\w.-]+ \| )?([3-5]\d\d)\b(?!\.)|(?:- |code: )([45]\d\d)$")
"""`502 Bad Gateway`, `example.com | 524: A timeout occurred`, `default backend - 404`, `error code: 502`."""


def _wrapped_by_judge(innermost: Unwrapped) -> bool:
    """Whether a judge's server wrapped the body, so that what it says was said to the judge."""
    servers = [wrapper.server for wrapper in innermost.wrappers if wrapper.server]
    return bool(servers) and "judge" in servers[-1].lower() and "model" in servers[-1].lower()


# --- rows and results -----------------------------------------------------------------------------------------


def failing_results(material: Material) -> Iterator[Failure]:
    """What sidecar rows say: the failure the collector kept, unwrapped; cut ones as far as they go."""
    ended = [_row_key(row) for row in material.results if {"reward", "response"} <= row.keys()]
    for source, rows in (("result", material.results), ("row", material.row_values)):
        for number, row in enumerate(rows):
            if row.get("_ng_failure_class") or row.get("_ng_failure_response_body") or row.get("failure"):
                tried_again = row.get("_ng_task_index") is not None and _row_key(row) in ended
                yield replace(_result_failure(source, number, row), recovered=tried_again)


def _row_key(row: dict[str, Any]) -> list[Any]:
    return [row.get(key) for key in _ROW_KEYS]


def _result_failure(source: str, number: int, row: dict[str, object]) -> Failure:
    body = row.get("_ng_failure_response_body")
    innermost = unwrap(body if isinstance(body, str) else "")
    message = str(row.get("_ng_failure_message") or row.get("failure") or row.get("failure_reason") or "")
    status = row.get("_ng_failure_http_status")
    call = _beyond(innermost) if innermost.wrappers else Call.RUN if body else None
    kind, timeout = (None, False) if body else transport_kind(f"{row.get('_ng_failure_type')}: {message}")
    return Failure(
        source=source,
        where=f"{source} {number}",
        said=said(innermost, message if not body else ""),
        order=number,
        call=call,
        status=_told_status(innermost) if innermost.wrappers else status if isinstance(status, int) else None,
        error=kind if status is None else None,
        timeout=timeout and status is None,
        innermost=innermost,
    )


def _beyond(innermost: Unwrapped) -> Call | None:
    """What the innermost server that wrapped was calling, by its class; OTHER: no provider; None: nobody wrapped."""
    servers = [wrapper.server for wrapper in innermost.wrappers if wrapper.server]
    if not servers:
        return None
    return Call.PROVIDER if "model" in servers[-1].partition("___")[0].lower() else Call.OTHER


# --- logs ---------------------------------------------------------------------------------------------------------

_PREFIX = re.compile(r"^\s*\((?P<server>[\w. =:/-]{1,60})\)\s?")
_UPSTREAM = re.compile(
    r"\[upstream_request_failed\] server=(?P<server>\S+) method=\S+ url=(?P<url>\S+) status=(?P<status>\d+)"
)
_RETRY = re.compile(
    r"\[(?:model_retry|request_retry|model_retry_stop)\b[^\]]*?url=(?P<url>\S+)(?: status=(?P<status>\d+))?"
)
_CONTENT = re.compile(r"Response content: ?(.*)", re.DOTALL)
_EXCEPTION = re.compile(r"^\s*(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Failure|Killed)\b")
_MARGIN = re.compile(r"^\s*(?:\| ?|\+-[+\-\s\d]*$)")
_TRACEBACK = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_TRACEBACK_BLOCK_LINES = 400
_COMPLETE = re.compile(
    r"(?:collect|rollout|eval|row|sample)[^|\n]{0,40}100%\|.*\b(\d+)/\1\b|\bwrote \d+ rollouts?", re.IGNORECASE
)
_PROGRESS = re.compile(r"\d%\|")
_STOPPING = re.compile(r"\bshutting down\b|application shutdown|KeyboardInterrupt|\bSIGINT\b", re.IGNORECASE)
_CUT_OFF = re.compile(
    r"CancelledError|KeyboardInterrupt|refused|disconnected|reset by peer|cannot connect|Connect call failed|closed",
    re.IGNORECASE,
)
_GONE = re.compile(r"CancelledError|\b499 CLIENT DISCONNECTED|^\W*Request was cancelled", re.IGNORECASE)
"""What a run that ends with its first lost row does to the rows in flight."""
_LOST = re.compile(r"/run failed|rollout dropped|upstream_request_failed|dispatched rollouts", re.IGNORECASE)
_ALL_READY = re.compile(r"\ball\b[^\n]{0,20}\bservers? (?:are )?ready", re.IGNORECASE)
_POLLED = re.compile(r"\bpoll|waiting for|not ready|try again|retry|refused|cannot connect", re.IGNORECASE)
_FORETELLS = re.compile(
    r"\bmay (?:cause|result in|lead to)\b|\bwill result in indexing errors|longer than the specified maximum sequence|"
    r"\b(?:Deprecation|Future|Pending\w*|User|Resource|Runtime)Warning\b"
)
"""A library's warning of what could come to pass, which tells of nothing that has."""
_DIGITS = re.compile(r"\d+")
_COMPARED_CHARS = 400
_MOST_BLOCKS = 5_000
_SUSPICIOUS = re.compile(
    r"error|exception|fail|fatal|critical|"
    r"refus|reset|kill|signal|out of|oom|memory|space|quota|limit|time|exit|dead|died|lost|"
    r"unable|cannot|can't|could not|couldn't|not found|no such|no module|missing|invalid|unexpected|unsupported|denied|"
    r"already|in use|unreachable|disconnect|retry|retries|abort|cancel|stale|corrupt|truncat|mismatch|duplicate|skipp|"
    r"worker exit|token|rollouts? but|parser|"
    r"warn|🚨|panic|nccl|xid|evict|preempt|pending|infeasible|unhealthy|not ready|waiting|drop|empty|"
    r"none of|unknown|no solution|conflict|unsatisfiable|requires|offending|differ|unresolved|"
    r"insufficient|undefined|must be|should be|does not|cannot|please",
    re.IGNORECASE,
)


def failing_log_blocks(log: tuple[str, ...]) -> Iterator[Failure]:
    """Every block of a log that could name a cause: upstream failures, tracebacks, and single lines.

    What was said before, but for its numbers, is not said again: a log repeats itself, and the first time counts.
    """
    seen: set[str] = set()
    done = _ended_well(log)
    stopped = _stopped_well(log, done)
    lost = next((number for number, line in enumerate(log) if _LOST.search(line)), len(log))
    ready = max((number for number, line in enumerate(log) if _ALL_READY.search(line)), default=-1)
    for block in _log_blocks(log):
        retried = block.order < done and _RETRY.search(block.said)
        after = block.order > stopped and _CUT_OFF.search(block.said)
        gone = block.order > lost and _GONE.search(block.said)
        polled = block.order < ready and "\n" not in block.said and _POLLED.search(block.said)
        failure = replace(block, recovered=True) if retried or after or gone or polled else block
        known = _DIGITS.sub("", f"{failure.call} {failure.status} {failure.said[-_COMPARED_CHARS:]}")
        if known not in seen and len(seen) < _MOST_BLOCKS:
            seen.add(known)
            yield failure


def _ended_well(log: tuple[str, ...]) -> int:
    """The line on which a log says that all rows were collected, with nothing lost; -1 where it does not say so."""
    done = max((number for number, line in enumerate(log) if _COMPLETE.search(line)), default=-1)
    raised = any(_TRACEBACK.search(line) for line in log[: max(done, 0)])
    return -1 if raised or any(_LOST.search(line) for line in log) else done


def _stopped_well(log: tuple[str, ...], done: int) -> int:
    """The line on which a server begins to stop in good order, after which lost connections are its noise.

    Beyond the end where none does, or where the log shows a collection that had not come to its end.
    """
    underway = done < 0 and any(_PROGRESS.search(line) for line in log)
    return len(log) if underway else next((n for n, line in enumerate(log) if _STOPPING.search(line)), len(log))


def _log_blocks(log: tuple[str, ...]) -> Iterator[Failure]:
    number = 0
    while number < len(log):
        line = _bare(log[number])
        if match := _UPSTREAM.search(line):
            block, number = _upstream_block(log, number)
            yield _upstream_failure(match, block, number)
        elif _TRACEBACK.search(line):
            start = number
            number = _traceback_end(log, number)
            lines = [_TRACEBACK.search(line)[0], *map(_bare, log[start + 1 : number])]  # type: ignore[index]  # just matched
            yield _log_failure("\n".join(lines), start, _server_of(log[start]))
        else:
            if _SUSPICIOUS.search(line) and not _FORETELLS.search(line):
                yield _log_failure(line, number, _server_of(log[number]))
            number += 1


def _bare(line: str) -> str:
    """A line without the server's name that Gym puts before it, and without an exception group's margin."""
    return _MARGIN.sub("", _PREFIX.sub("", line))


def _upstream_block(log: tuple[str, ...], start: int) -> tuple[str, int]:
    """What follows `Response content:`, which may span lines, up to the next server's or Gym's own line."""
    lines: list[str] = []
    number = start + 1
    while number < len(log) and number - start < 200:
        line = _PREFIX.sub("", log[number])
        if lines and (_PREFIX.match(log[number]) or re.match(r"🚨|\[|INFO:|Traceback|\d{4}-\d\d", line)):
            break
        if not lines and "Response content" not in line:
            break
        lines.append(line)
        number += 1
    return "\n".join(lines), number


def _upstream_failure(match: re.Match[str], block: str, number: int) -> Failure:
    content = _CONTENT.search(block)
    innermost = unwrap(content[1]) if content else None
    wrapped = innermost is not None and any(wrapper.kind == "gym" for wrapper in innermost.wrappers)
    server = match["server"].lower()
    caller = "judge_model" if "judge" in server else "model" if "model" in server else "agent"
    callee = "provider" if "model" in caller else "?"
    path = re.sub(r"^https?://[^/]+", "", match["url"])
    call = call_of(caller, callee, path)
    return Failure(
        source="log",
        where=f"log:{number}",
        said=said(innermost) if innermost else "",
        order=number,
        call=_beyond(innermost) if wrapped and innermost else call,
        judge="judge" in server or "judge" in match["url"],
        status=None if wrapped else int(match["status"]),
        innermost=innermost,
    )


def _traceback_end(log: tuple[str, ...], start: int) -> int:
    for number in range(start + 1, min(len(log), start + _TRACEBACK_BLOCK_LINES)):
        line = _bare(log[number])
        if line and not line[0].isspace() and _EXCEPTION.match(line):
            return _message_end(log, number + 1)
        if line and not line[0].isspace() and number > start + 1 and re.match(r"[A-Za-z_][\w.]*(:|$)", line):
            return _message_end(log, number + 1)
    return min(len(log), start + _TRACEBACK_BLOCK_LINES)


def _message_end(log: tuple[str, ...], number: int) -> int:
    """An exception's message may go on for a few indented lines (omegaconf), pydantic's with a place before each."""
    listed = "validation error" in log[number - 1]
    while number < len(log) and (_goes_on(log[number]) or (listed and _names_a_place(log, number))):
        number += 1
    return number


def _goes_on(line: str) -> bool:
    return _bare(line)[:1] in {" ", "\t"} and bool(_bare(line).strip())


def _names_a_place(log: tuple[str, ...], number: int) -> bool:
    """Whether a line is a field's place, which pydantic's message on the next line follows."""
    follows = number + 1 < len(log) and _goes_on(log[number + 1]) and "[type=" in log[number + 1]
    return follows and bool(re.fullmatch(r"[\w.\-\[\]]+", _bare(log[number]).strip()))


def _server_of(line: str) -> str:
    match = _PREFIX.match(line)
    return match["server"] if match else ""


def _log_failure(text: str, number: int, server: str = "") -> Failure:
    retry = _RETRY.search(text)
    # An exception's own words are at a traceback's end; what stands before it is only where it was.
    innermost = unwrap(text[-_SEARCHED_CHARS:]) if "Traceback (most" in text[:40] else None
    return Failure(
        source="log",
        where=f"log:{number + 1}",
        said=text[-_SEARCHED_CHARS:],
        order=number,
        call=Call.PROVIDER if retry else None,
        judge=bool(retry and "judge" in retry["url"]),
        status=int(retry["status"]) if retry and retry["status"] else None,
        innermost=innermost,
        server=server,
        url=retry["url"] if retry else "",
    )
