"""`gymtap run`: a tap around one command, from before its first request to after its last."""

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.engine.open_files import open_files_limit, watch_open_files
from gymtap.proxy.mitm.settings import MitmSettings
from gymtap.proxy.store import Capture
from gymtap.proxy.tap import GAPS_EXIT_CODE, Tap, TapSettings
from gymtap.proxy.wiring.child import Child, check_command
from gymtap.proxy.wiring.control import Control
from gymtap.proxy.wiring.environment import Parts, wiring_variables
from gymtap.proxy.wiring.proxied import proxied
from gymtap.proxy.wiring.standing import ControlAddress, remove_control, write_control
from gymtap.proxy.wiring.watch import watching
from gymtap.schemas import CaptureInfo, TransportErrorKind

_FAILED_READ = 1000
"""How many failed exchanges the summary looks at."""

type Say = Callable[[str], None]
"""Tells the person one line."""


@dataclass(frozen=True)
class Wrapping:
    """What to run and how to stand around it; `tap.command` is taken from `command`.

    `proxy`: be an explicit proxy besides, and give the command the variables by which it uses it.
    """

    command: Sequence[str]
    tap: TapSettings
    parts: Parts = field(default_factory=Parts)
    proxy: MitmSettings | None = None


async def wrap(wrapping: Wrapping, say: Say) -> int:
    """Run the command behind a tap; its exit status, or GAPS_EXIT_CODE where only the capture went wrong.

    Raises CommandNotFoundError and CommandNotExecutableError before anything is made, and what Tap raises.
    """
    check_command(wrapping.command[0])
    if os.environ.get("GYMTAP_CONTROL"):
        say("gymtap: inside another `gymtap run`: this one records, the outer one sees nothing of it")
    open_files = open_files_limit()
    async with Tap(wrapping.tap) as tap, AsyncExitStack() as stack:
        say(f"gymtap: recording to {tap.capture}")
        watch_open_files(say)
        control = Control(tap, causality=wrapping.parts.causality, tls=tap.upstream_tls)
        await control.start()
        write_control(tap.capture, ControlAddress(url=control.url, token=control.token, pid=os.getpid()))
        try:
            variables = wiring_variables(control.url, control.token, wrapping.parts, os.environ)
            if wrapping.proxy is not None:
                variables |= await stack.enter_async_context(proxied(tap, wrapping.proxy, say))
            async with watching(tap.capture, say):
                child = await Child.start(wrapping.command, variables, open_files=open_files)
                status = await _end_of(child, tap, say)
        finally:
            await control.close(run_over=True)
            remove_control(tap.capture)
    return conclude(tap, status, say, nothing="no Gym server was started by this command")


async def _end_of(child: Child, tap: Tap, say: Say) -> int:
    ended, broken = asyncio.ensure_future(child.wait()), asyncio.ensure_future(tap.broken())
    await asyncio.wait({ended, broken}, return_when=asyncio.FIRST_COMPLETED)
    if broken.done() and not ended.done():
        say(f"gymtap: --strict-capture: {broken.result()}; no more traffic passes, and the command is stopped")
        child.send(signal.SIGINT)
    broken.cancel()
    return await ended


def conclude(tap: Tap, status: int, say: Say, *, nothing: str) -> int:
    """Sum up a capture that has ended, and settle the exit status; `nothing` says why there may be no exchange."""
    try:
        with Capture(tap.capture) as capture:
            info = capture.info()
            lines = [*_summary(info, nothing), *_tls_failures(capture)]
    except CaptureError as error:
        say(f"gymtap: {error}")
        return status or error.exit_code
    for line in lines:
        say(line)
    return status or (GAPS_EXIT_CODE if info.gaps else 0)


def _summary(info: CaptureInfo, nothing: str) -> list[str]:
    """What was captured, in one line, what was not, in another, and how to see it."""
    rows = _count(info.rows, "row") + (f" ({info.failed_rows:,} failed)" if info.rows else "")
    lines = [f"gymtap: {_count(info.exchanges, 'exchange')}, {rows}, {_count(len(info.gaps), 'gap')} in {info.path}"]
    if info.gaps:
        kinds = ", ".join(sorted({gap.kind for gap in info.gaps}))
        lines.append(f"gymtap: NOT everything was captured ({kinds}): {info.gaps[0].detail}")
    if info.exchanges:
        lines.append(f"gymtap: see it with: gymtap rows {shlex.quote(info.path)}")
    else:
        lines.append(f"gymtap: nothing was captured: {nothing}")
    return lines


def _tls_failures(capture: Capture) -> list[str]:
    """What TLS refused, each once: the application saw a broken connection, and the way out is an option of ours."""
    failed = capture.exchanges(failed=True, limit=_FAILED_READ)
    errors = [exchange.error for exchange in failed if exchange.error is not None]
    messages = dict.fromkeys(error.message for error in errors if error.kind is TransportErrorKind.TLS)
    return [f"gymtap: {message}" for message in messages]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
