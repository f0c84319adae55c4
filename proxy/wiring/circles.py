"""Refuses, before anything listens, boundaries that lead to each other in a circle."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.wiring.origin import Origin


@dataclass(frozen=True)
class Route:
    """Where one of ours listens, and what it calls."""

    name: str
    listen: Origin
    upstream: Origin


def check_circles(routes: Sequence[Route]) -> None:
    """Raises UsageError for a route that comes back to itself. A port 0 is nobody's upstream yet."""
    for start in routes:
        path = [start]
        while (following := _next(path[-1], routes)) is not None:
            if following is start:
                _refuse(path)
            if following in path:
                break  # a circle that does not go through this one; its own turn comes
            path.append(following)


def _next(route: Route, routes: Sequence[Route]) -> Route | None:
    """TLS or not is the same here: a connection arrives either way."""
    upstream = route.upstream
    return next((one for one in routes if replace(upstream, scheme=one.listen.scheme).reaches(one.listen)), None)


def _refuse(path: Sequence[Route]) -> None:
    if len(path) == 1:
        raise UsageError(f"{path[0].name} would call itself", "listen at another port than the upstream's")
    names = " -> ".join(route.name for route in [*path, path[0]])
    raise UsageError(f"these would call each other in a circle: {names}", "let one of them lead to a server")
