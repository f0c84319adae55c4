"""A program in a real terminal of a given size: keys go in, what is on the screen comes out.

The terminal is a tmux pane on a server of its own, without anyone's configuration. Nothing here sleeps a while and
hopes: what comes after a key is waited for by its text.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

_STEP_S = 0.1
_LIMIT_S = 50.0


class TmuxScreen:
    """A pane of `columns` by `rows` that runs `command`; as a context, it ends what it started."""

    def __init__(
        self, command: list[str], columns: int = 80, rows: int = 24, environment: Mapping[str, str] | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gymtap-tmux-")
        self._server = ["tmux", "-u", "-S", f"{self._folder.name}/socket", "-f", "/dev/null"]
        self._command = command
        self._size = (columns, rows)
        self._environment = {"COLORTERM": "truecolor", **(environment or {})}

    def __enter__(self) -> Self:
        columns, rows = map(str, self._size)
        given = [word for name, value in self._environment.items() for word in ("-e", f"{name}={value}")]
        self._tmux(
            *("start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";"),
            *("set-option", "-sg", "escape-time", "0", ";"),
            *("new-session", "-d", "-s", "screen", "-x", columns, "-y", rows, *given, "--", *self._command),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        program = self._tmux("display-message", "-p", "-t", "screen", "#{pane_pid}", check=False).strip()
        self._tmux("kill-server", check=False)
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(program), signal.SIGKILL)  # one that does not mind that its terminal is gone
        self._folder.cleanup()

    def press(self, key: str) -> None:
        """Press a key, by tmux's name: `j`, `Enter`, `Escape`, `C-d`."""
        self._tmux("send-keys", "-t", "screen", key if key != ";" else r"\;")

    def write(self, text: str) -> None:
        """Type a text."""
        self._tmux("send-keys", "-t", "screen", "-l", text)

    def text(self, *, coloured: bool = False) -> str:
        """What is on the screen, a line a row; `coloured` keeps the colours as ANSI sequences, to the end of each."""
        return self._tmux("capture-pane", "-p", "-t", "screen", *(["-e", "-N"] if coloured else []))

    def wait(self, *patterns: str, limit_s: float = _LIMIT_S) -> str:
        """The screen, as soon as each pattern is found on it. Raises TimeoutError with the screen where one is not."""
        until = time.monotonic() + limit_s
        while True:
            seen = self.text()
            missing = [one for one in patterns if not re.search(one, seen)]
            if not missing:
                return seen
            if time.monotonic() > until:
                raise TimeoutError(f"never on the screen: {missing}\n{seen}")
            time.sleep(_STEP_S)

    def settle(self, limit_s: float = 4.0) -> str:
        """The screen when it stands still, or after a while when it never does."""
        until, before = time.monotonic() + limit_s, self.text()
        while time.monotonic() < until:
            time.sleep(4 * _STEP_S)
            if before == (before := self.text()):
                break
        return before

    def _tmux(self, *words: str, check: bool = True) -> str:
        command = [*self._server, *words]
        return subprocess.run(command, check=check, capture_output=True, text=True).stdout  # noqa: S603  # our own
