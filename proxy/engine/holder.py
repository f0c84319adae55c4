"""Who listens on a port of this machine, from Linux's /proc; elsewhere nobody is known.

An unprivileged process sees that a port is taken, and by whom only where it may look into that process.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_LISTEN = "0A"


@dataclass(frozen=True)
class Holder:
    """A process; `command` is its command in one line of at most 200 characters; `pid` None: it is another user's."""

    pid: int | None
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})" if self.pid is not None else "a process of another user"


def listeners(proc: Path = _PROC) -> dict[int, set[str]]:
    """TCP ports that are listened on here, each with its sockets, as the processes that have them open call them."""
    found: dict[int, set[str]] = {}
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                parts = line.split()
                if len(parts) > 9 and parts[3] == _LISTEN:  # columns of proc(5)
                    found.setdefault(int(parts[1].rpartition(":")[2], 16), set()).add(f"socket:[{parts[9]}]")
    return found


def holder_of(port: int, proc: Path = _PROC) -> Holder | None:
    """Who listens on the port; None where nobody does, or nothing can be known."""
    sockets = listeners(proc).get(port)
    if sockets is None:
        return None
    for process in proc.glob("[0-9]*"):
        if not sockets.isdisjoint(_open_files(process)):
            return Holder(int(process.name), _command(process))
    return Holder(None, "")


def _open_files(process: Path) -> Iterator[str]:
    """What the process has open. Files close while one looks, and other users' processes cannot be looked into."""
    with suppress(OSError):
        for entry in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(entry.readlink())


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
    except OSError:
        return "?"
    return " ".join(words)[:200] or "?"
