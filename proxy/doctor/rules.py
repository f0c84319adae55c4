"""The doctor's own rules, beside those of a diagnosis, and which of the eight steps each rule belongs to.

What the doctor sees (counts of whole files, live answers, configurations) becomes sights of rules that there are
already where one fits, so that one ranking decides between everything that was seen.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from gymtap.proxy.diagnose import all_rules
from gymtap.proxy.diagnose.rule import Rule, Sight, Strength, View, said
from gymtap.schemas import Call, Layer, Severity


def _nothing(_: View) -> Iterable[Sight]:
    return ()


OWN: tuple[Rule, ...] = (
    Rule(
        id="doctor.server_down",
        layer=Layer.INFRA,
        needs="A server of the head's configuration that does not answer",
        sees=_nothing,
        cause="A Gym server does not answer: {what}.",
        next_action="Read that server's own log from its start; its first error is the cause.",
        source="Gym 0.5 to 0.7: a server is ready when GET / answers at all",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="doctor.provider_down",
        layer=Layer.MODEL_SERVING,
        needs="A model provider that does not answer, or answers 5xx, at /models",
        sees=_nothing,
        cause="The model provider is not ready: {what}.",
        next_action="Wait until GET /models answers 200, or read the serving engine's log; then run again.",
        source="OpenAI-compatible servers, vLLM among them, list their models at /models",
        strength=Strength.PROVEN,
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="doctor.strangers",
        layer=Layer.CACHE_RESUME,
        needs="Results of rows that are not among the materialized inputs",
        sees=_nothing,
        cause="The output holds results of other inputs than those beside it: {what}.",
        next_action="Run into a fresh output path; results of two runs were mixed.",
        source="Gym identifies a row by _ng_task_index and _ng_rollout_index",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="doctor.repeats",
        layer=Layer.CACHE_RESUME,
        needs="Materialized inputs whose tasks have different numbers of rollouts, or not the number the log says",
        sees=_nothing,
        cause="The materialized inputs do not have the rollouts that were asked for: {what}.",
        next_action="Materialize again into a fresh output path, with the number of repeats that is wanted.",
        source="Gym repeats every row num_repeats times",
        strength=Strength.STATUS,
        severity=Severity.WARNING,
    ),
    Rule(
        id="doctor.no_result",
        layer=Layer.UNKNOWN,
        needs="Materialized inputs, no result and no failure, and nothing that says why",
        sees=_nothing,
        cause="Rows were dispatched and none has ended, and nothing that was given says why: {what}.",
        next_action="If it still runs it may hang on endless retries, which Gym's log does not show before the "
        "hundredth: run it behind `gymtap run`, and `gymtap inflight` names what is open.",
        source="Gym 0.7.0 retries a refused or reset connection for ever, every 0.5 s",
        strength=Strength.FALLBACK,
        severity=Severity.WARNING,
    ),
    Rule(
        id="doctor.verdict_rejected",
        layer=Layer.VERIFIER_RUNTIME,
        needs="The agent's validation error about what verify answered, in a sidecar or a log",
        sees=said(r"validation errors? for \w*Verify\w*Response\b", sources=("result", "log")),
        cause="The agent rejects what the verifier answered, so the verifier is at fault: {what}.",
        next_action="Compare what verify returns with BaseVerifyResponse: an object with a number as its reward.",
        source="Gym 0.7.0: the agent reads verify's answer with its own model",
        failure_kind="verifier_error",
    ),
    Rule(
        id="doctor.verify_refused",
        layer=Layer.VERIFIER_RUNTIME,
        needs="A log's line that verify or seed_session answered 4xx or 5xx, with its body",
        sees=said(
            calls=frozenset({Call.VERIFY, Call.SEED_SESSION, Call.CLOSE_SESSION}),
            statuses=range(400, 600),
            sources=("log",),
        ),
        cause="The resources server refused the call: {what}.",
        next_action="Read why in its body and its code; a dependency's status is passed on here, most often.",
        source="Gym 0.7.0 prints each hop's failed answer ([upstream_request_failed])",
        strength=Strength.FALLBACK,
        failure_kind="verifier_error",
    ),
    Rule(
        id="doctor.versions",
        layer=Layer.CONFIG,
        needs="Several releases of nemo_gym installed for the processes of one run",
        sees=_nothing,
        cause="The processes of the run do not have the same nemo_gym: {what}.",
        next_action="Install one release for all servers and the collector; `uv pip list` in each folder tells.",
        source="the folders that tracebacks name, and the package's metadata in them",
        strength=Strength.FALLBACK,
        severity=Severity.WARNING,
    ),
    Rule(
        id="doctor.under_way",
        layer=Layer.NONE,
        needs="Rows without a result, and files that were written within the last two minutes",
        sees=_nothing,
        cause="The run is under way: {what}.",
        next_action="Look again when it has ended; `gymtap inflight` shows what is open in one that is captured.",
        source="the files' times",
        severity=Severity.NOTE,
    ),
    Rule(
        id="doctor.unresolved",
        layer=Layer.CONFIG,
        needs="A key or value of a configuration that no given file defines",
        sees=_nothing,
        cause="A key may be missing, unless the command line gives it: {what}.",
        next_action="Give it in env.yaml, in a configuration, or on the command line (++key=value).",
        source="OmegaConf interpolation",
        severity=Severity.NOTE,
    ),
    Rule(
        id="doctor.contract",
        layer=Layer.DATA_SCHEMA,
        needs="A row that the resources server's request model refuses",
        sees=_nothing,
        cause="The row does not fit the resources server's request model: {what}.",
        next_action="Mend the row or the model; `gymtap check rows DATA.jsonl --server URL` checks all of them first.",
        source="the server's OpenAPI document",
        strength=Strength.NAMED,
    ),
)

_STEP_OF_RULE = {
    **dict.fromkeys(
        (
            *("infra.ray", "infra.ray_actor", "infra.slurm", "infra.gpu", "infra.disk", "infra.killed"),
            *("throughput.memory", "throughput.descriptors", "told.kill_shaped", "told.shutdown"),
        ),
        1,
    ),
    **dict.fromkeys(
        (
            *("config.api_key", "config.permission", "config.quota", "config.model_name", "config.base_url"),
            *("config.tool_parser_flags", "config.parameter", "config.parameter_added", "config.provider_404"),
            *("infra.gateway", "infra.gateway_told", "told.provider_unavailable", "told.provider_quota_exhausted"),
        ),
        2,
    ),
    **dict.fromkeys(
        (
            *("model.unknown_tool", "config.unserved_tool", "infra.lone_404", "infra.tool_backend"),
            *("verifier.tool_raised", "verifier.cookie_lost", "verifier.session_shared", "verifier.session_unknown"),
            *("data.tool_arguments", "data.duplicate_tools", "model.malformed_arguments", "infra.session_pool"),
            *("told.session_lost", "told.session_expired"),
        ),
        4,
    ),
    **dict.fromkeys(
        (
            *("cache.stale_inputs", "cache.told", "data.line", "data.not_finite", "data.surrogate", "data.row"),
            *("data.license", "data.told", "doctor.repeats"),
        ),
        5,
    ),
    **dict.fromkeys(
        (
            *("data.no_generation", "data.no_usage", "throughput.cut_result", "model.said_nothing", "model.recovered"),
            *("doctor.no_result", "doctor.strangers", "doctor.under_way"),
        ),
        6,
    ),
    **dict.fromkeys(("infra.judge_down", "throughput.judge_timeout"), 7),
}
_STEP_OF_FAMILY = {
    "told": 7,
    "verifier": 7,
    "cache": 6,
    "model": 2,
    "throughput": 2,
    "data": 8,
    "config": 3,
    "infra": 3,
}
_STEP_OF_OWN = {
    "doctor.provider_down": 2,
    "doctor.server_down": 3,
    "doctor.versions": 3,
    "doctor.unresolved": 3,
    "doctor.contract": 8,
}
_OF_THE_ENGINE = re.compile(r"cuda|gpu|hip out|vram|kv cache", re.IGNORECASE)


def step_of(rule: str, text: str = "", boundary: str = "") -> int:
    """The number of the step that a rule's sight belongs to.

    `text` tells a GPU's memory from a host's, `boundary` (`model->provider`) a lost provider from a lost Gym server.
    """
    if boundary.endswith("->provider") and rule.startswith("infra."):
        return 2
    if rule == "throughput.memory" and _OF_THE_ENGINE.search(text):
        return 2
    known = _STEP_OF_RULE.get(rule) or _STEP_OF_OWN.get(rule)
    return known or _STEP_OF_FAMILY.get(rule.partition(".")[0], 7)


type Seen = dict[str, list[Sight]]
"""Sights by the id of their rule."""


def rules_with(own: Mapping[str, Iterable[Sight]], seen: Seen) -> list[Rule]:
    """All rules, the doctor's sights among theirs; whatever any of them sees is also put into `seen`."""
    return [replace(rule, sees=_also(rule, tuple(own.get(rule.id, ())), seen)) for rule in (*all_rules(), *OWN)]


def _also(rule: Rule, more: tuple[Sight, ...], seen: Seen) -> Callable[[View], Iterable[Sight]]:
    def sees(view: View) -> Iterator[Sight]:
        for sight in (*more, *rule.sees(view)):
            seen.setdefault(rule.id, []).append(sight)
            yield sight

    return sees
