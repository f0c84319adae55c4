"""`gymtap playback` as people run it: a process that stands there until it is interrupted."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

from gymtap.proxy.demo.dataset import rows
from gymtap.proxy.store import Capture
from gymtap.schemas import Call


@contextmanager
def playback(gym, *arguments):
    """The running command and the URL that it says."""
    command = [sys.executable, "-m", "gymtap", "playback", str(gym.capture), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        try:
            line = process.stderr.readline()
            yield process, re.search(r"http://\S+", line)[0]
        finally:
            process.kill()


def test_a_whole_run_is_answered_and_told_at_the_end(gym):
    with playback(gym, "--listen", gym.stub, "--json") as (process, url):
        assert url == f"http://{gym.stub}"
        gym.with_provider(there=False)
        answers = gym.call(gym.miniature.collect(rows(), 4))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert sum(answer.status == 200 for answer in answers) == 12
    tally = json.loads(out)
    assert (tally["missed"], tally["unasked"], process.returncode) == (0, 0, 0)
    recorded = Capture(gym.capture).exchanges(call=Call.PROVIDER)
    assert tally["answered"] == sum(1 for _ in recorded)


def test_what_was_not_recorded_is_told_and_makes_the_exit_status(gym):
    other = json.loads(json.dumps(rows()[:1]).replace("Oslo", "Bern"))
    with playback(gym, "--listen", gym.stub) as (process, _):
        gym.with_provider(there=False)
        gym.call(gym.miniature.collect(other, 1))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "1 not recorded" in err
    assert 'first difference at /messages/1/content: "What is the weather like in ' in err


def test_where_the_provider_still_stands_any_free_port_is_taken_and_said(gym):
    with playback(gym) as (process, url):
        assert url not in gym.miniature.private.values()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert "recorded answers nobody asked for" in err
    assert process.returncode == 0


def test_a_capture_without_such_calls_is_refused(gym, gymtap):
    assert gymtap("playback", str(gym.capture), "--stub", "judge").code == 1
    assert gymtap("playback", str(gym.capture), "--stub", "nobody").code == 2
    assert gymtap("playback", str(gym.capture), "--miss", "pass").code == 2
