"""What requests ask for, and what servers are."""

import pytest

from gymtap.proxy.core import calls
from gymtap.schemas import Call, ServerKind

AGENT, ENVIRONMENT, RESOURCES = ServerKind.AGENT, ServerKind.ENVIRONMENT, ServerKind.RESOURCES
MODEL, PROVIDER, JUDGE, HEAD, UNKNOWN = (
    ServerKind.MODEL,
    ServerKind.PROVIDER,
    ServerKind.JUDGE,
    ServerKind.HEAD,
    ServerKind.UNKNOWN,
)


@pytest.mark.parametrize(
    ("target", "path", "rollout"),
    [
        ("/run", "/run", None),
        ("/run?x=%2F", "/run", None),
        ("/ng-rollout/12-3-a1/v1/responses", "/v1/responses", "12-3-a1"),
        ("/ng-rollout/my.id/verify?x=1", "/verify", "my.id"),
        ("/ng-rollout/12-3", "", "12-3"),
        ("/ng-rollouts/12-3/x", "/ng-rollouts/12-3/x", None),
    ],
)
def test_route(target: str, path: str, rollout: str | None) -> None:
    """The rollout's prefix is no part of what is asked for; nor is the query."""
    assert calls.route(target) == (path, rollout)


@pytest.mark.parametrize(
    ("method", "path", "kind", "call"),
    [
        ("GET", "/", AGENT, Call.HEALTH),
        ("GET", "/", HEAD, Call.HEALTH),
        ("GET", "/v1/models", PROVIDER, Call.HEALTH),
        ("GET", "/health", UNKNOWN, Call.HEALTH),
        ("GET", "/openapi.json", RESOURCES, Call.OTHER),
        ("GET", "/global_config_dict_yaml", UNKNOWN, Call.HEAD),
        ("GET", "/server_instances", HEAD, Call.HEAD),
        ("POST", "/anything", HEAD, Call.HEAD),
        ("POST", "/run", ENVIRONMENT, Call.RUN),
        ("POST", "/run", AGENT, Call.RUN),
        ("POST", "/seed_session", RESOURCES, Call.SEED_SESSION),
        ("POST", "/verify", UNKNOWN, Call.VERIFY),
        ("POST", "/close_session", RESOURCES, Call.CLOSE_SESSION),
        ("POST", "/v1/agent_sessions", AGENT, Call.AGENT_SESSION),
        ("POST", "/v1/agent_sessions/close", AGENT, Call.AGENT_SESSION),
        ("POST", "/aggregate_metrics", ENVIRONMENT, Call.AGGREGATE),
        ("POST", "/v1/responses", AGENT, Call.RESPONSES),
        ("POST", "/v1/responses", MODEL, Call.MODEL),
        ("POST", "/v1/chat/completions", MODEL, Call.MODEL),
        ("POST", "/v1/messages", MODEL, Call.MODEL),
        ("POST", "/training-token-capture/v1/responses", MODEL, Call.MODEL),
        ("POST", "/v1/responses", PROVIDER, Call.PROVIDER),
        ("POST", "/v1/chat/completions", PROVIDER, Call.PROVIDER),
        ("POST", "/v1/chat/completions", JUDGE, Call.JUDGE),
        ("POST", "/get_weather", RESOURCES, Call.TOOL),
        ("POST", "/get_weather", AGENT, Call.OTHER),
    ],
)
def test_classify(method: str, path: str, kind: ServerKind, call: Call) -> None:
    """Method, path and the server's kind tell what is asked for."""
    assert calls.classify(method, path, kind) is call


@pytest.mark.parametrize(
    ("method", "path", "headers", "serves_runs", "kind"),
    [
        ("GET", "/server_instances", (), False, HEAD),
        ("POST", "/seed_session", (), False, RESOURCES),
        ("POST", "/verify", (), False, RESOURCES),
        ("POST", "/v1/agent_sessions", (), False, AGENT),
        ("POST", "/v1/responses", (), True, AGENT),
        ("POST", "/v1/responses", (), False, MODEL),
        ("POST", "/v1/chat/completions", (("authorization", "Bearer EMPTY"),), False, PROVIDER),
        ("POST", "/v1/messages", (("X-Api-Key", "k"),), False, PROVIDER),
        ("POST", "/run", (), False, UNKNOWN),
        ("GET", "/", (), False, UNKNOWN),
    ],
)
def test_guess(
    method: str, path: str, headers: tuple[tuple[str, str], ...], serves_runs: bool, kind: ServerKind
) -> None:
    """Some paths only one kind of server has; /run alone tells nothing."""
    assert calls.kind_from_request(method, path, headers, serves_runs) is kind


def test_judging() -> None:
    """What a verify calls is a judge, and so is what a judge calls."""
    assert calls.causes_judging(Call.VERIFY)
    assert calls.causes_judging(Call.JUDGE)
    assert not calls.causes_judging(Call.RESPONSES)
