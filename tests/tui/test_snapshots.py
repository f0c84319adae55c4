"""What the four main views look like, letter by letter.

`GYMTAP_SNAPSHOTS=write pytest tests/tui/test_snapshots.py` draws them anew, and `git diff` shows what has changed. They
are text, so that a change is read where it is reviewed. pytest-textual-snapshot would draw SVGs, but it has not been
released since January 2025 and holds pytest back at version 8.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import Call, RowKey

type Make = Callable[..., Any]
type Open = Any
"""See `opened` in conftest.py."""

SNAPSHOTS = Path(__file__).with_name("snapshots")
SETTLED_S = 2.0
KEYS = {
    "overview": [],
    "rows": ["l"],
    "row": ["l", "n", "enter"],
    "exchange": ["l", "n", "R"],
}
READY = {"overview": "failed rows by layer", "rows": "data_schema", "row": "◀ root", "exchange": "Invalid JSON schema"}
ERROR = {"error": {"message": "Invalid JSON schema for tool 'get_weather'", "type": "BadRequestError", "code": 400}}


def _nested(text: bytes) -> bytes:
    told = f"Hit an exception in SimpleAgent___agent calling an inner server: {text!r}"
    return orjson.dumps(told)


@pytest.fixture
def fixed(tmp_path: Path, exchange: Make, attributed: Make) -> Path:
    """A run of twelve rows at known times: one that the provider refused, one whose tool was not there."""
    writer = CaptureWriter.create(tmp_path / "a-run")
    for number in range(12):
        key = RowKey(task=number, rollout=0, agent="weather_agent")
        said = {"attribution": attributed(row=key)}
        first, status = number * 10 + 1, 500 if number in {3, 8} else 200
        request = orjson.dumps({"responses_create_params": {"input": f"Weather in city {number}?"}})
        inner = orjson.dumps(ERROR) if number == 3 else b'{"detail": "no such tool"}'
        answer = b'{"reward": 1.0}' if status == 200 else _nested(_nested(inner))
        at_ms = number * 700.0
        writer.add(exchange(first, Call.RUN, status=status, at_ms=at_ms, duration_ms=900.0, **said), request, answer)
        if number == 8:
            writer.add(exchange(first + 1, Call.TOOL, first, 404, at_ms=at_ms + 50, **said), b"{}", inner)
            continue
        model = exchange(first + 1, Call.MODEL, first, status, at_ms=at_ms + 100, duration_ms=500.0, **said)
        writer.add(model, request, _nested(inner) if status == 500 else b'{"output": []}')
        status = 400 if number == 3 else 200
        provider = exchange(first + 2, Call.PROVIDER, first + 1, status, at_ms=at_ms + 200, duration_ms=300.0, **said)
        messages = {"model": "m", "messages": [{"role": "user", "content": f"Weather in city {number}?"}]}
        writer.add(provider, orjson.dumps(messages), inner if status == 400 else b'{"choices": []}')
    writer.close()
    return tmp_path / "a-run"


def _plain(text: str) -> str:
    """The screen, without what the rules of diagnosis say in words of their own, which are looked at elsewhere.

    How long those are moves what is beneath, so that several empty lines are one.
    """
    kept: list[str] = []
    pane = ""
    for line in text.splitlines():
        pane = line.strip("─") if line.startswith("─") else "" if line.startswith(" Request ") else pane
        pane = "finding" if line.startswith(" ✗ data.grammar") else "" if line.startswith("⏎") else pane
        shown = line[: 31 if pane == "top causes" else None].rstrip()
        if pane == "finding":
            shown = shown[:16].rstrip() if shown.startswith(" ✗") else ""
        if pane == "diagnosis" and not line.startswith(("─", " symptom", " layer")):
            shown = ""
        if shown or kept[-1:] != [""]:
            kept.append(shown)
    return "\n".join(kept).rstrip() + "\n"


async def _look(desk: Any, view: str) -> None:
    for key in KEYS[view]:
        await desk.press(key)
    await desk.shows(READY[view])


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("view", KEYS)
async def test_a_view_looks_as_it_did(opened: Open, fixed: Path, view: str, size: tuple[int, int]) -> None:
    file = SNAPSHOTS / f"{view}-{size[0]}x{size[1]}.txt"
    async with opened(fixed, size) as desk:
        await _look(desk, view)
        if os.environ.get("GYMTAP_SNAPSHOTS") == "write":
            await asyncio.sleep(SETTLED_S)
            file.write_text(_plain(desk.text), encoding="utf-8")
        expected = file.read_text(encoding="utf-8")
        await desk.until(lambda: _plain(desk.text) == expected)


@pytest.mark.parametrize("view", KEYS)
async def test_without_colours_nothing_is_lost_but_colour(
    opened: Open, fixed: Path, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NO_COLOR every view has the same letters, and no cell has a colour but grey."""
    monkeypatch.setenv("NO_COLOR", "1")
    expected = (SNAPSHOTS / f"{view}-80x24.txt").read_text(encoding="utf-8")
    async with opened(fixed, (80, 24)) as desk:
        await _look(desk, view)
        await desk.until(lambda: _plain(desk.text) == expected)
        for drawn in desk.app.screen._compositor.render_strips():
            strip = drawn
            for one in desk.app.get_line_filters():
                strip = strip.apply_filter(one, desk.app.styles.background)
            for segment in strip:
                for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                    red, green, blue = colour.get_truecolor() if colour else (0, 0, 0)
                    assert red == green == blue, segment
