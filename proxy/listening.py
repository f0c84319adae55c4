"""What listens on this machine, and whose it is, as Linux says in /proc; elsewhere nothing is known.

Standard library only, and no package of ours loads with it: the guard of a redirection is a process of its own. An
unprivileged process sees that a port is taken, and by whom only where it may look into that process.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_TABLE, _TABLE6 = "tcp", "tcp6"
_LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp (Linux, include/net/tcp_states.h)
_MAPPED = "0000000000000000FFFF0000"  # ::ffff:0.0.0.0/96, which is IPv4, as four numbers in the machine's own order


class _Socket(NamedTuple):
    """A listening socket: its address as the table writes it, its port, and what its process's files call it."""

    address: str
    port: int
    name: str


@dataclass(frozen=True)
class Holder:
    """A process; `command` is its command in one line of at most 200 characters; `pid` None: it is another user's."""

    pid: int | None
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})" if self.pid is not None else "a process of another user"


def is_listening(port: int) -> bool:
    """Whether a socket listens at that TCP port."""
    return port in listeners()


def listening6(low: int, high: int) -> set[int]:
    """The ports from `low` to `high` at which something listens over IPv6."""
    found = _listening(_PROC, _TABLE6)
    return {one.port for one in found if low <= one.port <= high and not one.address.startswith(_MAPPED)}


def listeners(proc: Path = _PROC) -> dict[int, set[str]]:
    """TCP ports that are listened on here, each with its sockets, as the processes that have them open call them."""
    found: dict[int, set[str]] = {}
    for table in (_TABLE, _TABLE6):
        for one in _listening(proc, table):
            found.setdefault(one.port, set()).add(one.name)
    return found


def holder_of(port: int, proc: Path = _PROC) -> Holder | None:
    """Who listens on the port; None where nobody does, or nothing can be known."""
    sockets = listeners(proc).get(port)
    if sockets is None:
        return None
    for process in proc.glob("[0-9]*"):
        if not sockets.isdisjoint(open_files(process)):
            return Holder(int(process.name), _command(process))
    return Holder(None, "")


def _listening(proc: Path, table: str) -> Iterator[_Socket]:
    """What listens, by a table of proc(5); nothing where the kernel has no such table."""
    with suppress(OSError):
        for line in (proc / "net" / table).read_text().splitlines()[1:]:
            parts = line.split()
            if len(parts) > 9 and parts[3] == _LISTENING:
                address, _, port = parts[1].rpartition(":")
                yield _Socket(address, int(port, 16), f"socket:[{parts[9]}]")


def open_files(process: Path) -> Iterator[str]:
    """What a process, by its folder in /proc, has open. Files close meanwhile; into other users' nobody can look."""
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
