"""`gymtap run --tui`: the run goes on in a process of its own, and the terminal shows what is captured of it.

What the command writes goes to a log beside the capture, since the terminal is taken. Leaving the UI does not end the
run: it is then waited for, and Ctrl-C is passed on to it.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gymtap.proxy.cli.screen import note
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.store import captures_root, fresh, is_capture

_POLL_S = 0.05
_LOG_LINES = 15


def without_tui(arguments: Sequence[str]) -> list[str]:
    """A command line of `gymtap run` without `--tui`; what stands behind `--` is the wrapped command's own."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [argument for argument in arguments[:end] if argument != "--tui"] + list(arguments[end:])


def run_in_tui(arguments: Sequence[str], capture: Path | None) -> int:
    """Run `gymtap` with these arguments (they begin with `run`) under the UI; the run's exit status.

    Raises UsageError where there is no terminal.
    """
    if not sys.stdout.isatty():
        raise UsageError("the terminal UI needs a terminal", "leave --tui out, and use `gymtap tail` beside it")
    path = capture or fresh(captures_root(), time.time_ns())
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_name(f"{path.name}.log")
    own = without_tui(arguments)
    named = own if capture is not None else [own[0], "--capture", str(path), *own[1:]]
    with log.open("wb") as output:
        run = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "gymtap", *named],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    while run.poll() is None and not is_capture(path):
        time.sleep(_POLL_S)
    if is_capture(path):
        _show(path)
    else:
        note("\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:]))
    return _waited(run, log)


def _show(path: Path) -> None:
    from gymtap.proxy.tui.app import GymtapTui

    following: Path | None = path
    while following is not None:
        shown = GymtapTui(following)
        following = shown.run()
        if shown.crash is not None:
            note(f"the terminal UI ended: {' '.join(f'{type(shown.crash).__name__}: {shown.crash}'.split())}")


def _waited(run: "subprocess.Popen[bytes]", log: Path) -> int:
    if run.poll() is None:
        note("the run goes on; Ctrl-C ends it")
    while True:
        try:
            status = run.wait()
        except KeyboardInterrupt:
            run.send_signal(signal.SIGINT)
        else:
            note(f"what the run wrote is in {log}")
            return status
