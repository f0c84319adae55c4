"""The iptables rule that sends a range of loopback ports to the proxy, where the kernel has no table that is owned.

Standard library only: the guard process imports nothing else. What the proxy itself sends is told by its group, and
goes where it was meant to. IPv4 only: Gym 0.7's servers call each other at 127.0.0.1.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gymtap.proxy.listening import is_listening

TAG = "gymtap-redirect"
_TAGGED = re.compile(rf'-A OUTPUT .*--comment "?{TAG}:(\d+)"? .*--to-ports (\d+)')


class RuleError(Exception):
    """The kernel or iptables refused; `str` is one line."""


@dataclass(frozen=True)
class Redirection:
    """Connections over loopback to ports `low` to `high` go to `to_port`, unless a process of group `gid` makes them.

    `owner` is the process that stands behind `to_port`.
    """

    low: int
    high: int
    to_port: int
    gid: int
    owner: int

    def rule(self) -> list[str]:
        """The rule, without the command."""
        ports = f"{self.low}:{self.high}"
        return [
            *("OUTPUT", "-o", "lo", "-p", "tcp", "--dport", ports),
            *("-m", "owner", "!", "--gid-owner", str(self.gid)),
            *("-m", "comment", "--comment", f"{TAG}:{self.owner}"),
            *("-j", "REDIRECT", "--to-ports", str(self.to_port)),
        ]


def is_available() -> bool:
    """Whether iptables is installed."""
    return shutil.which("iptables") is not None


def add(redirection: Redirection) -> None:
    """Add the rule, once something listens. Raises RuleError."""
    if not is_listening(redirection.to_port):
        raise RuleError(f"nothing listens at port {redirection.to_port}, so no rule was made")
    _iptables("-A", *redirection.rule())


def remove(redirection: Redirection) -> None:
    """Remove the rule, as often as it is there. Raises RuleError where iptables cannot be run."""
    while _has(redirection):
        _iptables("-D", *redirection.rule())


def _has(redirection: Redirection) -> bool:
    return _run(["-C", *redirection.rule()]).returncode == 0


def remove_stale() -> list[str]:
    """Remove our rules behind which nothing listens any more; what they were. Raises RuleError."""
    removed = []
    for line in _iptables("-S", "OUTPUT").splitlines():
        found = _TAGGED.match(line)
        if found is not None and not (Path(f"/proc/{found[1]}").exists() and is_listening(int(found[2]))):
            _iptables("-D", *(part.strip('"') for part in line.split()[1:]))
            removed.append(line)
    return removed


def _iptables(*arguments: str) -> str:
    done = _run(arguments)
    if done.returncode:
        raise RuleError(f"iptables: {' '.join(done.stderr.split())}")
    return done.stdout


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """`-w`: others may hold its lock."""
    command = ["iptables", "-w", "-t", "nat", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    except OSError as error:
        raise RuleError(f"iptables cannot be run: {error.strerror}") from error
