"""`gymtap redirect`: a Gym that runs already, captured by sending its ports through the second engine.

The rule exists only while three things do: the tap, something that listens for it, and a guard process that removes
the rule when one of the others goes. Whoever of tap and guard survives the other removes the rule.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.mitm.guard import READY
from gymtap.proxy.mitm.rules import Redirection, RuleError, is_available, remove, remove_stale
from gymtap.proxy.mitm.settings import MitmSettings
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.proxy.wiring.proxied import second_engine
from gymtap.proxy.wiring.wrap import Say, conclude

NOBODY_GID = 65534
_TRANSPARENT = MitmSettings(modes=("transparent@0",))


@dataclass(frozen=True)
class Redirecting:
    """What to redirect: connections over loopback to ports `low` to `high`. The proxy runs with group `gid`."""

    tap: TapSettings
    low: int
    high: int
    gid: int = NOBODY_GID


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
    clean(say)
    os.setegid(redirecting.gid)  # what this process sends from now on is not redirected
    async with Tap(redirecting.tap) as tap, second_engine(tap, _TRANSPARENT, say) as engine:
        rule = Redirection(redirecting.low, redirecting.high, engine.addresses[0][1], redirecting.gid, os.getpid())
        async with _guarded(rule) as guard:
            say(f"gymtap: ports {rule.low} to {rule.high} pass through here; recording to {tap.capture}")
            say("gymtap: connections that were open before stay as they were; stop with Ctrl-C")
            await _until(guard, tap, say)
    return conclude(tap, 0, say, nothing="no new connection went to these ports")


def check_system() -> None:
    """Raises GymtapError where no rule can be made."""
    if sys.platform != "linux":
        raise GymtapError("ports are redirected by iptables, which Linux has", "use `gymtap run` or `gymtap up`")
    if os.geteuid() != 0:
        raise GymtapError("redirecting ports needs root", "use `gymtap run` or `gymtap up`, which need nothing")
    if not is_available():
        raise GymtapError("iptables is not installed", "apt install iptables")


def clean(say: Say) -> None:
    """Remove what an earlier redirect left, if it and its guard were killed at once. Raises GymtapError."""
    try:
        for rule in remove_stale():
            say(f"gymtap: removed a rule that was left without a listener: {rule}")
    except RuleError as error:
        raise GymtapError(str(error), "look at `iptables -t nat -S OUTPUT`") from None


@asynccontextmanager
async def _guarded(rule: Redirection) -> AsyncIterator[Process]:
    """The rule, and the guard that made it, until the block ends. Raises GymtapError when it is refused."""
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


async def _until(guard: Process, tap: Tap, say: Say) -> None:
    """Wait to be stopped, for the guard's end, or in a strict tap for the first thing that could not be recorded."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    waits = {asyncio.ensure_future(one) for one in (stopped.wait(), guard.wait(), tap.broken())}
    _, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    if guard.returncode is not None:
        say("gymtap: the guard of the rule has ended, so the rule is removed")
