"""mitmproxy's local mode on Linux: what it takes, and whether its redirector still runs.

The redirector is a program that mitmproxy starts by sudo, also as root, and whose end it does not notice. It attaches
eBPF programs to the cgroup at /sys/fs/cgroup, which has to be of version 2 (mitmproxy-linux 0.12).
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from gymtap.proxy.core.errors import GymtapError

_CGROUP = "/sys/fs/cgroup"
REDIRECTOR = "mitmproxy-linux-redirector"[:15]  # as much of a name as the kernel keeps
_ANOTHER_WAY = "or use `gymtap run --proxy-env`, or `gymtap redirect` for loopback"


def check_local() -> None:
    """Raises GymtapError where local mode cannot work, with what is missing; elsewhere than on Linux it may."""
    if sys.platform != "linux":
        return
    if shutil.which("sudo") is None:
        raise GymtapError("local mode needs sudo, also as root", f"install sudo, {_ANOTHER_WAY}")
    if not _is_cgroup2(Path("/proc/self/mounts").read_text()):
        mount = f"mount -t cgroup2 none {_CGROUP} && gymtap up ..."
        raise GymtapError(
            f"local mode needs cgroups of version 2 at {_CGROUP}, and here is something else",
            f"as root: unshare --mount sh -c '{mount}', {_ANOTHER_WAY}",
        )


def _is_cgroup2(mounts: str) -> bool:
    """The last mount there is the one that is seen."""
    kinds = [kind for _, place, kind, *_ in (line.split() for line in mounts.splitlines()) if place == _CGROUP]
    return bool(kinds) and kinds[-1] == "cgroup2"


def redirector_runs() -> bool:
    """Whether the redirector is among the descendants of this process; True where that cannot be known."""
    if sys.platform != "linux":
        return True
    return any(name == REDIRECTOR and _descends(pid, os.getpid()) for pid, (name, _) in _processes())


def _processes() -> Iterator[tuple[int, tuple[str, int]]]:
    """Of each process its id, its name, and its parent's id."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found = re.match(r"\d+ \((.*)\) (\S) (\d+)", (folder / "stat").read_text())
        except OSError:  # it has ended meanwhile
            continue
        if found is not None and found[2] != "Z":
            yield int(folder.name), (found[1], int(found[3]))


def _descends(pid: int, ancestor: int) -> bool:
    parents = dict(_processes())
    while pid in parents and pid != ancestor:
        pid = parents[pid][1]
    return pid == ancestor
