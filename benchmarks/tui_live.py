"""Watches a run of 500 exchanges a second in the terminal UI: does the view keep up, and does the tap notice?

A tap (`gymtap up`) stands before an upstream that answers at once. The same load runs in rounds: past the tap, through
it while nobody looks, and through it with the UI on the capture, where keys are pressed and timed as in tui.py. What
the tap adds is the difference to the first; how much it varies without the UI is shown beside the ratio. Upstream and
load have a process each, so that nothing but the machine is shared with the UI.

`.venv/bin/python benchmarks/tui_live.py [ROUNDS]`
"""

import asyncio
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientSession, TCPConnector, web
from tui import Terminal, _report

_RATE = 500
_SECONDS = 10
_BODY = b'{"model": "m", "messages": [{"role": "user", "content": "%s"}]}' % (b"x" * 2000)
_ANSWER = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}'
_PATH = "/v1/chat/completions"


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _upstream(port: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=_ANSWER, content_type="application/json")

    app = web.Application()
    app.router.add_post(_PATH, answer)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)


def _load(port: int) -> list[float]:
    """Latencies in ms of a steady rate of calls."""
    return asyncio.run(_calls(f"http://127.0.0.1:{port}{_PATH}"))


async def _calls(url: str) -> list[float]:
    taken: list[float] = []

    async def one(session: ClientSession) -> None:
        began = time.perf_counter()
        async with session.post(url, data=_BODY) as response:
            await response.read()
        taken.append((time.perf_counter() - began) * 1e3)

    async with ClientSession(connector=TCPConnector(limit=0)) as session, asyncio.TaskGroup() as calls:
        began = time.perf_counter()
        for number in range(_RATE * _SECONDS):
            await asyncio.sleep(max(began + number / _RATE - time.perf_counter(), 0))
            calls.create_task(one(session))
    return taken


@dataclass
class Side:
    """The latencies of one way to call, in ms, a list for each round."""

    name: str
    rounds: list[list[float]] = field(default_factory=list)

    def p50(self) -> float:
        """Of all rounds together."""
        return statistics.median(value for taken in self.rounds for value in taken)

    def show(self) -> None:
        """A line of all rounds, and of each."""
        ordered = sorted(value for taken in self.rounds for value in taken)
        each = " ".join(f"{statistics.median(taken):.2f}" for taken in self.rounds)
        p95 = ordered[int(len(ordered) * 0.95)]
        print(f"{self.name:34} p50 {self.p50():6.2f} ms   p95 {p95:6.2f} ms   (p50 of each round: {each})", flush=True)


@contextmanager
def _tap(front: int, behind: int, capture: Path) -> Iterator[None]:
    """A tap between the two ports, until the load has ended."""
    mapping = f"provider=127.0.0.1:{front}->http://127.0.0.1:{behind}"
    command = [str(Path(sys.executable).with_name("gymtap")), "up", "--map", mapping, "--capture", str(capture)]
    tap = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until_listens(front)
        yield
    finally:
        tap.send_signal(signal.SIGINT)
        tap.wait(20)


def _until_listens(port: int, limit_s: float = 30) -> None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(port)


@dataclass
class Watch:
    """What was measured of the UI: milliseconds for each key, then the last round's figures."""

    keys: list[float] = field(default_factory=list)
    processor: float = 0.0
    memory_mb: float = 0.0
    exchanges: str = ""

    @contextmanager
    def over(self, capture: Path) -> Iterator[None]:
        """The UI on the rows of the capture, with a key pressed as soon as the last one is painted."""
        ui = Terminal(capture)
        ui.until("live")
        ui.type(b"l")
        stop = threading.Event()
        pressing = threading.Thread(target=self._press, args=(ui, stop))
        pressing.start()
        began, before_s = time.perf_counter(), ui.cpu_s()
        try:
            yield
        finally:
            self.processor = (ui.cpu_s() - before_s) / (time.perf_counter() - began)
            stop.set()
            pressing.join()
            ui.type(b"\x1b")
            time.sleep(1.5)
            ui.settle()
            self.memory_mb = ui.peak_mb()
            self.exchanges = ui.last("[0-9,]+ exchanges")
            os.kill(ui.process.pid, signal.SIGTERM)
            ui.process.wait(20)

    def _press(self, ui: Terminal, stop: threading.Event) -> None:
        while not stop.is_set():
            self.keys.append(ui.key(b"j"))


def measure(directory: Path, rounds: int) -> None:
    """Load in rounds, and what they come to."""
    behind, front = _free(), _free()
    capture = directory / "live"
    direct, alone, watched = Side("past the tap"), Side("through the tap, nobody looks"), Side("the same, with the UI")
    watch = Watch()
    spawn = multiprocessing.get_context("spawn")
    upstream = spawn.Process(target=_upstream, args=(behind,), daemon=True)
    upstream.start()
    _until_listens(behind)
    with ProcessPoolExecutor(1, mp_context=spawn) as load, _tap(front, behind, capture):
        load.submit(_load, front).result()  # warm
        for _ in range(rounds):
            direct.rounds.append(load.submit(_load, behind).result())
            alone.rounds.append(load.submit(_load, front).result())
            with watch.over(capture):
                watched.rounds.append(load.submit(_load, front).result())
    upstream.terminate()
    for side in (direct, alone, watched):
        side.show()
    added, added_watched = alone.p50() - direct.p50(), watched.p50() - direct.p50()
    apart = [(statistics.median(taken) - direct.p50()) / added for taken in alone.rounds]
    print(f"{'what the tap adds':34} {added:.2f} ms, with the UI {added_watched:.2f} ms: {added_watched / added:.2f}")
    print(f"{'without the UI, round by round':34} {min(apart):.2f} to {max(apart):.2f}")
    _report(f"j, while {_RATE} exchanges/s come", watch.keys)
    print(f"{'the UI':34} took {watch.processor:.0%} of a processor and {watch.memory_mb:.0f} MB")
    print(f"{'it has seen':34} {watch.exchanges}, of {(1 + 2 * rounds) * _RATE * _SECONDS:,}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        measure(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else 3)
