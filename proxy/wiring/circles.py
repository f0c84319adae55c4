"""Refuses, before anything listens, boundaries that lead to each other in a circle, also by way of another tap.

What another tap of this machine stands in front of is in its capture, which is among the files that it has open
(Linux, and as far as this process may look); once it stands, a circle through two processes cannot be told from calls.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gymtap.proxy.core.errors import CaptureError, UsageError
from gymtap.proxy.listening import holder_of, open_files
from gymtap.proxy.store import Capture, is_capture
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


def beside(routes: Sequence[Route]) -> list[Route]:
    """The routes of other taps of this machine that these lead to, from one to the next."""
    every, found, seen = list(routes), list[Route](), set[int]()
    for route in every:
        holder = holder_of(route.upstream.port) if route.upstream.loopback else None
        if holder is not None and holder.pid is not None and holder.pid not in seen:
            seen.add(holder.pid)
            theirs = [one for folder in _captures(holder.pid) for one in _routes(folder, holder.pid)]
            found += theirs
            every += theirs
    return found


def _captures(pid: int) -> set[Path]:
    """The captures that a process has open."""
    folders = {Path(file).parent for file in open_files(Path("/proc", str(pid))) if file.startswith("/")}
    return {folder for folder in folders if is_capture(folder)}


def _routes(folder: Path, pid: int) -> Iterator[Route]:
    with suppress(CaptureError), Capture(folder) as capture:
        for server in capture.servers():
            with suppress(ValueError):  # of an address that is none, as the second engine's may be
                yield Route(f"{server.name} of pid {pid}", Origin.parse(server.listen), Origin.parse(server.upstream))


def _next(route: Route, routes: Sequence[Route]) -> Route | None:
    """TLS or not is the same here: a connection arrives either way."""
    upstream = route.upstream
    return next((one for one in routes if replace(upstream, scheme=one.listen.scheme).reaches(one.listen)), None)


def _refuse(path: Sequence[Route]) -> None:
    if len(path) == 1:
        raise UsageError(f"{path[0].name} would call itself", "listen at another port than the upstream's")
    names = " -> ".join(route.name for route in [*path, path[0]])
    raise UsageError(f"these would call each other in a circle: {names}", "let one of them lead to a server")
