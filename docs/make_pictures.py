"""Draws docs/images/*.svg: what the demo's commands print, as they print it.

The demo is played one row at a time and its capture copied with times that are computed, so that a picture
changes only when what it shows does. Run `.venv/bin/python docs/make_pictures.py`.
"""

import asyncio
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from gymtap.proxy.cli.demo import ROW
from gymtap.proxy.cli.rows import show_rows
from gymtap.proxy.cli.show import show_exchange
from gymtap.proxy.cli.tree import see, show_tree
from gymtap.proxy.demo.play import COMMAND, play
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import Call, Exchange

_IMAGES = Path(__file__).parent / "images"
_COLUMNS = 104
_START_NS = 1_796_000_000_000_000_000
_OWN_MS = {Call.PROVIDER: 212.0, Call.TOOL: 3.1, Call.VERIFY: 5.2, Call.SEED_SESSION: 2.4}
_OVERHEAD_MS = 2.7
_RED, _GREEN, _YELLOW = (240, 113, 120), (128, 200, 140), (230, 190, 110)
_BLUE, _MAGENTA, _CYAN = (120, 170, 240), (190, 150, 230), (110, 200, 210)
_PAPER, _INK = (16, 20, 24), (208, 212, 218)
_THEME = TerminalTheme(_PAPER, _INK, [_PAPER, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _INK])
_SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def main() -> None:
    """Play, settle, draw."""
    with tempfile.TemporaryDirectory() as folder:
        played = Capture(asyncio.run(play(Path(folder) / "played", concurrency=1)))
        capture = _settled(played, Path(folder) / "settled")
        failure = see(capture, ROW).deepest_failure or ""
        failing = capture.exchange(failure)
        pictures: dict[str, Callable[[Console], None]] = {
            "gymtap rows": lambda out: show_rows(out, capture, list(capture.rows())),
            f"gymtap tree {ROW}": lambda out: show_tree(out, see(capture, ROW)),
            f"gymtap show {failure}": lambda out: show_exchange(out, capture, failing),
        }
        for command, show in pictures.items():
            _draw(command.split()[1], command, show)
        response = f"gymtap show {failure} --response"
        parts = [
            *list(pictures.items())[:2],
            (response, lambda out: show_exchange(out, capture, failing, ["response"])),
        ]
        _draw("demo", "gymtap demo", lambda out: _told(out, parts))


def _told(out: Console, parts: list[tuple[str, Callable[[Console], None]]]) -> None:
    """Commands, each with what it prints."""
    for number, (command, show) in enumerate(parts):
        out.print(("\n" if number else "") + f"$ {command}", style="bold")
        show(out)


def _draw(name: str, title: str, show: Callable[[Console], None]) -> None:
    with Path(os.devnull).open("w") as nowhere:
        out = Console(
            file=nowhere, record=True, width=_COLUMNS, force_terminal=True, color_system="truecolor", highlight=False
        )
        show(out)
    _IMAGES.mkdir(exist_ok=True)
    out.save_svg(str(_IMAGES / f"{name}.svg"), title=title, theme=_THEME, code_format=_SVG, unique_id=f"gymtap-{name}")


def _settled(played: Capture, directory: Path) -> Capture:
    """A copy in which every exchange took a computed time, and each row began where the last one ended."""
    exchanges = list(played.exchanges())
    writer = CaptureWriter.create(directory, command=COMMAND, now_ns=lambda: _START_NS)
    for server in played.servers():
        writer.listening(server)
    for exchange in _timed(exchanges):
        writer.add(
            exchange,
            played.body(exchange.request.body),
            played.body(exchange.response.body if exchange.response else None),
        )
    writer.close()
    return Capture(directory)


def _timed(exchanges: list[Exchange]) -> Iterator[Exchange]:
    callees: dict[str | None, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        callees[exchange.parent].append(exchange)

    def place(exchange: Exchange, start_ms: float) -> Iterator[Exchange]:
        """The exchange and all that it caused, one after the other; the exchange itself comes last."""
        end_ms = start_ms + _OWN_MS.get(exchange.call, _OVERHEAD_MS)
        for callee in callees[exchange.id]:
            for placed in place(callee, end_ms):
                yield placed
            end_ms += (placed.duration_ms or 0) + _OVERHEAD_MS
        yield _moved(exchange, start_ms, end_ms)

    now_ms = 0.0
    for root in callees[None]:
        *beneath, placed = place(root, now_ms)
        yield from (placed, *beneath)
        now_ms += placed.duration_ms or 0


def _moved(exchange: Exchange, start_ms: float, end_ms: float) -> Exchange:
    took_ms = end_ms - start_ms
    ended = exchange.response and exchange.response.model_copy(update={"first_byte_ms": took_ms, "ended_ms": took_ms})
    return exchange.model_copy(
        update={"started_ns": _START_NS + int(start_ms * 1e6), "duration_ms": took_ms, "response": ended}
    )


if __name__ == "__main__":
    main()
