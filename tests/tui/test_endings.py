"""However it ends, the terminal is as it was: on a terminal of its own, as a person runs it."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LEAVES_SCREEN, SHOWS_CURSOR, FREES_MOUSE = b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l"
LIMIT_S = 40.0
BROKEN = """
import sys
from pathlib import Path
from gymtap.proxy.cli import program, tui
from gymtap.proxy.tui import app

class Broken(app.GymtapTui):
    def action_help(self):
        raise RuntimeError("nobody foresaw this")

app.GymtapTui = Broken
sys.exit(program.execute(["tui", sys.argv[1]]))
"""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


class Terminal:
    """A pty with a command on it, and all that was written to it."""

    def __init__(self, command: list[str], **environ: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm", **environ}
        )
        self.written = b""

    def read(self) -> None:
        ready, _, _ = select.select([self.master], [], [], 0.1)
        self.written += os.read(self.master, 1 << 16) if ready else b""

    def until(self, text: bytes) -> None:
        until = time.monotonic() + LIMIT_S
        while text not in self.written:
            assert time.monotonic() < until, f"{text!r} never came: {self.written[-2000:]!r}"
            self.read()

    def fill(self) -> None:
        """Leave no room for what the command writes, until it is read."""
        with open(os.ttyname(self.slave), "wb", buffering=0, opener=_without_waiting) as writes:
            while writes.write(b" " * 100):
                pass

    def ended(self) -> int:
        until = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < until, "it does not end"
            self.read()
        self.read()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for one in made:
        one.close()


def _is_whole(terminal: Terminal) -> None:
    for mode in (LEAVES_SCREEN, SHOWS_CURSOR, FREES_MOUSE):
        assert mode in terminal.written
    assert termios.tcgetattr(terminal.slave)[:4] == terminal.before[:4]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_leaves_the_terminal_whole(
    demo_capture: Path, terminals: list[Terminal], number: signal.Signals
) -> None:
    terminal = Terminal([sys.executable, "-m", "gymtap", "tui", str(demo_capture)])
    terminals.append(terminal)
    terminal.until(b"top causes")
    terminal.process.send_signal(number)
    assert terminal.ended() == 128 + number
    _is_whole(terminal)


def test_it_stands_back_for_the_shell_and_comes_again(demo_capture: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal([sys.executable, "-m", "gymtap", "tui", str(demo_capture)])
    terminals.append(terminal)
    terminal.until(b"top causes")
    os.write(terminal.master, b"\x1a")
    assert os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED) is not None
    terminal.until(LEAVES_SCREEN)
    _is_whole(terminal)
    terminal.written = b""
    terminal.process.send_signal(signal.SIGCONT)
    terminal.until(b"top causes")
    os.write(terminal.master, b"q")
    assert terminal.ended() == 0
    _is_whole(terminal)


def test_told_to_end_it_ends_though_nobody_reads_its_terminal(demo_capture: Path, terminals: list[Terminal]) -> None:
    """The escape sequences by which it leaves are written, too; a dead connection would keep the process for ever."""
    terminal = Terminal([sys.executable, "-m", "gymtap", "tui", str(demo_capture)])
    terminals.append(terminal)
    terminal.until(b"top causes")
    terminal.fill()
    os.write(terminal.master, b"l")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.process.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert termios.tcgetattr(terminal.slave)[:4] == terminal.before[:4]


def test_a_crash_is_one_line_on_a_whole_terminal(demo_capture: Path, terminals: list[Terminal]) -> None:
    """Never a traceback, but where one is asked for."""
    terminal = Terminal([sys.executable, "-c", BROKEN, str(demo_capture)])
    terminals.append(terminal)
    terminal.until(b"top causes")
    os.write(terminal.master, b"?")
    assert terminal.ended() == 1
    _is_whole(terminal)
    told = terminal.written.split(LEAVES_SCREEN)[-1]
    assert b"gymtap: RuntimeError: nobody foresaw this" in told
    assert b"Traceback" not in terminal.written


def test_it_leaves_by_its_key(demo_capture: Path, terminals: list[Terminal]) -> None:
    """Without colours and on a terminal that has few."""
    terminal = Terminal([sys.executable, "-m", "gymtap", "tui", str(demo_capture)], NO_COLOR="1", TERM="vt100")
    terminals.append(terminal)
    terminal.until(b"top causes")
    os.write(terminal.master, b"q")
    assert terminal.ended() == 0
    _is_whole(terminal)
