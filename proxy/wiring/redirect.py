"""`gymtap redirect`: a Gym that runs already, captured by sending its ports through the second engine.

The rule is in a table of nftables' that a socket of this process owns, so the kernel removes it with the process. An
older kernel has none: then iptables, and a guard process that removes the rule when the tap has gone; whoever of the
two survives the other does it. Either way it goes when nothing listens behind it any more.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass

from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.listening import is_listening, listening6
from gymtap.proxy.mitm.guard import LOOK_S, READY
from gymtap.proxy.mitm.owned_table import OwnedTable, UnsupportedError
from gymtap.proxy.mitm.rules import Redirection, RuleError, is_available, remove, remove_stale
from gymtap.proxy.mitm.settings import MitmSettings
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.proxy.wiring.proxied import second_engine
from gymtap.proxy.wiring.wrap import Say, conclude

NOBODY_GID = 65534
_LOOPBACK6 = "::1"


@dataclass(frozen=True)
class Redirecting:
    """What to redirect: connections over loopback to ports `low` to `high`. The proxy runs with group `gid`.

    `iptables`: make the rule with iptables and a guard, although the kernel may have a better way.
    """

    tap: TapSettings
    low: int
    high: int
    gid: int = NOBODY_GID
    iptables: bool = False


def parse_ports(text: str) -> tuple[int, int]:
    """`A-B`, or one port. Raises UsageError."""
    low, dash, high = text.partition("-")
    ends = [low, high if dash else low]
    if not all(end.isascii() and end.isdigit() and 0 < int(end) < 65536 for end in ends) or int(ends[0]) > int(ends[1]):
        raise UsageError(f"--ports {text} is no range of ports", "as in --ports 10001-20000")
    return int(ends[0]), int(ends[1])


async def redirect(redirecting: Redirecting, say: Say) -> int:
    """Redirect until SIGINT, SIGTERM or SIGHUP; 0, or GAPS_EXIT_CODE.

    Raises GymtapError where that is not possible: without root, without iptables, or when the rule is refused.
    """
    check_system()
    with suppress(GymtapError):  # where iptables does not work it has left nothing
        clean(say)
    os.setegid(redirecting.gid)  # what this process sends from now on is not redirected
    modes = ["transparent@127.0.0.1:0", *([f"transparent@{_LOOPBACK6}:0"] if _has_ipv6() else [])]
    async with Tap(redirecting.tap) as tap, second_engine(tap, MitmSettings(modes), say) as engine:
        to_port, to_port6 = (_port(engine.addresses, host) for host in ("127.0.0.1", _LOOPBACK6))
        assert to_port is not None
        rule = Redirection(redirecting.low, redirecting.high, to_port, redirecting.gid, os.getpid())
        async with _redirected(rule, to_port6, say, iptables=redirecting.iptables) as ended:
            say(f"gymtap: ports {rule.low} to {rule.high} pass through here; recording to {tap.capture}")
            say("gymtap: connections that were open before stay as they were; stop with Ctrl-C")
            await _until(ended, tap, say)
    return conclude(tap, 0, say, nothing="no new connection went to these ports")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((_LOOPBACK6, 0))
    except OSError:
        return False
    return True


def _port(addresses: tuple[tuple[str, int], ...], host: str) -> int | None:
    return next((port for listens, port in addresses if listens == host), None)


def check_system() -> None:
    """Raises GymtapError where no rule can be made."""
    if sys.platform != "linux":
        raise GymtapError("ports are redirected by a kernel of Linux", "use `gymtap run` or `gymtap up`")
    if os.geteuid() != 0:
        raise GymtapError("redirecting ports needs root", "use `gymtap run` or `gymtap up`, which need nothing")


def clean(say: Say) -> None:
    """Remove what an earlier redirect by iptables left, if it and its guard were killed at once. Raises GymtapError."""
    if not is_available():
        return
    try:
        for rule in remove_stale():
            say(f"gymtap: removed a rule that was left without a listener: {rule}")
    except RuleError as error:
        raise GymtapError(str(error), "look at `iptables -t nat -S OUTPUT`") from None


@asynccontextmanager
async def _redirected(
    rule: Redirection, to_port6: int | None, say: Say, *, iptables: bool
) -> AsyncIterator[Awaitable[str]]:
    """The rule, until the block ends; gives what will say why the rule cannot stay. Raises GymtapError."""
    table = OwnedTable(rule, to_port6)
    if iptables or not _opened(table, rule):
        say("gymtap: the rule is one of iptables', for IPv4 only, with a guard process")
        async with _guarded(rule) as guard:
            yield _guards_end(guard)
        return
    try:
        yield _watch(table, rule)
    finally:
        table.close()


def _opened(table: OwnedTable, rule: Redirection) -> bool:
    """False where the kernel has no such tables. Raises GymtapError when it refuses this one."""
    try:
        table.open()
        table.redirect6(listening6(rule.low, rule.high))
    except UnsupportedError:
        return False
    except RuleError as error:
        raise GymtapError(str(error), "it takes the capability CAP_NET_ADMIN; see it with `nft list ruleset`") from None
    return True


async def _watch(table: OwnedTable, rule: Redirection) -> str:
    """Follow what listens over IPv6, until nothing listens behind the rule any more, or the kernel refuses."""
    while await asyncio.to_thread(is_listening, rule.to_port):
        try:
            table.redirect6(await asyncio.to_thread(listening6, rule.low, rule.high))
        except RuleError as error:
            return str(error)
        await asyncio.sleep(LOOK_S)
    return "nothing listens behind the rule any more"


async def _guards_end(guard: Process) -> str:
    await guard.wait()
    return "the guard of the rule has ended"


@asynccontextmanager
async def _guarded(rule: Redirection) -> AsyncIterator[Process]:
    """The rule, and the guard that made it, until the block ends. Raises GymtapError when it is refused."""
    if not is_available():
        raise GymtapError(
            "iptables is not installed, and this kernel has no tables that are owned", "apt install iptables"
        )
    command = [sys.executable, "-m", "gymtap.proxy.mitm.guard", json.dumps(asdict(rule))]
    guard = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    assert guard.stdin is not None
    assert guard.stdout is not None
    try:
        said = (await guard.stdout.readline()).decode().strip()
        if said != READY:
            raise GymtapError(said or "the guard of the rule did not start", "look at `iptables -t nat -S OUTPUT`")
        yield guard
    finally:
        guard.stdin.close()
        await guard.wait()
        await asyncio.to_thread(remove, rule)  # the guard did it, unless it was killed


async def _until(ended: Awaitable[str], tap: Tap, say: Say) -> None:
    """Wait to be stopped, for the rule's end, or in a strict tap for the first thing that could not be recorded."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    ending = asyncio.ensure_future(ended)
    waits = {ending, *(asyncio.ensure_future(one) for one in (stopped.wait(), tap.broken()))}
    done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    if ending in done:
        say(f"gymtap: {ending.result()}, so the rule is removed")
