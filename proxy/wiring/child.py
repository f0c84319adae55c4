"""Run the wrapped command: its signals, and its exit status.

A terminal sends Ctrl-C to the whole foreground group, so the command has it already; anywhere else the tap
passes it on. While the command runs the tap outlives every signal, because it must see the end of the traffic.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.engine.open_files import open_files_limit, with_open_files_limit

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FROM_KEYBOARD = frozenset({signal.SIGINT, signal.SIGQUIT})


class CommandNotFoundError(GymtapError):
    """The command cannot be started; the exit status is the shell's for that."""

    exit_code = 127


class CommandNotExecutableError(GymtapError):
    """The command is there and may not be run; the exit status is the shell's for that."""

    exit_code = 126


def check_command(name: str) -> None:
    """Raises CommandNotFoundError and CommandNotExecutableError, as a shell would tell them apart."""
    if shutil.which(name) is not None:
        return
    if shutil.which(name, mode=os.F_OK) is not None or Path(name).is_dir():
        raise CommandNotExecutableError(f"cannot run {name}: it is not executable", "name a program")
    raise CommandNotFoundError(f"command not found: {name}", "check the name and PATH")


class Child:
    """A started command."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, command: Sequence[str], variables: Mapping[str, str], *, open_files: int | None = None
    ) -> "Child":
        """Start `command` with `variables` added to the environment; its streams are ours.

        `open_files` is how many it may have open; None is as many as we may.

        Our handlers are set first: a signal that we catch has its default action in the command, also where we
        were started with it ignored, as a shell does in the background. Raises CommandNotFoundError and
        CommandNotExecutableError.
        """
        loop = asyncio.get_running_loop()
        waiting: list[signal.Signals] = []
        for number in _PASSED_ON:
            loop.add_signal_handler(number, waiting.append, number)
        try:
            with with_open_files_limit(open_files or open_files_limit()):
                process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **variables})
        except FileNotFoundError:
            raise CommandNotFoundError(f"command not found: {command[0]}", "check the name and PATH") from None
        except OSError as error:
            raise CommandNotExecutableError(f"cannot run {command[0]}: {error.strerror}", "name a program") from None
        child = cls(process)
        for number in _PASSED_ON:
            loop.add_signal_handler(number, child.pass_on, number)
        for number in waiting:
            child.pass_on(number)
        return child

    def pass_on(self, number: signal.Signals) -> None:
        """Send the command a signal, unless the terminal has done so."""
        if number in _FROM_KEYBOARD and _in_foreground():
            return
        self.send(number)

    def send(self, number: signal.Signals) -> None:
        """Send the command a signal; nothing happens when it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for its end; the exit status as a shell has it: 128 + n for signal n."""
        status = await self._process.wait()
        return 128 - status if status < 0 else status


def _in_foreground() -> bool:
    """Whether our process group has the terminal, and with it the keyboard's signals."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
