"""The guard: a process of its own that adds the rule and takes it away when the tap is gone, however it went.

Its stdin is a pipe that the tap holds open. When the tap ends, also by SIGKILL, the pipe does, and the rule is removed;
it is removed too when nothing listens behind it any more. It ignores the signals that a terminal sends to everybody,
and says on stdout, in one line, that the rule stands, or why it does not.
"""

import json
import os
import select
import signal
import sys

from gymtap.proxy.listening import is_listening
from gymtap.proxy.mitm.rules import Redirection, RuleError, add, remove

LOOK_S = 0.5
READY = "redirected"


def main() -> int:
    """Guard the rule that the first argument describes; 0 when it was removed because the tap had ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    redirection = Redirection(**json.loads(sys.argv[1]))
    try:
        add(redirection)
    except RuleError as error:
        print(error, flush=True)  # noqa: T201 - it is read by the tap
        return 1
    try:
        print(READY, flush=True)  # noqa: T201 - the same
        return 0 if _outlive(redirection.to_port) else 1
    except OSError:  # nobody reads what it says: the tap is gone already
        return 0
    finally:
        remove(redirection)


def _outlive(port: int) -> bool:
    """Wait until the tap has ended (True), or nothing listens at `port` (False)."""
    while is_listening(port):
        if select.select([sys.stdin], [], [], LOOK_S)[0] and not os.read(sys.stdin.fileno(), 1):
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
