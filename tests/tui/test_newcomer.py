"""The path of someone who sees the UI first, on servers that still run: through the app, and in a real terminal."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.demo.dataset import rows
from gymtap.proxy.demo.miniature import KINDS, miniature
from gymtap.proxy.engine import CAUSALITY_HEADER, Causality
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.proxy.tui.choice import Choice
from gymtap.proxy.tui.exchange_page import ExchangePage
from gymtap.proxy.tui.replay_page import ReplayPage
from gymtap.proxy.tui.rows_page import RowsPage
from gymtap.schemas import Server, ServerKind

type Open = Any
"""See `opened` in conftest.py."""

type Screen = Any
"""See `tmux_screen` in the conftest.py above."""

ROOT = Path(__file__).parents[2]


async def _front(tap: Tap, name: str, kind: ServerKind, upstream: str) -> str:
    server = Server(name=name, kind=kind, listen="http://127.0.0.1:0", upstream=upstream)
    causality = Causality.STRIP if kind is ServerKind.PROVIDER else Causality.INJECT
    return (await tap.listen(server, causality=causality)).server.listen


@asynccontextmanager
async def _passage(url: str) -> AsyncIterator[str]:
    """A way to a server that ends while the server goes on: how a provider goes away."""

    writers: list[asyncio.StreamWriter] = []
    ended: list[asyncio.Future[None]] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        both = asyncio.gather(pipe(reader, inner_writer), pipe(inner_reader, writer), return_exceptions=True)
        ended.append(asyncio.ensure_future(both))
        await both

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*ended)


@pytest.fixture
async def recorded(tmp_path: Path) -> AsyncIterator[Path]:
    """A capture whose servers still run, but for the provider: where Gym calls it nobody is."""
    async with miniature(CAUSALITY_HEADER) as gym:
        provider = next(name for name, kind in KINDS.items() if kind is ServerKind.PROVIDER)
        async with _passage(gym.private[provider]) as way, Tap(TapSettings(capture=tmp_path / "run")) as tap:
            upstreams = {**gym.private, provider: way}
            fronts = {name: await _front(tap, name, kind, upstreams[name]) for name, kind in KINDS.items()}
            gym.stand_behind(fronts)
            await gym.collect(rows()[:6], 2)
            path = tap.capture
        gym.stand_behind({**gym.private, provider: fronts[provider]})
        yield path


async def test_from_opening_to_a_verdict_in_under_ten_keys(
    opened: Open, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """See the top cause, its rows, the provider's body; send the row again without a provider; see the verdict."""
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path / "home"))
    keys = 0

    async def press(key: str) -> None:
        nonlocal keys
        keys += 1
        await desk.press(key)

    async with opened(recorded) as desk:
        await desk.shows("The provider cannot turn a tool's schema into a grammar")
        await press("enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowsPage))
        await desk.shows("1 of 6 rows")
        await press("R")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.shows("400 Bad Request", "Invalid JSON schema for tool 'get_weather'")
        await press("r")
        await desk.until(lambda: isinstance(desk.app.screen, Choice) and desk.app.screen.is_mounted)
        await press("p")
        await desk.until(lambda: isinstance(desk.app.screen, ReplayPage | Choice))
        await desk.shows("it may change something")
        await press("s")
        await desk.shows("REPRODUCED 1/1", "kept in")
    assert keys < 10


# --- in a real terminal -------------------------------------------------------------------------------------------


class Keys:
    """A screen on which every key is counted, and followed by what it has to bring."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.count = 0

    def press(self, key: str, *brings: str) -> str:
        """The screen, as soon as it has all that."""
        self.count += 1
        self._screen.press(key)
        return str(self._screen.wait(*brings))


def _find_and_replay(screen: Screen, top_cause: str, rows: str, said: str) -> int:
    """From the first screen to a verdict, in that many keys."""
    screen.wait("top causes", top_cause)
    keys = Keys(screen)
    keys.press("Enter", rows, "✗")
    keys.press("R", "400 Bad Request", said)
    keys.press("r", "replay a[0-9]+", "p  its row .*, with the provider's recorded answers")
    asked = keys.press("p", "it may change something", "s  send it")
    assert "the recorded answers stand at http://127.0.0.1:" in asked
    assert re.search(r"POST http://127\.0\.0\.1:[0-9]+/\S*run", asked)
    verdict = keys.press("s", "REPRODUCED 1/1", "kept in")
    assert re.search(r"REPRODUCED 1/1 +Invalid JSON schema", verdict)
    return keys.count


@pytest.mark.timeout(240)
async def test_in_a_real_terminal_it_takes_under_ten_keys(tmux_screen: Screen, recorded: Path, tmp_path: Path) -> None:
    """tmux at 80 by 24: every key is pressed as a person would, every step is read off the pane."""
    command = [sys.executable, "-m", "gymtap", "tui", str(recorded)]

    def path() -> int:
        with tmux_screen(command, 80, 24, {"GYMTAP_HOME": str(tmp_path / "home")}) as screen:
            return _find_and_replay(
                screen,
                "1 +data_schema +The provider cannot",
                "1 of 6 rows",
                "Invalid JSON schema for tool 'get_weather'",
            )

    assert await asyncio.to_thread(path) < 10  # the servers go on in this thread


@pytest.mark.gym
@pytest.mark.timeout(900)
def test_on_a_real_gym_it_takes_under_ten_keys(tmux_screen: Screen, gym_python: Path, tmp_path: Path) -> None:
    """NeMo Gym 0.7.0: its provider refuses a tool, then is gone when the row is sent again, while two rows hang."""
    command = [sys.executable, str(ROOT / "examples" / "failing_gym" / "run.py")]
    environment = os.environ | {"GYMTAP_GYM_VENV": str(gym_python.parents[1])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as gym:
        assert gym.stdin is not None
        assert gym.stdout is not None
        try:
            capture = gym.stdout.readline().strip()
            assert capture
            gym.stdin.write("stop provider\n")
            gym.stdin.flush()
            assert gym.stdout.readline().strip() == "the provider has ended"
            seen = [sys.executable, "-m", "gymtap", "tui", capture]
            with tmux_screen(seen, 80, 24, {"GYMTAP_HOME": str(tmp_path / "home")}) as screen:
                said = "Invalid JSON schema for tool 'get_forecast'"
                keys = _find_and_replay(screen, "4 +data_schema +The provider cannot", "4 of 24 rows", said)
        finally:
            gym.stdin.close()
            gym.wait()
    assert keys < 10
