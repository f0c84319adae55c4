"""What a boundary's far end is, from where Gym's configuration (0.4 to 0.7) names it."""

from collections.abc import Collection, Sequence

from gymtap.schemas import ServerKind

_TYPES = {
    "environment_servers": ServerKind.ENVIRONMENT,
    "responses_api_agents": ServerKind.AGENT,
    "resources_servers": ServerKind.RESOURCES,
    "responses_api_models": ServerKind.MODEL,
    "head": ServerKind.HEAD,
    "head_server": ServerKind.HEAD,
}
_MODELS = "responses_api_models"


def server_kind(server_type: str, name: str, judges: Collection[str] = ()) -> ServerKind:
    """The kind of a Gym server; `server_type` is its key in the configuration.

    A model server is a judge when its name says so, or when some server refers to it as its judge
    (`judges`). An unknown type is `unknown`: the traffic may tell.
    """
    kind = _TYPES.get(server_type, ServerKind.UNKNOWN)
    if kind is ServerKind.MODEL and ("judge" in name.lower() or name in judges):
        return ServerKind.JUDGE
    return kind


def origin_kind(caller_type: str, mentions: Sequence[str]) -> ServerKind:
    """The kind of what lies outside Gym.

    `mentions` are the key paths of the configuration's values that name it. What a model server calls is a
    provider; what is named as a judge's address elsewhere is a judge; what else has a base URL is a provider.
    """
    if caller_type == _MODELS or any(_MODELS in path.split(".") for path in mentions):
        return ServerKind.PROVIDER
    if any("judge" in path.lower() for path in mentions):
        return ServerKind.JUDGE
    if any(path.endswith("base_url") for path in mentions):
        return ServerKind.PROVIDER
    return ServerKind.UNKNOWN
