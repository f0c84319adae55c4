"""A pid is believed only where it can be seen, and only with the start time that goes with it."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from gymtap.proxy.store import CaptureWriter
from gymtap.proxy.store.liveness import HEARTBEAT_NS, SILENCE_NS, is_alive, this_process


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


def test_a_writer_whose_clock_is_set_back_goes_on_saying_that_it_is_there(tmp_path: Path) -> None:
    """Readers elsewhere would take it for dead, until the clock has caught up."""
    now_ns = [10**18]
    writer = CaptureWriter.create(tmp_path / "capture", now_ns=lambda: now_ns[0])
    writer.commit()
    now_ns[0] -= 3600 * 10**9
    writer.commit()
    with closing(sqlite3.connect(writer.file)) as file:
        (said,) = file.execute("SELECT value FROM meta WHERE key = 'heartbeat_ns'").fetchone()
    writer.close()
    assert abs(int(said) - now_ns[0]) < HEARTBEAT_NS
