"""Draws every view of the terminal UI into docs/images/tui, with an index.

`.venv/bin/python docs/make_screenshots.py [CAPTURE]`, or `make screenshots`. Without a capture it starts the real
NeMo Gym that fails (examples/failing_gym) and looks while two of its rows hang; the replay is sent to that Gym. A view
that a given capture cannot show is left out. Each view is drawn three times: in tmux at 80 by 24 (what it shows, with
its colours, and drawn as SVG) and at 200 by 50, and by textual itself as SVG. What names the machine ends the script.
"""

import asyncio
import getpass
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual.pilot import Pilot

from gymtap.proxy.tui.app import GymtapTui

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT / "tools"))
from tmux_screen import TmuxScreen  # noqa: E402  # a script beside this one

_IMAGES = Path(__file__).parent / "images" / "tui"
_SMALL, _WIDE = (80, 24), (200, 50)
_GYMTAP = str(Path(sys.executable).with_name("gymtap"))
_READ = "✗ [0-9,]+ failed"
_DIAGNOSED = r" (data_schema|config|verifier_runtime|model_serving|infra|throughput_resources) "
_LIMIT_S = 20.0


@dataclass(frozen=True)
class View:
    """`steps` from the overview: a key by tmux's name, `=text` to type, `~regex` to wait for."""

    name: str
    shows: str
    steps: tuple[str, ...] = field(default=())


def _view(name: str, shows: str, *steps: str) -> View:
    return View(name, shows, steps)


_ROWS = ("l", r"~([0-9,]+) of \1 rows")
_FIRST_FAILED = (*_ROWS, "n")
_ROOT_CAUSE = (*_ROWS, "f", "~filter, as in", "=~grammar", "Enter", "~rows +filter .*grammar", "R", "~400 Bad Request")
_GOOD_ANSWER = (*_ROWS, "Enter", "~└ *✓ provider|└─✓ provider", "G", "k", "Enter", "~200 OK", "~choices")
_STREAM = (*_ROWS, "f", "~filter, as in", "=agent:travel reward>0 failed=0", "Enter", "~rows +filter .*failed=0")
_STREAM += ("Enter", "~tool /describe_city", *"jjjjjjj", "Enter", "~200 OK")
_REFUSED = (*_ROWS, "f", "~filter, as in", "=boundary:verify ~required", "Enter", "~rows +filter .*required")
_REFUSED += ("R", "~contract.request")
_REPLAY = (*_ROOT_CAUSE, "r", "~as it was, to where it went")

VIEWS = (
    _view("overview", "the run, its top causes, failed rows by layer, what is in flight", f"~{_DIAGNOSED}"),
    _view("rows", "every row, failed ones with layer and message", *_ROWS, f"~{_DIAGNOSED}"),
    _view("filter", "a filter that is being written", *_ROWS, "f", "~filter, as in", "=layer:data_schema hops>5"),
    _view(
        "filtered", "the rows that pass it",
        *_ROWS, "f", "~filter, as in", "=layer:data_schema hops>5", "Enter", "~rows +filter .*hops>5",
    ),
    _view(
        "search", "a search through the bodies of all rows, with the exchanges that have it",
        *_ROWS, "/", "~search", "=uri-template", "Enter", "~: [0-9]+ rows?", "~⌕",
    ),
    _view("sort", "what rows can be sorted by", *_ROWS, "s", "~sort by"),
    _view("row", "a failed row: its calls as a waterfall, beside it the diagnosis",
          *_FIRST_FAILED, "Enter", "~symptom"),
    _view("row-retries", "a row whose provider was busy: attempts, and what they cost",
          *_ROWS, "f", "~filter, as in", "=reward>0 failed>3", "Enter", "~1 of [0-9]+ rows +filter",
          "Enter", "~symptom"),
    _view("row-running", "a row that hangs, while it does",
          *_ROWS, "f", "~filter, as in", "=is:running failed>3", "Enter", "~1 of [0-9]+ rows +filter",
          "Enter", "~symptom"),
    _view("why", "the diagnosis, to its innermost body", *_FIRST_FAILED, "D", "~symptom", "G", "~BadRequestError"),
    _view("exchange-response", "the provider's own error, as a tree", *_ROOT_CAUSE, "~BadRequestError"),
    _view("exchange-request", "what was sent, all of it opened", *_ROOT_CAUSE, "h", "~messages", "+", "~parameters"),
    _view("exchange-finding", "the verifier that refuses a row: the finding, and where it points",
          *_REFUSED),
    _view("exchange-chat", "a conversation: roles, tool calls, what tools said, reasoning",
          *_GOOD_ANSWER, "l", "~turn"),
    _view("exchange-headers", "headers as they crossed the wire", *_ROOT_CAUSE, *"ll", "~[Cc]ontent-[Tt]ype"),
    _view("exchange-timing", "timing, and by what the exchange was attributed", *_ROOT_CAUSE, *"lll", "~found by"),
    _view("exchange-raw", "the body as it came", *_GOOD_ANSWER, *"lllll", '~"choices":'),
    _view("exchange-hex", "the same in hex", *_ROOT_CAUSE, *"llllll", "~7b 22"),
    _view("in-flight", "what is open now, the oldest first", "i", "~exchanges? in flight"),
    _view("diff", "a row beside the one that is marked", *_ROWS, "m", "~\\*✓", "n", "=", r"~reward \S+ \|"),
    _view("copy", "the forms in which an exchange can be copied", *_ROOT_CAUSE, "y", "~OpenAI"),
    _view("palette", "every command, by name", *_FIRST_FAILED, ":", "~Search for commands", "=root", "~root cause"),
    _view("help", "the keys of a view, and the filter language", *_ROWS, "?", "~narrow"),
    _view("replay-form", "how a replay can be sent", *_REPLAY),
    _view("replay-options", "every option of a replay, and the command for it", *_REPLAY, "o", "~--from"),
    _view("validate", "what checks say of an exchange", *_REFUSED, "V", "~what checks say", "~contract.request"),
    _view("exchange-events", "a stream, event by event", *_STREAM, *"llll", r"~\[DONE\]"),
)  # fmt: skip
REPLAYS = (
    _view("replay-asked", "what a replay is about to call, and what that may change",
          *_REPLAY, "p", "~it may change something"),
    _view("replay-verdict", "the verdict, with the provider's recorded answers in its place",
          *_REPLAY, "p", "~it may change something", "s", "~REPRODUCED|FIXED|DIFFERENT|FLAKY"),
)  # fmt: skip
_PAPER, _INK = (18, 18, 18), (224, 224, 224)
_THEME = TerminalTheme(_PAPER, _INK, [_PAPER, *[_INK] * 7])
_LEFT = {"replay-asked": ("d", "~nothing was sent")}
"""How a view is left that asks something."""


# --- two ways to press keys ---------------------------------------------------------------------------------------


class Textual:
    """The app without a terminal, as `TmuxScreen` is with one."""

    def __init__(self, app: GymtapTui, pilot: "Pilot[None]") -> None:
        self._app, self._pilot = app, pilot

    async def step(self, step: str) -> None:
        """Take one step of a view."""
        if step.startswith("~"):
            await self._wait(step[1:])
        elif len(step) > 1 and step.startswith("="):
            for key in step[1:]:
                await self._pilot.press(key)
        else:
            await self._pilot.press({"Enter": "enter", "Escape": "escape"}.get(step, step))

    async def _wait(self, pattern: str) -> None:
        until = time.monotonic() + _LIMIT_S
        while not re.search(pattern, self.text()):
            if time.monotonic() > until:
                raise TimeoutError(pattern)
            await asyncio.sleep(0.05)

    def text(self) -> str:
        """What is on the screen."""
        strips = self._app.screen._compositor.render_strips()  # noqa: SLF001  # there is no public way to its text
        return "\n".join(strip.text for strip in strips)

    @property
    def depth(self) -> int:
        """How many views are open over the first."""
        return len(self._app.screen_stack) - 2


async def _svgs(capture: Path, views: tuple[View, ...], keep: Callable[[str, str], None]) -> None:
    app = GymtapTui(capture)
    async with app.run_test(size=_WIDE) as pilot:
        screen = Textual(app, pilot)
        await screen.step(f"~{_READ}")
        await screen.step(f"~{_DIAGNOSED}")
        for view in views:
            try:
                for step in view.steps:
                    await screen.step(step)
            except TimeoutError as pattern:
                _left_out(view, pattern)
            else:
                await pilot.pause(0.5)
                keep(f"{view.name}.svg", _local(app.export_screenshot(title=f"gymtap tui: {view.name}")))
                for step in _LEFT.get(view.name, ()):
                    await screen.step(step)
            while screen.depth:
                await pilot.press("escape")


def _terminal(capture: Path, size: tuple[int, int], views: tuple[View, ...], keep: Callable[[str, str], None]) -> None:
    place = f"{size[0]}x{size[1]}"
    with TmuxScreen([_GYMTAP, "tui", str(capture)], *size, os.environ) as screen:
        screen.wait(_READ, _DIAGNOSED, limit_s=_LIMIT_S)
        for view in views:
            try:
                _take(screen, view.steps)
            except TimeoutError as pattern:
                _left_out(view, pattern)
            else:
                screen.settle(1.5)
                coloured = screen.text(coloured=True)
                keep(f"{view.name}-{place}.ansi", coloured)
                if size == _SMALL:
                    keep(f"{view.name}-{place}.svg", _drawn(coloured, view.name))
                _take(screen, _LEFT.get(view.name, ()))
            _home(screen)


def _take(screen: TmuxScreen, steps: tuple[str, ...]) -> None:
    for step in steps:
        if step.startswith("~"):
            screen.wait(step[1:], limit_s=_LIMIT_S)
        elif len(step) > 1 and step.startswith("="):
            screen.write(step[1:])
        else:
            screen.press(step)


def _home(screen: TmuxScreen) -> None:
    """Back to the overview, from however deep."""
    until = time.monotonic() + _LIMIT_S
    while not ("top causes" in (seen := screen.settle(0.5)) and "All rows" in seen):
        if time.monotonic() > until:
            raise TimeoutError(f"no way back to the overview from\n{seen}")
        screen.press("Escape")


def _left_out(view: View, pattern: TimeoutError) -> None:
    print(f"{view.name} is left out: {pattern}", file=sys.stderr)


def _drawn(coloured: str, name: str) -> str:
    """A terminal's text with its colours, as SVG."""
    with Path(os.devnull).open("w") as nowhere:
        out = Console(file=nowhere, record=True, width=_SMALL[0], force_terminal=True, color_system="truecolor")
        for line in coloured.splitlines():
            out.print(Text.from_ansi(line), no_wrap=True, crop=True, highlight=False)
    return _local(
        out.export_svg(title=f"gymtap tui: {name}, 80 by 24 in tmux", unique_id=f"gymtap-{name}", theme=_THEME)
    )


def _local(svg: str) -> str:
    """Without the fonts of a server elsewhere: the reader's own will do."""
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace(
        "Fira Code", "ui-monospace, Menlo, Consolas"
    )


# --- all of them --------------------------------------------------------------------------------------------------


def _draw(capture: Path, views: tuple[View, ...], keep: Callable[[str, str], None]) -> None:
    for size in (_SMALL, _WIDE):
        (capture / "notes.json").unlink(missing_ok=True)
        _terminal(capture, size, views, keep)
    (capture / "notes.json").unlink(missing_ok=True)
    asyncio.run(_svgs(capture, views, keep))


@contextmanager
def _failing_gym() -> Iterator[tuple[Path, Callable[[], None]]]:
    """The real Gym that fails: its capture, and what ends its provider."""
    command = [sys.executable, str(_ROOT / "examples" / "failing_gym" / "run.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gym:  # noqa: S603  # ours
        assert gym.stdin is not None
        assert gym.stdout is not None
        path = gym.stdout.readline().strip()
        if not path:
            sys.exit("make_screenshots: Gym did not start: `make gym-env` installs it, or name a capture")

        def stop_provider() -> None:
            assert gym.stdin is not None
            assert gym.stdout is not None
            gym.stdin.write("stop provider\n")
            gym.stdin.flush()
            gym.stdout.readline()

        try:
            yield Path(path), stop_provider
        finally:
            gym.stdin.close()
            gym.wait()


def _index(names: set[str]) -> str:
    lines = ["# The terminal UI, view by view", ""]
    lines += [
        "Drawn by `make screenshots` from a real NeMo Gym 0.7.0 that fails (examples/failing_gym), while two of its"
    ]
    lines += ["rows hang. The `.ansi` files are what tmux showed, with its colours: `less -R` shows them.", ""]
    for view in (*VIEWS, *REPLAYS):
        pictures = [name for name in (f"{view.name}.svg", f"{view.name}-80x24.svg") if name in names]
        texts = [name for name in (f"{view.name}-80x24.ansi", f"{view.name}-200x50.ansi") if name in names]
        if pictures:
            lines += [f"## {view.name}", "", f"{view.shows[0].upper()}{view.shows[1:]}.", ""]
            lines += [f"![{name}]({name})\n" for name in pictures]
            lines += ["As text: " + ", ".join(f"[{name}]({name})" for name in texts), ""]
    return "\n".join(lines)


def _machine() -> list[str]:
    """What no picture may say."""
    names = [str(_ROOT), str(Path.home()), socket.gethostname()]
    return [name for name in (*names, f"{getpass.getuser()}@") if len(name) > 2]


def main() -> None:
    """Draw every view, then their index."""
    drawn: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="gymtap-") as home:
        os.environ["GYMTAP_HOME"] = home
        if len(sys.argv) > 1:
            _draw(Path(sys.argv[1]), VIEWS, drawn.__setitem__)
        else:
            with _failing_gym() as (capture, stop_provider):
                _draw(capture, VIEWS, drawn.__setitem__)
                stop_provider()
                _draw(capture, REPLAYS, drawn.__setitem__)
    told = [(name, word) for name, text in drawn.items() for word in _machine() if word in text]
    if told:
        sys.exit(f"make_screenshots: {told} would name this machine; nothing was written")
    _IMAGES.mkdir(parents=True, exist_ok=True)
    for old in _IMAGES.iterdir():
        old.unlink()
    for name, text in {**drawn, "README.md": _index(set(drawn))}.items():
        (_IMAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
