"""A rule: what it needs to see, and what it then says. Rules are data; `said` and `every` make most of what they see.

What wins: a fatal failure before one that the caller swallowed, then the stronger rule, then the recorded
exchange before text, then the earlier in time. Shutdown noise is the weakest strength, so it speaks only where
nothing else does.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

from gymtap.proxy.diagnose.answers import read_answer
from gymtap.proxy.diagnose.evidence import Material, Seen
from gymtap.proxy.diagnose.failures import (
    CallTree,
    Failure,
    failing_exchanges,
    failing_log_blocks,
    failing_results,
    mark_judges,
    soft_failures,
)
from gymtap.schemas import Call, Layer, LeafKind, Severity, TransportErrorKind


class Strength(IntEnum):
    """How surely a rule knows. NOISE: a consequence more often than a cause. PROVEN: the exchanges show it."""

    NOISE = 0
    FALLBACK = 1
    STATUS = 2
    NAMED = 3
    PROVEN = 4


@dataclass(frozen=True)
class Sight:
    """What a rule saw: where, in words, and in which failure or exchange. `what` fills the cause's `{what}`.

    `shown` is the body to show where it is not the exchange's own (an error's echo in the next request). `advice` is
    the next step where what was seen tells a nearer one than the rule's `next_action`; empty for the rule's.
    """

    source: str
    where: str
    text: str
    order: float = 0.0
    what: str = ""
    pointer: str | None = None
    exchange: Seen | None = None
    failure: Failure | None = None
    shown: str | None = None
    advice: str = ""

    @property
    def swallowed(self) -> bool:
        """Whether the caller went on as if nothing had happened."""
        return self.failure is not None and self.failure.swallowed

    @property
    def recovered(self) -> bool:
        """Whether the same call succeeded later."""
        return self.failure is not None and self.failure.recovered


@dataclass(frozen=True)
class View:
    """The material with what every rule asks for: the call tree and the failures in it, found once."""

    material: Material

    @cached_property
    def tree(self) -> CallTree:
        """The exchanges as a tree, with the judge's branch marked in it."""
        tree = CallTree(self.material.exchanges)
        mark_judges(tree)
        return tree

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Innermost failing exchanges, then what results and rows say, then the log."""
        return (*self.exchange_failures, *self.soft_failures, *self.told_failures)

    @cached_property
    def soft_failures(self) -> tuple[Failure, ...]:
        """Answers below 400 whose body tells a failure."""
        return tuple(soft_failures(self.tree))

    @cached_property
    def result_rows(self) -> tuple[tuple[str, str, dict[str, Any]], ...]:
        """(source, where, row) of every row that a run has ended: the collector's, and given rows with a response."""
        kept = [("result", f"result {number}", row) for number, row in enumerate(self.material.results)]
        given = [("row", f"row {number}", row) for number, row in enumerate(self.material.row_values, 1)]
        ended = [item for item in (*kept, *given) if {"reward", "response"} & item[2].keys()]
        return tuple(item for item in ended if not item[2].get("_ng_failure_class"))

    @cached_property
    def exchange_failures(self) -> tuple[Failure, ...]:
        """The innermost failing exchanges."""
        return tuple(failing_exchanges(self.tree))

    @cached_property
    def failure_of(self) -> dict[str, Failure]:
        """The innermost failures by the exchange that failed."""
        return {failure.where: failure for failure in self.exchange_failures}

    @cached_property
    def told_failures(self) -> tuple[Failure, ...]:
        """What sidecar rows and logs tell; a try that the log tells of has recovered where the recorded ones have."""
        told = (*failing_results(self.material), *failing_log_blocks(self.material.log))
        return tuple(replace(failure, recovered=True) if self._mended(failure) else failure for failure in told)

    def _mended(self, failure: Failure) -> bool:
        address = failure.url.partition("://")[2]
        tries = [e for e in self.material.exchanges if address and f"{e.server}{e.target}" == address]
        return bool(tries) and not any(e.is_open or (e.failed and not self._recovered(e)) for e in tries)

    def _recovered(self, exchange: Seen) -> bool:
        failure = self.failure_of.get(exchange.id)
        return failure is not None and failure.recovered

    @cached_property
    def run_failed(self) -> bool:
        """Whether the row's outermost exchange failed; without exchanges, whether anything says that a row did."""
        roots = [e for e in self.material.exchanges if e.call is Call.RUN]
        if roots:
            return any(e.failed and not self.tree.tried_again(e) for e in roots)
        return any(f.source in {"result", "row"} and not f.recovered for f in self.told_failures)


def left_nothing(view: View, failure: Failure) -> bool:
    """Whether a swallowed failure made its caller's answer empty: what fails at that answer fails because of it."""
    parent = view.tree.parents.get(failure.where)
    answer = read_answer(parent.response_json) if parent is not None and failure.swallowed else None
    return answer is not None and not answer.text.strip() and not answer.calls and not answer.reasoning.strip()


def scored_unjudged(view: View, failure: Failure) -> bool:
    """Whether a judge's failure stands under a verify that answered well, so that the row got a reward all the same."""
    above = view.tree.chain(failure.exchange)[:-1] if failure.judge and failure.exchange is not None else []
    return not failure.recovered and any(hop.call is Call.VERIFY and not hop.failed for hop in above)


type Sees = Callable[[View], Iterable[Sight]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One piece of knowledge.

    `needs` says in words what it needs to see; `cause` and `next_action` are whole sentences, `{what}` is filled from
    the sight. `source` says where the knowledge comes from. `runner_up` is the layer that is honestly right as well.
    `failure_kind` is Gym's word (`nemo_gym.failure_kinds`, 0.7) where one fits.
    """

    id: str
    layer: Layer
    needs: str
    sees: Sees
    cause: str
    next_action: str
    source: str
    strength: Strength = Strength.NAMED
    severity: Severity = Severity.ERROR
    runner_up: Layer | None = None
    failure_kind: str | None = None


ALLOTMENT = (
    r"(?:disk|cpu|memory|storage|sandbox(?:es)?|container|concurren\w+|instance|session)s?[^\n]{0,30}(?:limit|quota)"
    r"[^\n]{0,20}(?:exceed|reach|hit)|(?:exceed\w*|reach\w*|hit)[^\n]{0,40}(?:limit|quota)[^\n]{0,40}(?:sandbox|disk|cpu|"
    r"concurren|session|instance)|exceeded quota: "
)
"""Words that a share of an environment's resources is used up, which two layers' rules must tell from a failure."""

NO_SESSION = (
    r"session(?:_id)?[^\n]{0,40}(?:not (?:found|initiali[sz]ed|started|seeded|exist)|expired|unknown|missing|"
    r"terminated|"
    r"invalid|does not exist)|(?:no|unknown|invalid|missing)(?: active| such| current)? (?:mcp[- ])?session\b|"
    r"call (?:seed_session|reset)\b|(?:environment|episode|game|env)[^\n]{0,20}not (?:been )?(?:reset|"
    r"initiali[sz]ed|started)|"
    r"KeyError\('[0-9a-f-]{32,36}'\)"
)
"""Words that a session is not known to the server that holds it."""

MCP_SESSION = r"\bsession terminated\b|\bmcp\w*[^\n]{0,80}\bsession\b[^\n]{0,20}(?:terminated|expired|closed|not found)"
"""Words that an MCP server ended its own session, which is none of Gym's: it restarted, or let it expire."""

NOT_SERVED = (
    r"the model `?(?P<what>[^`\n]{1,120}?)`? does not exist|model_not_(?:found|available|supported)|"
    r"model[ _]not[ _]found|unknown model|unsupported model: |"
    r"invalid model(?: name)?\b|deploymentnotfound|(?:api )?deployment for this resource does not exist|no such model|"
    r"model with (?:the )?(?:name|id) [^\n]{1,80} (?:does not exist|not found)|"
    r"model ['\"`]?[\w./:-]+['\"`]? (?:is )?not (?:found|available|supported|served|loaded)|not a valid model|"
    r"operationnotsupported|does not work with the specified model|no endpoints found for|"
    r"no healthy deployments? for|there are no healthy deployments for this model|"
    r"function ['\"`]?[\w-]+['\"`]?: not found for account|"
    r"on-demand throughput isn.t supported|inference profile that contains this model|llm provider not provided"
)
"""A provider's words that it does not serve the model asked for."""

CONTENT_POLICY = (
    r"content[_ ](?:filter|policy)|content management policy|safety system|"
    r"inappropriate content|data_?inspection|requires moderation|"
    r"(?:input|prompt|content) was flagged|responsibleaipolicyviolation"
)
"""Words that a content filter refused a prompt."""

OVERFLOW = (
    r"context[ _-]?(?:length|size|window|limit)|token context\b|maximum (?:prompt|input) length|\bn_ctx\b|"
    r"(?:prompt|inputs?|messages|sequence|request)\b[^\n]{0,60}\b(?:tokens?|length)\b[^\n]{0,80}(?:exceed|longer|"
    r"greater|larger|less than|at most|too (?:long|large|many)|should be|<= ?\d|> ?\d)|"
    r"\b(?:prompt|inputs?|messages) (?:is |are )?too (?:long|large)|"
    r"\b(?:prompt|inputs?)\b[^\n]{0,20}must have (?:less|fewer) than \d+ tokens|"
    r"exceed\w*[^\n]{0,60}(?:max_(?:model|seq|input|num|total)_(?:len\w*|tokens)|tokens? (?:limit|allowed))|"
    r"(?:token limit|input tokens?)[^\n]{0,20}exceed|exceed\w*[^\n]{0,20}token limit|"
    r"(?:longer|larger|greater) than the maximum (?:model )?len|max_model_len|max_new_tokens|"
    r"too many (?:input |prompt )?tokens|reduce the length of|current length is \d+ while limit|"
    r"string_above_max_length|max_(?:completion_|output_)?tokens[^\n]{0,60}(?:negative|at least 1\b)"
)
"""Words that a prompt does not fit: what is measured (context, prompt, input, tokens) and that it is over a limit.

From the error texts of vLLM, SGLang, TensorRT-LLM, TGI, llama.cpp, Ollama and some twenty hosted providers.
"""

NOT_OVERFLOW = r"user-specified max_model_len|throttl|rate.?limit|per (?:min|day|second)|wait before"
"""Words that turn such a sentence into one about a rate, or about the engine's start."""

PROVIDER = frozenset({Call.PROVIDER})
GENERATION = frozenset({Call.PROVIDER, Call.MODEL, Call.JUDGE, Call.RESPONSES})
RESOURCES = frozenset({Call.VERIFY, Call.SEED_SESSION, Call.TOOL, Call.CLOSE_SESSION})
GYM = frozenset({Call.RUN, Call.VERIFY, Call.SEED_SESSION, Call.RESPONSES, Call.MODEL, Call.AGENT_SESSION})


def said(
    pattern: str | None = None,
    *,
    unless: str | None = None,
    calls: frozenset[Call] | None = None,
    statuses: Iterable[int] | None = None,
    errors: Iterable[TransportErrorKind] | None = None,
    judge: bool | None = None,
    sources: Iterable[str] | None = None,
    timeout: bool | None = None,
    soft: bool | None = None,
) -> Sees:
    """Sees failures whose words match `pattern` (any case), narrowed by the rest; None leaves a condition open.

    A failure whose call or status is not known passes `calls` and `statuses` if it has words to match. `sources` may
    hold `told`: exchanges that only tell what another hop was answered.
    """
    words = re.compile(pattern, re.IGNORECASE) if pattern else None
    not_words = re.compile(unless, re.IGNORECASE) if unless else None
    wanted = frozenset(statuses) if statuses is not None else None
    kinds = frozenset(errors) if errors is not None else None
    origins = frozenset(sources) if sources is not None else None

    def fits(failure: Failure) -> bool:
        return (
            (origins is None or failure.source in origins or (failure.told and "told" in origins))
            and _open(failure.call, calls, words)
            and _open(failure.status, wanted, words)
            and (kinds is None or failure.error in kinds)
            and (judge is None or failure.judge is judge)
            and (timeout is None or failure.timeout is timeout)
            and (failure.soft is soft if soft is not None else not failure.soft or words is not None)
        )

    def sees(view: View) -> Iterator[Sight]:
        for failure in view.failures:
            if not fits(failure) or (not_words and not_words.search(failure.said)):
                continue
            match = words.search(failure.said) if words else None
            if words is None or match is not None:
                yield sight_of(failure, _matched(match, failure))

    return sees


def _open[T](found: T | None, wanted: frozenset[T] | None, words: re.Pattern[str] | None) -> bool:
    return wanted is None or found in wanted or (found is None and words is not None)


_ERROR_CHARS = 320
"""How much of an error's words is told: a client names the host first, and OpenSSL's reason last."""


def _matched(match: re.Match[str] | None, failure: Failure) -> str:
    if match is None and failure.exchange is not None and failure.error is not None and failure.exchange.error_text:
        return failure.exchange.error_text[:_ERROR_CHARS]
    if match is None and not failure.said.strip() and failure.status is not None:
        return f"{failure.status} with an empty body"
    if match is None and failure.said.partition("\n")[0].strip() == str(failure.status):
        return f"{failure.status} with an empty message"
    if match is None:
        return failure.said.partition("\n")[0][:200]
    named = match.groupdict().get("what")
    words = (named or _sentence(match)).strip() + _fields(match)
    if failure.source == "exchange" and not named and " " not in words:
        words = failure.said.partition("\n")[0]  # a bare code; the message before it says more
    return words[:_ERROR_CHARS]


_LISTED = re.compile(r"validation errors? for \w+\W*$")
_FIELD = re.compile(r"^(?P<place>[\w.\-\[\]]+)\n[ \t]+(?P<told>[^\n]+?)(?: \[type=[^\n]*)?$", re.MULTILINE)
_FIELDS_TOLD = 4


def _fields(match: re.Match[str]) -> str:
    """` (judge_model_server: Field required; …)`, of the lines that follow pydantic's head line; empty for others."""
    if not _LISTED.search(_line_around(match)):
        return ""
    found = [f"{field['place']}: {field['told']}" for field in _FIELD.finditer(match.string, match.end())]
    told = "; ".join(found[:_FIELDS_TOLD]) + ("; …" if len(found) > _FIELDS_TOLD else "")
    return f" ({told})" if found else ""


def _sentence(match: re.Match[str]) -> str:
    """The line around a match; with the two lines after it where it ends in a colon."""
    line = _line_around(match)
    if not line.rstrip().endswith(":"):
        return line
    after = match.string[match.end() :].partition("\n")[2].splitlines()
    return " ".join([line.strip(), *(more.strip() for more in after[:2])])


def _line_around(match: re.Match[str]) -> str:
    text = match.string
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[start : end if end >= 0 else len(text)]


def sight_of(failure: Failure, what: str = "") -> Sight:
    """A failure as a sight."""
    return Sight(
        source=failure.source,
        where=failure.where,
        text=(what if "validation error" in what else _words(failure))[:500],
        order=failure.order,
        what=what,
        exchange=failure.exchange,
        failure=failure,
    )


def _words(failure: Failure) -> str:
    """One line of what it says; a traceback's is its exception."""
    if failure.source == "log" and failure.innermost is not None and failure.innermost.leaf.message:
        return failure.innermost.leaf.message
    return failure.said.partition("\n")[0]


def exchange_sight(view: View, exchange: Seen, text: str, what: str = "", pointer: str | None = None) -> Sight:
    """An exchange as a sight; with its failure where it failed, so that what was swallowed or mended counts so."""
    order = exchange.started_ms if exchange.started_ms is not None else view.tree.order(exchange)
    return Sight(
        "exchange", exchange.id, text[:500], order, what, pointer, exchange, failure=view.failure_of.get(exchange.id)
    )


_FOR_PEOPLE = re.compile(
    r"sign[- ]?in|log[- ]?in|\bsso\b|single sign|oauth|password|web ?ui|dashboard|console|portal|playground|<form\b|"
    r"<div id=\"(?:app|root)\"",
    re.IGNORECASE,
)


def web_pages(*, of_people: bool) -> Sees:
    """Sees providers' 200 whose body is a web page: a login or an application for people, or any other page."""

    def sees(view: View) -> Iterator[Sight]:
        for exchange in view.material.exchanges:
            leaf = exchange.unwrapped.leaf if exchange.call in PROVIDER and (exchange.status or 500) < 300 else None
            if leaf is not None and leaf.kind is LeafKind.HTML and bool(_FOR_PEOPLE.search(leaf.text)) is of_people:
                yield exchange_sight(view, exchange, f"200 {(exchange.response or '')[:200]}", leaf.message[:120])

    return sees


def advised(seen: Sees, by_words: Mapping[str, str]) -> Sees:
    """Sees the same, with the next step of the first pattern (any case) that what failed matches."""
    patterns = [(re.compile(pattern, re.IGNORECASE), then) for pattern, then in by_words.items()]

    def sees(view: View) -> Iterator[Sight]:
        for sight in seen(view):
            words = sight.failure.said if sight.failure else sight.what
            then = next((then for pattern, then in patterns if pattern.search(words)), sight.advice)
            yield replace(sight, advice=then)

    return sees


def both(*several: Sees) -> Sees:
    """Sees what any of them sees."""

    def sees(view: View) -> Iterator[Sight]:
        for each in several:
            yield from each(view)

    return sees
