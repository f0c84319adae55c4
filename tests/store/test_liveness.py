"""A pid is believed only where it can be seen, and only with the start time that goes with it."""

import subprocess
import sys
from dataclasses import replace

from gymtap.proxy.store.liveness import SILENCE_NS, is_alive, this_process


def test_this_process_is_alive_however_long_it_was_silent() -> None:
    assert is_alive(this_process(), 10 * SILENCE_NS)


def test_a_reused_pid_is_not_the_writer() -> None:
    assert not is_alive(replace(this_process(), started="1"), 0)


def test_an_ended_process_is_dead_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    assert not is_alive(replace(this_process(), pid=process.pid), 0)


def test_from_elsewhere_the_heartbeat_decides() -> None:
    elsewhere = replace(this_process(), place="another host", pid=1)
    assert is_alive(elsewhere, SILENCE_NS - 1)
    assert not is_alive(elsewhere, SILENCE_NS)
