"""Decides: every rule looks, and the best sight becomes the diagnosis.

A failure that ended the row beats one that its caller swallowed, a surer rule beats a vaguer one, a recorded exchange
beats text, and the first in time beats what it caused. Where nothing failed and nothing silent was seen, the layer is
`none`; where something failed that no rule knows, it is `unknown`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gymtap.proxy.core.unwrap import unwrap
from gymtap.proxy.diagnose.evidence import Material, Seen
from gymtap.proxy.diagnose.failures import said
from gymtap.proxy.diagnose.fingerprint import fingerprint
from gymtap.proxy.diagnose.rule import Rule, Sight, Strength, View, left_nothing
from gymtap.proxy.diagnose.rules import all_rules
from gymtap.proxy.diagnose.wording import advice, facts, filled, told_where
from gymtap.schemas import (
    Call,
    Diagnosis,
    Evidence,
    Finding,
    Hop,
    Layer,
    Severity,
    TransportErrorKind,
    Unwrapped,
)

_SOURCES = {"exchange": 0, "file": 1, "result": 2, "row": 3, "log": 4}
_MOST_EVIDENCE = 8


@dataclass(frozen=True)
class _Hit:
    rule: Rule
    sight: Sight
    place: int  # the rule's, for equals

    @property
    def severity(self) -> Severity:
        return Severity.NOTE if self.sight.recovered else self.rule.severity


def findings(material: Material, rules: Sequence[Rule] | None = None) -> list[Finding]:
    """What every rule says about `material`, the likeliest cause first; one finding a rule and exchange."""
    view = View(material)
    unique: dict[tuple[str, str], Finding] = {}
    for hit in _ranked(view, rules):
        unique.setdefault((hit.rule.id, hit.sight.where), _finding(hit))
    return list(unique.values())


def diagnose(material: Material, rules: Sequence[Rule] | None = None) -> Diagnosis:
    """The diagnosis of one row, or of what logs and files show. Never raises on what it is given to look at."""
    view = View(material)
    hits = _ranked(view, rules)
    best = next((hit for hit in hits if hit.severity is Severity.ERROR), None)
    if best is None and (view.run_failed or not view.material.exchanges):
        best = next((hit for hit in hits if hit.severity is Severity.WARNING), None)
    found = tuple({(hit.rule.id, hit.sight.where): _finding(hit) for hit in reversed(hits)}.values())[::-1]
    if best is None:
        return _without_cause(view, found)
    return _with_cause(view, hits, best, found)


def _ranked(view: View, rules: Sequence[Rule] | None) -> list[_Hit]:
    hits = [
        _Hit(rule, sight, place)
        for place, rule in enumerate(all_rules() if rules is None else rules)
        for sight in rule.sees(view)
    ]
    known = any(hit.rule.strength > Strength.NOISE and hit.severity is Severity.ERROR for hit in hits)
    speaking = (hit for hit in hits if hit.rule.strength > Strength.NOISE or not known)
    return sorted(speaking, key=lambda hit: _rank(hit, view))


def _rank(hit: _Hit, view: View) -> tuple[int, int, int, float, int]:
    severity = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}[hit.severity]
    failure = hit.sight.failure
    harmless = failure is not None and failure.swallowed and view.run_failed and not left_nothing(view, failure)
    beside = severity * 2 + harmless
    strength = hit.rule.strength
    if hit.sight.source == "log" and strength in {Strength.FALLBACK, Strength.STATUS}:
        strength = Strength.FALLBACK  # in a log the first of the vague ones is the cause, what follows is its noise
    return beside, -strength, _SOURCES.get(hit.sight.source, 5), hit.sight.order, hit.place


def _finding(hit: _Hit) -> Finding:
    return Finding(
        rule=hit.rule.id,
        severity=hit.severity,
        message=filled(hit.rule.cause, hit.sight),
        pointer=hit.sight.pointer,
        found=hit.sight.text[:300] or None,
        fix=advice(hit.rule, hit.sight),
        exchange=hit.sight.exchange.id if hit.sight.exchange else None,
    )


# --- the report ---------------------------------------------------------------------------------------------


def _with_cause(view: View, hits: list[_Hit], best: _Hit, found: tuple[Finding, ...]) -> Diagnosis:
    exchange = _at_fault(view, best)
    innermost = _innermost(best, _innermost_exchange(view, best, exchange))
    return Diagnosis(
        symptom=_symptom(view, best),
        layer=best.rule.layer,
        cause=filled(best.rule.cause, best.sight) + told_where(best.sight) + facts(view.tree, exchange, innermost),
        next_action=advice(best.rule, best.sight),
        evidence=tuple(_evidence(view, hits, best)),
        runner_up=_runner_up(hits, best),
        rule=best.rule.id,
        failure_kind=best.rule.failure_kind or _failure_kind(view),
        fingerprint=_fingerprint(best, exchange, innermost),
        row=exchange.row if exchange else None,
        exchange=exchange.id if exchange else None,
        chain=tuple(_hop(hop) for hop in view.tree.chain(exchange)) if exchange else (),
        innermost=innermost,
        findings=found,
    )


_RAISED = re.compile(
    r"^(?:[\w.-]+: )?(?:[Ee]rror|ERROR|fatal): +\S|^Traceback|^(?:\w+\.)*[A-Z]\w*(?:Error|Exception): |"
    r"\b(?:FATAL|CRITICAL)\b|🚨",
    re.MULTILINE,
)
"""What in a log says that something failed, whatever it was."""

_VERDICTS = {
    (True, False): (
        "Something failed that no rule knows.",
        "Read the innermost body, and send that request again by itself.",
    ),
    (False, True): (
        "The row has no answer, and nothing has failed in it so far.",
        "See which call is open and for how long (`gymtap tree`); look again when it has ended.",
    ),
    (False, False): ("Nothing failed and nothing was silently lost.", "Nothing."),
}


def _without_cause(view: View, found: tuple[Finding, ...]) -> Diagnosis:
    failed = view.run_failed or any(not f.recovered and not f.swallowed for f in view.exchange_failures)
    failed = failed or any(f.source == "log" and not f.recovered and _RAISED.search(f.said) for f in view.told_failures)
    failure = next(iter(view.exchange_failures), None)
    exchange = failure.exchange if failure and failed else None
    waiting = not failed and any(e.is_open and e.call is Call.RUN for e in view.material.exchanges)
    cause, next_action = _VERDICTS[(failed, waiting)]
    return Diagnosis(
        symptom=_symptom(view),
        layer=Layer.UNKNOWN if failed or waiting else Layer.NONE,
        cause=cause,
        next_action=next_action,
        evidence=_unexplained(view) if failed else (),
        exchange=exchange.id if exchange else None,
        chain=tuple(_hop(hop) for hop in view.tree.chain(exchange)) if exchange else (),
        innermost=exchange.unwrapped if exchange else None,
        findings=found,
    )


def _unexplained(view: View) -> tuple[Evidence, ...]:
    """The first failures that no rule knows."""
    failures = [f for f in view.failures if f.said.strip() and (f.source != "log" or _RAISED.search(f.said))]
    return tuple(Evidence(source=f.source, where=f.where, text=f.said.strip()[-300:]) for f in failures[:3])


def _symptom(view: View, best: _Hit | None = None) -> str:
    """What a person sees first: how /run ended, else the first failing exchange, else what a row or a log tells."""
    runs = [e for e in view.material.of(Call.RUN) if view.tree.parents.get(e.id) is None]
    failed = [run for run in runs if run.failed]
    if failed and any(not view.tree.tried_again(run) for run in failed):
        return f"/run {_ended(failed[0])}" + (f" ({len(failed)} of {len(runs)} rows)" if len(runs) > 1 else "")
    if any(run.is_open for run in runs):
        return "/run has no answer yet"
    if runs:
        return f"/run 200, reward {_reward(runs[0])}"
    first = next((e for e in view.tree.exchanges if e.failed), None)
    if first is not None:
        return f"{first.boundary} {first.path} {_ended(first)}"
    messages = (row["_ng_failure_message"] for row in view.material.results if row.get("_ng_failure_message"))
    told = best.sight.text if best else next((item.text.splitlines()[-1] for item in _unexplained(view)), None)
    return str(next(messages, None) or told or "no failure was seen")[:200]


def _ended(exchange: Seen) -> str:
    if exchange.status is not None:
        return str(exchange.status)
    return f"ended without an answer ({'time limit' if exchange.timeout else exchange.error or 'open'})"


def _reward(run: Seen) -> str:
    body = run.response_json
    return str(body.get("reward", "missing")) if isinstance(body, dict) else "missing"


def _fatal(view: View) -> Seen | None:
    """The first innermost exchange that failed for good."""
    failures = (f for f in view.exchange_failures if f.exchange and not f.recovered and not f.swallowed)
    return next((failure.exchange for failure in failures), None)


def _at_fault(view: View, best: _Hit) -> Seen | None:
    """The hop at fault: the exchange that the sight is on, or the failing one at the end of its branch."""
    exchange = best.sight.exchange
    if exchange is None:
        return None if best.sight.source == "file" else _fatal(view)
    while below := [child for child in view.tree.children[exchange.id] if child.failed]:
        exchange = below[0]
    return exchange


def _innermost_exchange(view: View, best: _Hit, at_fault: Seen | None) -> Seen | None:
    """Whose body is shown: the hop's at fault where that tells a failure, else of the failure that ended the row."""
    if at_fault is None or best.sight.exchange is None:
        return at_fault
    tells = at_fault.failed or any(f.exchange is at_fault for f in view.soft_failures)
    fatal = _fatal(view)
    return at_fault if tells or fatal is None or not view.run_failed else fatal


def _innermost(best: _Hit, exchange: Seen | None) -> Unwrapped | None:
    """What the innermost said: an echo that the sight shows, the exchange's body, or what a row or log tells."""
    failure = best.sight.failure
    if best.sight.shown is not None:
        return unwrap(best.sight.shown)
    if exchange is not None and (exchange.response is not None or exchange.error_text):
        return exchange.unwrapped
    if failure is not None and failure.innermost is not None:
        return failure.innermost
    return unwrap(best.sight.text) if best.sight.text else None


def _fingerprint(best: _Hit, exchange: Seen | None, innermost: Unwrapped | None) -> str:
    boundary = exchange.boundary if exchange else best.sight.source
    message = innermost.leaf.message or innermost.leaf.text if innermost else best.sight.text
    status = str(exchange.status or exchange.error) if exchange else None
    return fingerprint(best.rule.id, boundary, f"status {status}" if status else None, message)


def _runner_up(hits: list[_Hit], best: _Hit) -> Layer | None:
    """What the rule itself names, else the next surest rule of another layer that is nearly as sure."""
    if best.rule.runner_up is not None:
        return best.rule.runner_up
    for hit in hits:
        near = hit.rule.strength >= max(best.rule.strength - 1, Strength.STATUS)
        if hit.rule.layer is not best.rule.layer and hit.severity is Severity.ERROR and near:
            return hit.rule.layer
    return None


def _failure_kind(view: View) -> str | None:
    """Gym's collector knows two: the agent answered with an error, or something in front of it did."""
    runs = [e for e in view.tree.exchanges if e.call is Call.RUN and e.failed]
    if not runs:
        return None
    unanswered = runs[0].status in {429, 502, 503, 504} or runs[0].status is None
    return "agent_request_failed" if unanswered else "agent_run_error"


def _evidence(view: View, hits: list[_Hit], best: _Hit) -> Iterator[Evidence]:
    text = best.sight.text or best.sight.what
    yield Evidence(source=best.sight.source, where=best.sight.where, text=text)
    seen, told = {best.sight.where}, {text}
    same = (hit for hit in hits if hit.rule.layer is best.rule.layer and hit.severity is Severity.ERROR)
    for hit in same:
        again = hit.sight.where in seen or hit.sight.text in told  # tries alike are counted in the cause
        if not again and hit.sight.text and len(seen) < _MOST_EVIDENCE:
            seen.add(hit.sight.where)
            told.add(hit.sight.text)
            yield Evidence(source=hit.sight.source, where=hit.sight.where, text=hit.sight.text)
    refused = _at_fault(view, best)
    if refused is not None and refused.failed and refused.id not in seen:  # a row's flaw, and who refused it
        words = said(refused.unwrapped, refused.error_text).partition("\n")[0][:300]
        if words and words not in told:
            seen.add(refused.id)
            told.add(words)
            yield Evidence(source="exchange", where=refused.id, text=f"{_ended(refused)}: {words}")
    for hit in hits:  # what a rule of another layer says of the same exchange (a poisoned client, a lost body)
        beside = hit.sight.where == best.sight.where and hit.rule.layer is not best.rule.layer
        if beside and hit.rule.strength >= Strength.STATUS and hit.rule.id not in seen:
            seen.add(hit.rule.id)
            yield Evidence(source=hit.sight.source, where=hit.sight.where, text=filled(hit.rule.cause, hit.sight))
    for exchange in view.exchange_failures:
        if exchange.swallowed and exchange.where not in seen and len(seen) < _MOST_EVIDENCE:
            seen.add(exchange.where)
            yield Evidence(source="exchange", where=exchange.where, text=f"swallowed: {exchange.said[:200]}")


def _hop(exchange: Seen) -> Hop:
    return Hop(
        exchange=exchange.id,
        boundary=exchange.boundary,
        call=exchange.call,
        status=exchange.status,
        error=_hop_error(exchange.error, exchange.timeout, exchange.is_open),
        duration_ms=exchange.duration_ms,
        request_bytes=len((exchange.request or "").encode("utf-8", "replace")),
        response_bytes=len((exchange.response or "").encode("utf-8", "replace")),
    )


def _hop_error(error: TransportErrorKind | None, timeout: bool, is_open: bool) -> str | None:
    if timeout:
        return "time limit"
    return "open" if is_open else error
