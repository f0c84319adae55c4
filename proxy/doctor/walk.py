"""Walks the debug order: what is known about each of its eight steps, and the one diagnosis of it all.

A step has a problem when a rule that belongs to it says so and knows what it says; what is more likely a consequence
(a bare traceback, an outer 500) is shown and does not count, unless nothing better is known.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gymtap.proxy.diagnose import diagnose
from gymtap.proxy.diagnose.rule import Rule, Sight, Strength
from gymtap.proxy.diagnose.wording import filled
from gymtap.proxy.doctor.config_files import unresolved
from gymtap.proxy.doctor.logs import LogKind
from gymtap.proxy.doctor.looked import Given, Looked, gather
from gymtap.proxy.doctor.report import Note, Outcome, Report, Step
from gymtap.proxy.doctor.rules import Seen, rules_with, step_of
from gymtap.proxy.doctor.sights import contract_for, own_sights, rows_for_contracts
from gymtap.schemas import Call, Diagnosis, Evidence, Severity

_NOTES = 5
_COUNTED = 1_000
type Told = tuple[bool, str]
"""Whether a step could be looked at, and in words what was seen, or what would be needed."""


def examine(given: Given, *, now_ns: int) -> Report:
    """Walk the eight steps. Raises UsageError and CaptureError for what cannot be read."""
    looked = gather(given, now_ns=now_ns)
    seen: Seen = {}
    rules = rules_with(own_sights(looked), seen)
    found = _placed(diagnose(looked.material, rules), looked)
    noted = _notes(rules, seen, found, looked)
    steps = tuple(_step(number, name, told(looked), noted) for number, (name, told) in enumerate(_STEPS, 1))
    return Report(_given(looked), steps, found)


def _placed(found: Diagnosis, looked: Looked) -> Diagnosis:
    """The diagnosis with places that a person can open, and with its row."""
    evidence = tuple(
        Evidence(source=item.source, where=looked.place(item.where), text=item.text) for item in found.evidence
    )
    row = found.row or (looked.captured.row if looked.captured and found.exchange else None)
    return found.model_copy(update={"evidence": evidence, "row": row})


@dataclass(frozen=True)
class _Noted:
    note: Note
    step: int
    counts: bool


def _notes(rules: list[Rule], seen: Seen, found: Diagnosis, looked: Looked) -> list[_Noted]:
    by_id = {rule.id: rule for rule in rules}
    noted: list[_Noted] = []
    for rule_id, sights in seen.items():
        rule = by_id[rule_id]
        for sight in sorted(sights, key=lambda sight: (sight.recovered, sight.order))[:_NOTES]:
            severity = Severity.NOTE if sight.recovered else rule.severity
            boundary = sight.exchange.boundary if sight.exchange else ""
            counts = rule_id == found.rule or (severity is Severity.ERROR and _knows(rule, sight))
            noted.append(_Noted(_note(rule, sight, severity, looked), step_of(rule_id, sight.text, boundary), counts))
    noted += _other_causes(found, looked)
    order = list(Severity)
    return sorted(noted, key=lambda one: (one.note.rule != found.rule, order.index(Severity(one.note.severity))))


def _other_causes(found: Diagnosis, looked: Looked) -> list[_Noted]:
    """Why other rows of the capture failed; the first one's cause is the diagnosis."""
    noted = []
    for cause in looked.captured.causes if looked.captured else ():
        example = cause.example
        if example.fingerprint == found.fingerprint:
            continue
        rows = ", ".join(cause.rows[:_NOTES]) + (", …" if len(cause.rows) > _NOTES else "")
        note = Note(
            rule=example.rule or str(example.layer),
            severity=str(Severity.ERROR),
            where=f"row {rows}" if len(cause.rows) == 1 else f"{len(cause.rows)} rows ({rows})",
            text=example.symptom,
            cause=example.cause,
            next_action=example.next_action,
        )
        boundary = example.chain[-1].boundary if example.chain else ""
        noted.append(_Noted(note, step_of(note.rule, example.cause, boundary), counts=True))
    return noted


def _knows(rule: Rule, sight: Sight) -> bool:
    """Whether it is more than a consequence, most likely; a log's words must name it."""
    return rule.strength >= (Strength.NAMED if sight.source == "log" else Strength.STATUS)


def _note(rule: Rule, sight: Sight, severity: Severity, looked: Looked) -> Note:
    seen = replace(sight, what=" ".join(sight.what.split())[:300])
    return Note(
        rule=rule.id,
        severity=str(severity),
        where=looked.place(sight.where),
        text=sight.text[:300],
        cause=filled(rule.cause, seen),
        next_action=filled(rule.next_action, seen),
    )


def _step(number: int, name: str, told: Told, noted: list[_Noted]) -> Step:
    mine = [one for one in noted if one.step == number]
    notes = tuple(one.note for one in mine)
    bad = next((one.note for one in mine if one.counts), None)
    if bad is not None:
        return Step(number, name, Outcome.PROBLEM, f"{bad.where}: {bad.cause}", notes)
    looked, why = told
    return Step(number, name, Outcome.OK if looked else Outcome.NOT_CHECKED, why, notes)


def _given(looked: Looked) -> tuple[str, ...]:
    given = looked.given
    named = [f"capture {given.capture.path.name}"] if given.capture else []
    named += [f"run {looked.files.name}"] if looked.files else []
    named += [f"log {file.path.name} ({file.kind.name.lower()})" for file in looked.logs.files]
    named += ["only the first of what the logs tell: there is more than is looked into"] if looked.logs.left_out else []
    named += [f"source {given.source.name}"] if given.source else []
    named += [f"head {given.gym}"] if given.gym else []
    named += [f"provider {given.provider}"] if given.provider else []
    return (*named, *(f"configuration {path.name}" for path in given.configs))


# --- what each step looks at, when no rule has a problem with it ----------------------------------------------------


def _jobs(looked: Looked) -> Told:
    kinds = [kind.name.capitalize() for kind in (LogKind.SLURM, LogKind.RAY) if looked.logs.has(kind)]
    if kinds:
        return True, f"nothing in the logs of {' and '.join(kinds)} tells of a failure"
    if "ray_started" in looked.logs.facts:
        return True, "Gym started a Ray of its own, and nothing tells of its failure"
    return False, "no log of Slurm or Ray was given (--log); `sacct -j JOB` and `ray status` say how they are"


def _serving(looked: Looked) -> Told:
    providers = looked.live.providers if looked.live else ()
    if providers:
        names = ", ".join(f"{one.url} lists {', '.join(one.served[:3]) or 'no names'}" for one in providers)
        return True, names
    if answered := _answered(looked, Call.PROVIDER):
        return True, f"{answered} calls of a provider were answered in the capture"
    for fact, text in (("endpoints", "all model endpoints answered"), ("started", "a server's start-up was complete")):
        if fact in looked.logs.facts:
            return True, f"{text}, says the log"
    rollouts = looked.rollouts
    if rollouts is not None and rollouts.responses > rollouts.usage_missing:
        return True, f"{rollouts.responses - rollouts.usage_missing} rows of the output have a model's usage"
    return False, "nothing tells whether the model server was ready (--gym, --provider, or its log)"


def _answered(looked: Looked, call: Call) -> str:
    """How many such calls of the capture went well, counted no further than is telling; "" for none."""
    capture = looked.given.capture
    count = sum(1 for _ in capture.exchanges(call=call, failed=False, limit=_COUNTED)) if capture else 0
    return f"{count} or more" if count == _COUNTED else str(count or "")


def _servers(looked: Looked) -> Told:
    if looked.live is not None and looked.live.servers:
        return True, f"all {len(looked.live.servers)} servers of the head's configuration answer"
    ready = looked.logs.numbers("servers_ready")
    if ready is not None and ready[0] == ready[1]:
        return True, f"all {ready[1]} servers were ready, says the log{_several_versions(looked)}"
    if looked.captured is not None and looked.captured.info.rows:
        return True, f"{len(looked.captured.info.servers)} servers were listened for, and rows reached them"
    if looked.rollouts is not None and looked.rollouts.count:
        return True, f"{looked.rollouts.count} rows have a result, so the servers that they need were up"
    if looked.configs:
        told = list(unresolved(looked.configs, looked.config, looked.given.environment))
        keys = f", but {len(told)} keys that the command line has to give" if told else ""
        return True, f"the configurations lack nothing{keys}; whether servers are up was not looked at (--gym)"
    if ready is not None:
        return False, f"the last that the log says is {ready[0]} of {ready[1]} servers ready"
    return False, "nothing tells whether all servers were up (--gym, or the log of `gym env start`)"


def _several_versions(looked: Looked) -> str:
    """Packages of which the logs name more than one release, in words."""
    several = [f"{name} {' and '.join(found)}" for name, found in looked.logs.versions.items() if len(found) > 1]
    return f"; the logs name {', '.join(several)}" if several else ""


def _tools(looked: Looked) -> Told:
    if answered := _answered(looked, Call.TOOL):
        return True, f"{answered} tool calls in the capture were answered"
    rollouts = looked.rollouts
    if rollouts is not None and rollouts.tools_called:
        return True, f"{rollouts.tools_called} rows called tools, and no answer that was looked into tells an error"
    if rollouts is not None and rollouts.responses:
        return True, "no row of the output called a tool" + (", though tools are offered" * rollouts.tools_offered)
    return False, "no call of a tool was seen (a capture, or --output)"


def _materialized(looked: Looked) -> Told:
    inputs, compared = looked.inputs, looked.comparison
    if inputs is None:
        return False, "no materialized inputs (--output names a run's rollouts)"
    if compared is None:
        missing = "no --source to compare them with"
        return True, f"{inputs.count} rows, {len(inputs.repeats) and _repeats(inputs.repeats)}; {missing}"
    age = "older than the source, with the same content" if compared.older else "not older than the source"
    overridden = ", parameters overridden" if compared.overridden else ""
    return True, f"{compared.compared} of {inputs.count} rows agree with the source{overridden}; {age}"


def _repeats(repeats: dict[int, int]) -> str:
    return ", ".join(f"{tasks} tasks with {count} rollouts" for count, tasks in sorted(repeats.items())[:3])


def _output(looked: Looked) -> Told:
    rollouts, inputs = looked.rollouts, looked.inputs
    if rollouts is None:
        return False, "no output (--output names a run's rollouts)"
    failed = looked.failures.count if looked.failures else 0
    of = f" of {inputs.count} dispatched" if inputs else ""
    metrics = ", ".join(path.name for path in looked.files.metrics) if looked.files else ""
    return True, f"{rollouts.count} results{of}, {failed} failures; metrics: {metrics or 'none'}"


def _verifier(looked: Looked) -> Told:
    if verified := _answered(looked, Call.VERIFY):
        return True, f"{verified} verify calls were answered in the capture"
    if looked.rollouts is not None and looked.rollouts.count:
        return True, f"{looked.rollouts.count} rows were verified; no reward that was looked into is unusable"
    if looked.logs.has(LogKind.SERVERS):
        return True, "no server's log tells of an exception in a verifier"
    return False, "no verifier's log, result or exchange was seen"


def _schema(looked: Looked) -> Told:
    rows = rows_for_contracts(looked)
    held = [row for _, row in rows if contract_for(looked, row) is not None]
    if held:
        return True, f"{len(held)} rows fit the request model of their resources server"
    if not rows:
        return False, "no row was given (a capture, or --output)"
    return False, "no request model is known (a capture made behind the tap, or --gym while the run is up)"


_STEPS: tuple[tuple[str, Callable[[Looked], Told]], ...] = (
    ("Slurm and Ray", _jobs),
    ("model serving", _serving),
    ("Gym servers", _servers),
    ("tool routing", _tools),
    ("materialized inputs", _materialized),
    ("output and metrics", _output),
    ("verifier", _verifier),
    ("row and request model", _schema),
)
