"""Kinds follow from where Gym's configuration names a server."""

import pytest

from gymtap.proxy.wiring.kinds import origin_kind, server_kind
from gymtap.schemas import ServerKind


@pytest.mark.parametrize(
    ("server_type", "name", "kind"),
    [
        ("environment_servers", "env", ServerKind.ENVIRONMENT),
        ("responses_api_agents", "agent", ServerKind.AGENT),
        ("resources_servers", "equivalence_llm_judge", ServerKind.RESOURCES),
        ("responses_api_models", "policy_model", ServerKind.MODEL),
        ("responses_api_models", "JudgeModel", ServerKind.JUDGE),
        ("responses_api_models", "grader", ServerKind.JUDGE),
        ("head", "head_server", ServerKind.HEAD),
        ("something_new", "x", ServerKind.UNKNOWN),
    ],
)
def test_kind_of_a_gym_server(server_type: str, name: str, kind: ServerKind) -> None:
    """Its type decides; a model server that is named or referred to as a judge is one."""
    assert server_kind(server_type, name, judges=("grader",)) is kind


@pytest.mark.parametrize(
    ("caller_type", "mentions", "kind"),
    [
        ("responses_api_models", [], ServerKind.PROVIDER),
        ("", ["policy_model.responses_api_models.vllm_model.base_url"], ServerKind.PROVIDER),
        ("resources_servers", ["math.resources_servers.math.judge_base_url"], ServerKind.JUDGE),
        ("resources_servers", ["policy_base_url"], ServerKind.PROVIDER),
        ("resources_servers", ["search.resources_servers.search.search_url"], ServerKind.UNKNOWN),
        ("", [], ServerKind.UNKNOWN),
    ],
)
def test_kind_of_what_lies_outside(caller_type: str, mentions: list[str], kind: ServerKind) -> None:
    """What a model server calls is a provider; elsewhere the configuration's key tells."""
    assert origin_kind(caller_type, mentions) is kind
