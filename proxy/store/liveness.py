"""Whether the process that writes a capture still runs.

A pid alone is not enough, since pids are reused: the process's start time is compared too. From another
host or container the pid means nothing, and the age of the writer's heartbeat decides.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

HEARTBEAT_NS = 2_000_000_000
"""A writer says at least this often that it is there."""

SILENCE_NS = 30_000_000_000
"""A writer out of sight that has said nothing for so long is taken for dead."""


@dataclass(frozen=True)
class Process:
    """A process; `place` is the host, boot and pid namespace in which `pid` means something."""

    place: str
    pid: int
    started: str


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _place() -> str:
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return "|".join((socket.gethostname(), _read("/proc/sys/kernel/random/boot_id"), namespace))


def _started(pid: int) -> str:
    """Clock ticks from boot to the process's start: field 22 of /proc/PID/stat (proc(5)); "" where there is none."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return ""
    return fields[19]


def this_process() -> Process:
    """The process that asks."""
    return Process(_place(), os.getpid(), _started(os.getpid()))


def is_alive(process: Process, heartbeat_age_ns: int) -> bool:
    """Whether it runs: by its pid where that can be seen, else by the age of its last heartbeat."""
    if process.place != _place() or not process.started:
        return heartbeat_age_ns < SILENCE_NS
    return _started(process.pid) == process.started
