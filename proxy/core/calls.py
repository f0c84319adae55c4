"""What a request asks for, and what a server is, told from method, path and traffic.

Kinds that the configuration gives are never overruled. Where none is given, paths that only one kind of server has
decide at once, and a server that answers /run stays unknown until its other traffic tells an agent from an environment.
"""

from typing import NamedTuple

from gymtap.schemas import Call, Headers, ServerKind

PREFIX = "/ng-rollout/"
"""Gym 0.5 and later put the rollout's id before the path when they trace rollouts (`/ng-rollout/12-3/verify`)."""

CONFIG_PATH = "/global_config_dict_yaml"
"""What a collector asks the head for when it starts and when it is done."""

GENERATION_PATHS = ("/responses", "/chat/completions", "/completions", "/messages")

_HEALTH_PATHS = frozenset({"", "/", "/health", "/healthz", "/ping", "/version", "/metrics", "/ready", "/live"})
_HEAD_PATHS = frozenset({CONFIG_PATH, "/server_instances"})
_FIXED = {
    "/run": Call.RUN,
    "/seed_session": Call.SEED_SESSION,
    "/verify": Call.VERIFY,
    "/close_session": Call.CLOSE_SESSION,
    "/aggregate_metrics": Call.AGGREGATE,
}
_GENERATION = {
    ServerKind.AGENT: Call.RESPONSES,
    ServerKind.MODEL: Call.MODEL,
    ServerKind.PROVIDER: Call.PROVIDER,
    ServerKind.JUDGE: Call.JUDGE,
    ServerKind.ENVIRONMENT: Call.OTHER,
    ServerKind.RESOURCES: Call.TOOL,
    ServerKind.HEAD: Call.HEAD,
    ServerKind.UNKNOWN: Call.MODEL,
}
_RESOURCES_CALLS = frozenset({Call.SEED_SESSION, Call.VERIFY, Call.CLOSE_SESSION})


class Route(NamedTuple):
    """A target's path without query and rollout prefix; `rollout` is the prefix's id, None where there is none."""

    path: str
    rollout: str | None


def route(target: str) -> Route:
    """Split a request target (`/ng-rollout/12-3/verify?x=1` is `/verify` of `12-3`)."""
    path = target.partition("?")[0]
    if not path.startswith(PREFIX):
        return Route(path, None)
    rollout, slash, rest = path[len(PREFIX) :].partition("/")
    return Route(slash + rest, rollout or None)


def is_generation(path: str) -> bool:
    """Whether a path is one of the model APIs: Responses, Chat Completions, Completions, Messages."""
    return path.endswith(GENERATION_PATHS)


def classify(method: str, path: str, kind: ServerKind) -> Call:
    """Say what a request asks for; `path` is a route's path. A verify's own model calls are told by their parent."""
    if path in _HEAD_PATHS or kind is ServerKind.HEAD:
        return Call.HEALTH if path == "/" else Call.HEAD
    if method in {"GET", "HEAD", "OPTIONS"}:
        return _classify_read(path)
    if path in _FIXED:
        return _FIXED[path]
    if "/agent_sessions" in path and path.startswith(("/v1/", "/agent_sessions")):
        return Call.AGENT_SESSION
    if is_generation(path):
        return _GENERATION[kind]
    return Call.TOOL if kind is ServerKind.RESOURCES else Call.OTHER


def _classify_read(path: str) -> Call:
    return Call.HEALTH if path in _HEALTH_PATHS or path.endswith("/models") else Call.OTHER


def kind_from_request(method: str, path: str, headers: Headers, serves_runs: bool) -> ServerKind:
    """Guess an unknown server's kind from one request to it; UNKNOWN where that decides nothing.

    `serves_runs` says whether it was sent a /run before: only agents are sent both. Gym 0.7 puts a key on calls that
    leave Gym (`Bearer EMPTY` at least) and on no others.
    """
    if path in _HEAD_PATHS:
        return ServerKind.HEAD
    call = classify(method, path, ServerKind.UNKNOWN)
    if call in _RESOURCES_CALLS:
        return ServerKind.RESOURCES
    if call is Call.AGENT_SESSION:
        return ServerKind.AGENT
    if not is_generation(path) or method != "POST":
        return ServerKind.UNKNOWN
    if serves_runs:
        return ServerKind.AGENT
    has_key = any(name.lower() in {"authorization", "x-api-key", "api-key"} for name, _ in headers)
    return ServerKind.PROVIDER if has_key else ServerKind.MODEL


def causes_judging(parent: Call) -> bool:
    """Whether a model or provider call beneath such a call is a judge's."""
    return parent in {Call.VERIFY, Call.JUDGE}
