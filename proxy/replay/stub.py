"""Which recorded servers a playback stands in for during a replay, and on which addresses.

A running Gym calls its provider where its configuration says; nobody can tell it otherwise from outside. So
the playback listens on the very addresses at which the stubbed server was known, and if somebody else is
there already, the replay ends before anything is sent.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.replay.match import playable
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.targets import Running, answers, on_loopback
from gymtap.schemas import Server, ServerKind

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Stub:
    """What `--stub` and its companions say. `boundaries` are kinds or names of servers.

    `listen` overrides the addresses; `passing` is where misses go, None fails them.
    """

    boundaries: frozenset[str]
    loose: bool = False
    passing: bool = False
    listen: tuple[tuple[str, int], ...] = ()

    def covers(self, server: str, kind: ServerKind) -> bool:
        """Whether it stands in for that server."""
        return server in self.boundaries or kind in self.boundaries

    def entries(self, exchanges: Iterable[Recorded]) -> Iterator[Recorded]:
        """What it can answer with."""
        return playable(one for one in exchanges if self._stands_for(one) and one.exchange.request.method not in _READS)

    def reads(self, exchanges: Iterable[Recorded]) -> Iterator[Recorded]:
        """The recorded GETs that it answers as often as they are asked."""
        return playable(one for one in exchanges if self._stands_for(one) and one.exchange.request.method in _READS)

    def _stands_for(self, one: Recorded) -> bool:
        return self.covers(one.exchange.server, one.exchange.kind)


def boundaries(text: str, servers: Sequence[Server]) -> frozenset[str]:
    """Read `provider,judge` or servers' names. Raises UsageError for what is neither."""
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    known = {server.name for server in servers} | set(ServerKind)
    unknown = [part for part in wanted if part not in known]
    if unknown or not wanted:
        said = unknown[0] if unknown else text
        raise UsageError(
            f"{said!r} is no boundary that can be stubbed", f"one or several of: {', '.join(sorted(known))}"
        )
    return frozenset(wanted)


async def addresses(stub: Stub, servers: Sequence[Server], running: Running | None) -> list[tuple[str, int]]:
    """Where the playback has to listen. Raises GymtapError when it cannot stand there.

    Where Gym certainly calls must be free. The playback also listens wherever else the server was known, if it
    can: at a tap's address, for those who pointed Gym there by hand.
    """
    if stub.listen:
        return list(stub.listen)
    covered = [server for server in servers if stub.covers(server.name, server.kind)]
    needed = list(dict.fromkeys(url for server in covered for url in _called(server, running)))
    for url in needed:
        if not await _is_free(url):
            raise GymtapError(
                f"the playback cannot stand in at {url}: it is not on this machine, or something answers there",
                "stop that; or start Gym with ++policy_base_url=http://127.0.0.1:PORT/v1 and say --stub-listen "
                "127.0.0.1:PORT; or say --gym HEAD_URL",
            )
    others = [url for server in covered for url in (server.upstream, server.listen) if url and await _is_free(url)]
    return list(dict.fromkeys(map(_place, needed + others)))


def address(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`, or a port on loopback. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address", "write 127.0.0.1:8000")
    return (host.strip("[]") or "127.0.0.1"), int(port)


def _called(server: Server, running: Running | None) -> tuple[str, ...]:
    """The URLs at which Gym calls a server when no tap is in between."""
    if running is not None and server.kind is ServerKind.PROVIDER and running.providers:
        return running.providers
    if running is not None and server.name in running.servers:
        return (running.servers[server.name],)
    return (server.upstream,)


async def _is_free(url: str) -> bool:
    return url.startswith("http://") and on_loopback(url) and not await answers(url)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 80
