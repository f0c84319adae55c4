"""The wrapped command gets its signals, and its exit status is ours."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gymtap.proxy.wiring.child import Child, CommandNotExecutableError, CommandNotFoundError

_WRAPPER = """
import asyncio, sys
from gymtap.proxy.wiring.child import Child
async def main():
    return await (await Child.start(sys.argv[1:], {})).wait()
sys.exit(asyncio.run(main()))
"""
_CATCHER = """
import signal, sys
def caught(number, frame):
    print("caught", number, flush=True)
    sys.exit(7)
for number in (signal.SIGINT, signal.SIGTERM):
    assert signal.getsignal(number) is not signal.SIG_IGN, number
    signal.signal(number, caught)
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize(("code", "status"), [("import sys; sys.exit(3)", 3), ("pass", 0)])
async def test_exit_status_is_the_commands(code: str, status: int) -> None:
    """What the command exits with is what is returned."""
    assert await (await Child.start([sys.executable, "-c", code], {})).wait() == status


async def test_death_by_a_signal_is_reported_as_a_shell_does() -> None:
    """128 and the signal's number."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert await (await Child.start([sys.executable, "-c", code], {})).wait() == 137


async def test_variables_are_added_to_the_environment() -> None:
    """The rest of the environment stays."""
    code = "import os, sys; sys.exit(0 if os.environ['ADDED'] == 'x' and os.environ['PATH'] else 1)"
    assert await (await Child.start([sys.executable, "-c", code], {"ADDED": "x"})).wait() == 0


async def test_a_command_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """127, as a shell has it; 126 for one that may not be run."""
    with pytest.raises(CommandNotFoundError, match="command not found: no-such-command") as missing:
        await Child.start(["no-such-command"], {})
    with pytest.raises(CommandNotExecutableError, match="cannot run") as refused:
        await Child.start([str(tmp_path)], {})
    assert (missing.value.exit_code, refused.value.exit_code) == (127, 126)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on_also_from_the_background(number: signal.Signals) -> None:
    """A shell starts background jobs with SIGINT ignored; the command must be able to receive it all the same."""
    command = [sys.executable, "-c", _WRAPPER, sys.executable, "-u", "-c", _CATCHER]
    background = ["bash", "-c", 'trap "" INT; exec "$@"', "bash", *command]
    with subprocess.Popen(background, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == f"caught {int(number)}\n"
        assert process.wait(timeout=30) == 7


async def test_a_signal_after_the_end_is_harmless() -> None:
    """Nobody else's process gets it, and the status stays."""
    child = await Child.start([sys.executable, "-c", "pass"], {})
    assert await child.wait() == 0
    child.send(signal.SIGTERM)
    assert await child.wait() == 0


_COUNTER = """
import signal, sys
count = 0
def caught(number, frame):
    global count
    count += 1
    print("caught", count, flush=True)
signal.signal(signal.SIGINT, caught)
print("ready", flush=True)
sys.stdin.readline()
print("total", count, flush=True)
"""


def test_a_terminals_interrupt_arrives_once() -> None:
    """Ctrl-C goes to the whole foreground group, the command included: the tap must not send it again."""
    terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])"]
    command = [*terminal, sys.executable, "-c", _WRAPPER, sys.executable, "-u", "-c", _COUNTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        shown = iter(process.stdout.readline, b"")
        assert any(b"ready" in line for line in shown)
        process.stdin.write(b"\x03")
        assert any(b"caught 1" in line for line in shown)
        process.stdin.write(b"q\n")
        assert next(line for line in shown if b"total" in line).split() == [b"total", b"1"]
        process.stdin.close()
        process.stdout.close()
