"""Gym's own words for failures (`nemo_gym.failure_kinds`, 0.7.0): what they say of the layer.

They are the collector's and the environments' own diagnosis, so anything that the exchanges show beats them.
"""

from collections.abc import Iterator

from gymtap.proxy.diagnose.rule import Rule, Sees, Sight, Strength, View, exchange_sight
from gymtap.schemas import Layer, LeafKind

_KINDS: tuple[tuple[str, Layer, str, str], ...] = (
    (
        "transport_unreachable",
        Layer.INFRA,
        "a server could not be reached",
        "See whether it runs, on the address the configuration names.",
    ),
    (
        "transport_peer_drop",
        Layer.INFRA,
        "a server dropped the connection",
        "See whether it was restarted or killed at that time.",
    ),
    (
        "transport_timeout",
        Layer.THROUGHPUT_RESOURCES,
        "a call took longer than its limit",
        "Find the hop that used the time; raise its limit or capacity.",
    ),
    (
        "transport_local_resource",
        Layer.THROUGHPUT_RESOURCES,
        "the caller ran out of descriptors or ports",
        "Raise its limits and bound the concurrency.",
    ),
    (
        "agent_timeout",
        Layer.THROUGHPUT_RESOURCES,
        "the agent took longer than its limit",
        "Find the hop that used the time; raise the limit or cut the work.",
    ),
    (
        "agent_command_not_allowed",
        Layer.CONFIG,
        "the agent wanted a command that it may not run",
        "Allow the command in the agent's configuration, or take it out of the task.",
    ),
    (
        "judge_failed",
        Layer.INFRA,
        "the judge failed",
        "Restore the judge and score the stored answers again (`gym eval reverify`).",
    ),
    (
        "judge_unparseable",
        Layer.VERIFIER_RUNTIME,
        "the judge's answer holds no verdict",
        "Make the judge's form strict or the parser lenient, and score again.",
    ),
    (
        "verifier_error",
        Layer.VERIFIER_RUNTIME,
        "the verifier raised",
        "Read its first traceback at that time and run the row's verify again.",
    ),
    (
        "provider_unavailable",
        Layer.INFRA,
        "what provides sandboxes, browsers or containers was not there",
        "Restore it and leave these rows out of the mean.",
    ),
    (
        "provider_quota_exhausted",
        Layer.CONFIG,
        "the provider's quota was used up",
        "Raise the quota or change the account.",
    ),
    (
        "provider_oom_killed",
        Layer.THROUGHPUT_RESOURCES,
        "the provider's process was killed for memory",
        "Give it more memory or lower the concurrency.",
    ),
    (
        "session_lost",
        Layer.VERIFIER_RUNTIME,
        "the resources session was lost",
        "See whether its cookie came along and whether one worker keeps the state.",
    ),
    (
        "session_expired",
        Layer.VERIFIER_RUNTIME,
        "the resources session had expired",
        "Raise the session's lifetime above the longest rollout.",
    ),
    (
        "session_release_failed",
        Layer.VERIFIER_RUNTIME,
        "the resources session could not be released",
        "Reap leaked sessions, then read close_session's traceback.",
    ),
    (
        "cancelled",
        Layer.INFRA,
        "the row was cancelled",
        "Find what cancelled it; what it called is not at fault.",
    ),
    (
        "kill_shaped",
        Layer.INFRA,
        "a process was killed from outside",
        "Read the scheduler's and the node's kernel log at that time.",
    ),
    (
        "shutdown",
        Layer.INFRA,
        "the run was being shut down",
        "Look for the first failure before the shutdown.",
    ),
    (
        "persistence_failed",
        Layer.INFRA,
        "the result could not be written",
        "Check space, mount and permissions of the output path.",
    ),
    (
        "cohort_incomplete",
        Layer.VERIFIER_RUNTIME,
        "not all rollouts of its cohort arrived",
        "Look for the first failure among the other rollouts of this task.",
    ),
)


def _carries(kind: str) -> Sees:
    def sees(view: View) -> Iterator[Sight]:
        for exchange in view.material.exchanges:
            leaf = exchange.unwrapped.leaf if exchange.status == 200 else None
            if leaf is not None and leaf.kind is LeafKind.FAILURE and leaf.code == kind:
                yield exchange_sight(view, exchange, leaf.message, kind)
        for source, rows in (("result", view.material.results), ("row", view.material.row_values)):
            for number, row in enumerate(rows, 1):
                if kind in {row.get("failure_kind"), row.get("_ng_failure_class")}:
                    text = str(row.get("failure_reason") or row.get("_ng_failure_message") or kind)
                    yield Sight(source, f"{source} {number}", text[:500], number, kind)

    return sees


RULES: tuple[Rule, ...] = tuple(
    Rule(
        id=f"told.{kind}",
        layer=layer,
        needs=f"failure_kind {kind} in a row or a typed answer",
        sees=_carries(kind),
        cause=f"Gym itself says `{kind}`: {what}.",
        next_action=action,
        source="nemo_gym.failure_kinds, 0.7.0",
        strength=Strength.STATUS,
        failure_kind=kind,
    )
    for kind, layer, what, action in _KINDS
)
