"""`gymtap up`: a tap that stands until it is stopped, with boundaries by hand, before a running Gym, or on request."""

import asyncio
import os
import shlex
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.engine import Causality
from gymtap.proxy.engine.open_files import watch_open_files
from gymtap.proxy.mitm.settings import MitmSettings
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.proxy.wiring.circles import Route, beside, check_circles
from gymtap.proxy.wiring.control import Control
from gymtap.proxy.wiring.head import HeadRelay, fetch_config, gym_servers, tapped_server
from gymtap.proxy.wiring.mapping import Mapping
from gymtap.proxy.wiring.origin import Origin
from gymtap.proxy.wiring.proxied import introduce, second_engine
from gymtap.proxy.wiring.standing import ControlAddress, check_none_stands, remove_control, write_control
from gymtap.proxy.wiring.watch import watching
from gymtap.proxy.wiring.wrap import Say, conclude
from gymtap.schemas import Server, ServerKind

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Standing:
    """What to stand in front of; `mitm` is the second engine, beside it.

    `control_port` 0 is any free one; `token` empty is a new one.
    """

    tap: TapSettings
    mappings: Sequence[Mapping] = ()
    gym: Origin | None = None
    takeover: bool = False
    control_port: int = 0
    token: str = ""
    expose: bool = False
    mitm: MitmSettings | None = None


async def stand(standing: Standing, say: Say) -> int:
    """Stand until SIGINT, SIGTERM or SIGHUP; 0, or GAPS_EXIT_CODE.

    Raises UsageError for what cannot be meant, ListenError for a port that is taken, GymtapError for a head
    that does not answer.
    """
    await _check(standing)
    config = await fetch_config(standing.gym) if standing.gym is not None else {}
    stopped = _on_signals()
    async with Tap(standing.tap) as tap, AsyncExitStack() as stack:
        watch_open_files(say)
        for mapping in standing.mappings:
            await _open(tap, mapping, say)
        if standing.gym is not None:
            await stack.enter_async_context(_before_gym(tap, standing.gym, config, say))
        if standing.mitm is not None:
            introduce(await stack.enter_async_context(second_engine(tap, standing.mitm, say)), say)
        if standing.takeover:
            await stack.enter_async_context(_on_request(tap, standing, say))
        say(f"gymtap: recording to {tap.capture}; stop with Ctrl-C")
        async with watching(tap.capture, say):
            await _until(stopped, tap, say)
    return conclude(tap, 0, say, nothing="no request came")


async def _check(standing: Standing) -> None:
    if not (standing.mappings or standing.gym or standing.takeover or standing.mitm):
        raise UsageError("nothing to stand in front of", "give --map, --gym, --takeover or --engine mitm")
    if standing.takeover and standing.tap.capture is not None:
        check_none_stands(standing.tap.capture)
    routes = [*(Route(each.name, each.listen, each.upstream) for each in standing.mappings), *_routes(standing)]
    check_circles([*routes, *beside(routes)])
    names = [mapping.name for mapping in standing.mappings]
    for mapping in standing.mappings:
        if names.count(mapping.name) > 1:
            raise UsageError(f"two mappings are called {mapping.name!r}", "give each boundary a name of its own")
        if not mapping.listen.loopback and not standing.expose:
            raise UsageError(
                f"{mapping.name} would listen on {mapping.listen.address}, where other machines reach it",
                "add --expose if that is meant: whoever reaches it reaches the upstream through it, and is recorded",
            )
        await _resolve(mapping)


def _routes(standing: Standing) -> list[Route]:
    """Where the second engine listens for one upstream, and which."""
    if standing.mitm is None:
        return []
    from gymtap.proxy.mitm.modes import fixed_routes  # noqa: PLC0415 - slow to load

    routes = fixed_routes(standing.mitm.modes)
    return [Route(mode, Origin("http", *listen), Origin("http", *upstream)) for mode, listen, upstream in routes]


async def _resolve(mapping: Mapping) -> None:
    host = mapping.upstream.host
    try:
        await asyncio.get_running_loop().getaddrinfo(host, mapping.upstream.port, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"the upstream of {mapping.name} does not resolve: {host}: {reason}", "check the name"
        ) from None


async def _open(tap: Tap, mapping: Mapping, say: Say) -> None:
    listener = await tap.listen(mapping.server)
    if not mapping.listen.loopback:
        say(f"gymtap: {mapping.name} is open to other machines: whoever reaches it is let through and recorded")
    say(f"gymtap: {mapping.name}: {listener.server.listen} -> {listener.server.upstream}")


def _on_signals() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in _STOPPING:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


async def _until(stopped: asyncio.Event, tap: Tap, say: Say) -> None:
    """Wait to be stopped, or, in a strict tap, for the first thing that could not be recorded."""
    waits = {asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(tap.broken())}
    done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    for reason in (task.result() for task in done):
        if isinstance(reason, str):
            say(f"gymtap: --strict-capture: {reason}; no more traffic passes")


@asynccontextmanager
async def _on_request(tap: Tap, standing: Standing, say: Say) -> AsyncIterator[None]:
    control = Control(tap, token=standing.token, tls=tap.upstream_tls)
    await control.start(standing.control_port)
    write_control(tap.capture, ControlAddress(url=control.url, token=control.token, pid=os.getpid()))
    say(f"gymtap: takes over on request at {control.url}")
    say(f'gymtap: in the run\'s environment: eval "$(gymtap env --capture {shlex.quote(str(tap.capture))})"')
    try:
        yield
    finally:
        await control.close(run_over=False)
        remove_control(tap.capture)


@asynccontextmanager
async def _before_gym(tap: Tap, head: Origin, config: dict[str, object], say: Say) -> AsyncIterator[None]:
    relay = HeadRelay(head)
    answering = await relay.start()
    try:
        for server in gym_servers(config):
            listener = await tap.listen(tapped_server(server), causality=Causality.OFF)
            listen = Origin.parse(listener.server.listen)
            relay.tapped[server.origin.host, server.origin.port] = (listen.host, listen.port)
            say(f"gymtap: {server.name}: {listen.url} -> {server.origin.url}")
        boundary = Server(name="head_server", kind=ServerKind.HEAD, listen="http://127.0.0.1:0", upstream=answering.url)
        front = Origin.parse((await tap.listen(boundary)).server.listen)
        relay.tapped[head.host, head.port] = (front.host, front.port)
        say(f"gymtap: point the collector here: ++head_server.host={front.host} ++head_server.port={front.port}")
        yield
    finally:
        await relay.close()
