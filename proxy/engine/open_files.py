"""Open files: as many as the system allows, and a word to a person where that is few, before and when it ends.

Every relayed exchange takes two descriptors. The limit is raised for the tap alone: what it starts gets the limit that
it would have had, because programs that close, or cannot select, thousands of descriptors depend on it.
"""

import asyncio
import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ENOUGH = 8_192
"""With fewer a person is told; some two thousand rollouts in flight need more."""
_PER_EXCHANGE = 2
_OWN = 40
"""What the tap needs besides: its capture, its listeners, its libraries."""
_LADDER = (2**20, 2**16, 2**15, 10_240, 4_096)
"""macOS says "unlimited" and then refuses what is over kern.maxfilesperproc; these are tried downwards."""
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})


def open_files_limit() -> int:
    """How many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files_limit() -> int:
    """Take as many as the system allows; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, *_LADDER):
        if _is_more(wanted, soft) and _allowed(wanted, hard):
            return wanted
    return soft


def _is_more(wanted: int, soft: int) -> bool:
    if soft == resource.RLIM_INFINITY:
        return False
    return wanted == resource.RLIM_INFINITY or wanted > soft


def _allowed(soft: int, hard: int) -> bool:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def with_open_files_limit(soft: int) -> Iterator[None]:
    """In the block, what is started gets `soft`; what is open already stays open."""
    own, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = _allowed(soft, hard)
    try:
        yield
    finally:
        if lowered:
            _allowed(own, hard)


def watch_open_files(say: Callable[[str], None]) -> None:
    """Say now where the limit is low, and once more, on the running loop, when a connection meets it.

    Listeners try again every second, so that connections wait; and asyncio would report each try with a traceback.
    """
    limit = open_files_limit()
    if limit != resource.RLIM_INFINITY and limit < ENOUGH:
        exchanges = max((limit - _OWN) // _PER_EXCHANGE, 0)
        say(
            f"gymtap: only {limit:,} files may be open, enough for some {exchanges:,} exchanges at once: "
            "before a larger run, raise `ulimit -Hn`"
        )
    asyncio.get_running_loop().set_exception_handler(_OutOfFiles(say))


class _OutOfFiles:
    """An exception handler of asyncio's that knows one error."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told = False

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in OUT_OF_FILES:
            loop.default_exception_handler(context)
        elif not self._told:
            self._told = True
            self._say(
                f"gymtap: all {open_files_limit():,} files that may be open are in use: connections wait until "
                "others end; start again with a higher `ulimit -n`"
            )
