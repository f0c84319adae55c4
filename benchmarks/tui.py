"""Opens the terminal UI on a large capture and says how long it takes from a key to the paint that it causes.

`.venv/bin/python benchmarks/tui.py [EXCHANGES] [CAPTURE]`: makes the capture where it is not there (1,000,000
exchanges take 1.4 GB), then runs `gymtap tui` on a terminal of its own (a pty of 200 by 50), as a person would. A key
is painted when the UI has written to the terminal and then written nothing for a moment; that moment is not counted.
"""

import fcntl
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from tui_capture import make

_ROWS, _COLUMNS = 50, 200
_QUIET_S = 0.06
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")


class Terminal:
    """A pty with the UI on it."""

    def __init__(self, capture: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [str(Path(sys.executable).with_name("gymtap")), "tui", str(capture)]
        self.started = time.perf_counter()
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ, close_fds=True)
        os.close(slave)
        self.seen = b""

    def _read(self, wait_s: float) -> bytes:
        ready, _, _ = select.select([self._master], [], [], wait_s)
        data = os.read(self._master, 1 << 20) if ready else b""
        self.seen = (self.seen + data)[-400_000:]
        return data

    def until(self, pattern: str, limit_s: float = 180) -> float:
        """Seconds from the start until the text has been painted."""
        wanted = re.compile(pattern.encode())
        while time.perf_counter() - self.started < limit_s:
            self._read(0.05)
            if wanted.search(_ESCAPES.sub(b"", self.seen)):
                return time.perf_counter() - self.started
        raise TimeoutError(pattern)

    def last(self, pattern: str) -> str:
        """What was painted last of what a pattern matches."""
        return re.findall(pattern.encode(), _ESCAPES.sub(b"", self.seen))[-1].decode()

    def painted(self, keys: bytes, pattern: str, limit_s: float = 10) -> tuple[float, str]:
        """Milliseconds from a key until a text is painted that a pattern matches, and the text."""
        self.settle()
        self.seen = b""
        began = time.perf_counter()
        os.write(self._master, keys)
        while time.perf_counter() - began < limit_s:
            self._read(0.05)
            if found := re.search(pattern.encode(), _ESCAPES.sub(b"", self.seen)):
                return (time.perf_counter() - began) * 1e3, found[0].decode()
        raise TimeoutError(f"{pattern} was not painted for {keys!r}")

    def settle(self, quiet_s: float = _QUIET_S, limit_s: float = 3) -> None:
        """Read until nothing comes for a moment."""
        until = time.perf_counter() + limit_s
        while self._read(quiet_s) and time.perf_counter() < until:
            pass

    def key(self, keys: bytes) -> float:
        """Milliseconds from a key until the last byte of what it painted."""
        self.settle()
        began = last = time.perf_counter()
        os.write(self._master, keys)
        if not self._read(3):
            raise TimeoutError(f"nothing was painted for {keys!r}")
        last = time.perf_counter()
        while self._read(_QUIET_S) and last - began < 3:
            last = time.perf_counter()
        return (last - began) * 1e3

    def type(self, keys: bytes) -> None:
        """Keys whose time is not asked for."""
        os.write(self._master, keys)
        self.settle()

    def peak_mb(self) -> float:
        """The most memory that the process has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024

    def cpu_s(self) -> float:
        """The processor time that the process has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _report(name: str, taken_ms: list[float]) -> None:
    ordered = sorted(taken_ms)
    p95 = ordered[int(len(ordered) * 0.95)]
    print(f"{name:34} p50 {statistics.median(ordered):6.1f} ms   p95 {p95:6.1f} ms   ({len(ordered)} keys)", flush=True)


def measure(capture: Path) -> None:
    """Open, move, filter, open a row; print each."""
    ui = Terminal(capture)
    print(f"{'open, first rows counted':34} {ui.until(r'[1-9][0-9,]* failed'):6.2f} s", flush=True)
    ui.type(b"l")
    _report("j, while rows are read", [ui.key(b"j") for _ in range(20)])
    print(f"{'all rows read':34} {ui.until(r'of [0-9,]+ rows.*[0-9]+ to diagnose|rows ·'):6.2f} s", flush=True)
    _report("j, while rows are diagnosed", [ui.key(b"j") for _ in range(20)])
    time.sleep(15)
    _report("j", [ui.key(b"j") for _ in range(100)])
    _report("ctrl-d, ctrl-u", [ui.key(key) for key in (b"\x04", b"\x15") * 20])
    _report("G, g", [ui.key(key) for key in (b"G", b"g") * 20])
    for text in ("status:5xx", "layer:model_serving dur>20ms", "task:4242", "~grammar"):
        ui.type(b"f")
        ui.type(b"\x15" + text.encode())
        taken_ms, shown = ui.painted(b"\r", f"[0-9,]+ of [0-9,]+ rows +filter {re.escape(text)}")
        print(f"{'filter ' + text:34} {taken_ms:6.0f} ms   {shown.partition(' rows')[0]} rows", flush=True)
    print(f"{'open a row':34} {ui.key(b'\r'):6.0f} ms", flush=True)
    print(f"{'peak memory':34} {ui.peak_mb():6.0f} MB", flush=True)
    ui.process.terminate()
    ui.process.wait(10)


def main() -> None:
    """The command line."""
    exchanges = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    capture = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / f"gymtap-{exchanges}"
    if not capture.exists():
        print(f"made a capture of {make(capture, exchanges):,} exchanges", flush=True)
    measure(capture)


if __name__ == "__main__":
    main()
