"""Who listens on a port of this machine, from Linux's /proc; elsewhere nobody is known."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_LISTEN = "0A"


@dataclass(frozen=True)
class Holder:
    """A process; `command` is its command line, at most 200 characters; `pid` None: it is another user's."""

    pid: int | None
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})" if self.pid is not None else "a process of another user"


def listeners(proc: Path = _PROC) -> dict[int, int]:
    """Ports that are listened on here, with the socket's inode."""
    found: dict[int, int] = {}
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                parts = line.split()
                if len(parts) > 9 and parts[3] == _LISTEN:  # columns of proc(5)
                    found[int(parts[1].rpartition(":")[2], 16)] = int(parts[9])
    return found


def holder_of(port: int, proc: Path = _PROC) -> Holder | None:
    """Who listens on the port; None where nobody does."""
    inode = listeners(proc).get(port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):
            if any(str(entry.readlink()) == wanted for entry in (folder / "fd").iterdir()):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                return Holder(int(folder.name), command[:200])
    return Holder(None, "")
