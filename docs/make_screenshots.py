# ruff: noqa: INP001 - a script, not a package
"""Draws the terminal UI's views: as SVG at 200 by 50, and as the text that tmux shows at 80 by 24 and 200 by 50.

`.venv/bin/python docs/make_screenshots.py [CAPTURE]`, or `make screenshots`. Without a capture it plays the demo. The
text needs tmux, and is left out where there is none. Everything goes to docs/images/tui.
"""

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymtap.proxy.demo.play import play
from gymtap.proxy.tui.app import GymtapTui

_IMAGES = Path(__file__).parent / "images" / "tui"
_WIDE, _SMALL = (200, 50), (80, 24)
_LIMIT_S = 20
_VIEWS = {
    "overview": ("", "top causes"),
    "rows": ("l", "of 20 rows"),
    "row": ("l n enter", "root"),
    "exchange": ("l n R", "error"),
    "exchange-request": ("l n R h", "messages"),
    "exchange-chat": ("l n R l", "turn"),
    "exchange-timing": ("l n R l l l", "found by"),
    "in-flight": ("i", "in flight"),
    "filter": ("l f", "filter:"),
    "help": ("l n enter question_mark", "type to narrow"),
    "copy": ("l n R y", "curl"),
}
"""The keys that lead to a view from the first one, and a word that is seen there."""
_TMUX_KEYS = {"enter": "Enter", "question_mark": "?", "escape": "Escape"}


async def _svg(capture: Path, name: str, keys: str) -> str:
    app = GymtapTui(capture)
    async with app.run_test(size=_WIDE) as pilot:
        await _until(lambda: app.rows.complete and not app.feed.undiagnosed and any(app.rows.diagnoses))
        await pilot.pause(1)
        for key in keys.split():
            await pilot.press(key)
            await pilot.pause(0.6)
        return app.export_screenshot(title=f"gymtap tui: {name}")


async def _until(happened: Callable[[], Any]) -> None:
    until = time.monotonic() + _LIMIT_S
    while not happened() and time.monotonic() < until:  # noqa: ASYNC110  # threads bring it
        await asyncio.sleep(0.05)


def _tmux(capture: Path, size: tuple[int, int], keys: str, word: str) -> str:
    """What a terminal of that size shows after those keys."""
    server = ["tmux", "-L", "gymtap-screenshots"]
    command = shlex.join([str(Path(sys.executable).with_name("gymtap")), "tui", str(capture)])
    place = ["-x", str(size[0]), "-y", str(size[1])]
    subprocess.run([*server, "new-session", "-d", "-s", "tui", *place, command], check=True)  # noqa: S603  # our own
    try:
        _seen(server, "✗ [0-9]+ failed|data_schema")
        for key in keys.split():
            subprocess.run([*server, "send-keys", "-t", "tui", _TMUX_KEYS.get(key, key)], check=True)  # noqa: S603
            time.sleep(0.8)
        return _seen(server, word)
    finally:
        subprocess.run([*server, "kill-session", "-t", "tui"], check=False)  # noqa: S603


def _seen(server: list[str], word: str) -> str:
    until = time.monotonic() + _LIMIT_S
    while True:
        pane = subprocess.run([*server, "capture-pane", "-p", "-t", "tui"], check=True, capture_output=True)  # noqa: S603
        text = pane.stdout.decode()
        if re.search(word, text) or time.monotonic() > until:
            time.sleep(0.5)
            return text
        time.sleep(0.2)


def main() -> None:
    """Draw every view."""
    _IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        capture = Path(sys.argv[1]) if len(sys.argv) > 1 else asyncio.run(play(Path(directory) / "demo"))
        for name, (keys, word) in _VIEWS.items():
            (_IMAGES / f"{name}.svg").write_text(asyncio.run(_svg(capture, name, keys)), encoding="utf-8")
            for size in (_SMALL, _WIDE) if shutil.which("tmux") else ():
                text = _tmux(capture, size, keys, word)
                (_IMAGES / f"{name}-{size[0]}x{size[1]}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
