"""The app on a capture, without a terminal; and waiting for what happens beside the screen."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from gymtap.proxy.cli.program import execute
from gymtap.proxy.store import CaptureWriter
from gymtap.proxy.tui.app import GymtapTui
from gymtap.proxy.tui.choice import Choice
from gymtap.proxy.tui.prompt import Prompt
from gymtap.schemas import Call, Gap, GapKind

type Make = Callable[..., Any]
type Open = Callable[..., AbstractAsyncContextManager["Desk"]]

_LIMIT_S = 20.0
_STEP_S = 0.05


class Desk:
    """A running app, its keys, and what is on its screen."""

    def __init__(self, app: GymtapTui, pilot: "Pilot[None]") -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys, each when what the one before caused is done; the pilot's own waits for an idle machine."""
        for key in keys:
            self.app.post_message(events.Key(key, key if len(key) == 1 else None))
            await self.pilot._wait_for_screen(_LIMIT_S)
            await asyncio.sleep(0)
            await self.pilot._wait_for_screen(_LIMIT_S)

    async def enter(self, text: str) -> None:
        """Write a line where one is asked for."""
        await self.until(lambda: isinstance(self.app.screen, Prompt) and self.app.screen.query("#text"))
        self.app.screen.query_one("#text", Input).value = text
        await self.press("enter")

    async def choose(self, key: str) -> None:
        """Choose one of a few things, where that is asked for."""
        await self.until(lambda: isinstance(self.app.screen, Choice) and self.app.screen.is_mounted)
        await self.press(key)

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait for something that a thread or a worker brings; fails with the screen where it never comes."""
        until = time.monotonic() + _LIMIT_S
        while time.monotonic() < until:
            if happened():
                return
            await asyncio.sleep(_STEP_S)
        pytest.fail(f"it never happened; on the screen:\n{self.text}")

    async def shows(self, *texts: str) -> None:
        """Wait until the screen has all these texts."""
        await self.until(lambda: all(text in self.text for text in texts))

    @property
    def text(self) -> str:
        """All that is on the screen, line by line."""
        height = self.app.size.height
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in strips[:height])


@asynccontextmanager
async def _open(path: Path, size: tuple[int, int] = (120, 40), *, read: bool = True) -> AsyncIterator[Desk]:
    app = GymtapTui(path)
    async with app.run_test(size=size, notifications=True) as pilot:
        desk = Desk(app, pilot)
        if read:
            await desk.until(lambda: app.rows.complete and not app.feed._wanted())
        yield desk


@pytest.fixture
def opened() -> Open:
    """`async with opened(path, size) as desk`: the app with all rows read, and diagnosed."""
    return _open


@pytest.fixture
def exports(tmp_path: Path) -> Callable[..., Awaitable[bytes]]:
    """`await exports(CAPTURE, "-f", "har", …)`: what `gymtap export` writes."""

    async def call(*arguments: str) -> bytes:
        file = tmp_path / "by-command"
        assert await asyncio.to_thread(execute, ["export", *arguments, "-o", str(file)]) == 0
        return await asyncio.to_thread(file.read_bytes)

    return call


@pytest.fixture
def own_capture(demo_capture: Path, tmp_path: Path) -> Path:
    """A capture of the demo that a test may put notes to."""
    return Path(shutil.copytree(demo_capture, tmp_path / "own"))


@pytest.fixture
def live_writer(
    tmp_path: Path, exchange: Callable[..., Any], attributed: Callable[..., Any]
) -> Iterator[CaptureWriter]:
    """Writes a capture that is not finished: row 5.0 is done, 6.0 is running, and there is a gap."""
    writer = CaptureWriter.create(tmp_path / "live")
    writer.add(exchange(1, Call.RUN), b"{}", b'{"reward": 1.0}')
    writer.add(exchange(2, Call.RUN, status=None, attribution=attributed(6)), b"{}")
    writer.gap(Gap(kind=GapKind.QUEUE_FULL, at_ns=1, detail="the tape had no room", count=3))
    writer.commit()
    yield writer
    writer.close()
