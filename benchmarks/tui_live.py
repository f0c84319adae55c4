"""Watches a run of 500 exchanges a second in the terminal UI: does the view keep up, and does the tap notice?

A tap (`gymtap up`) stands before an upstream that answers at once. The same load runs twice, without and with the UI on
the capture, and the latencies through the tap are compared; meanwhile keys are pressed and timed as in tui.py.
"""

import asyncio
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from aiohttp import ClientSession, TCPConnector, web
from tui import Terminal, _report

_RATE = 500
_SECONDS = 10
_BODY = b'{"model": "m", "messages": [{"role": "user", "content": "%s"}]}' % (b"x" * 2000)
_ANSWER = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}'


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _upstream(port: int) -> web.AppRunner:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=_ANSWER, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


async def _load(url: str) -> list[float]:
    """Latencies in ms of a steady rate of calls."""
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


def _told(name: str, taken: list[float]) -> float:
    ordered = sorted(taken)
    p50 = statistics.median(ordered)
    print(f"{name:34} p50 {p50:6.2f} ms   p95 {ordered[int(len(ordered) * 0.95)]:6.2f} ms   ({len(taken):,} calls)")
    return p50


def _press(ui: Terminal, taken: list[float], stop: threading.Event) -> None:
    while not stop.is_set():
        taken.append(ui.key(b"j"))


async def measure(directory: Path) -> None:
    """Load, load with the UI, compare."""
    behind, front = _free(), _free()
    capture = directory / "live"
    upstream = await _upstream(behind)
    mapping = f"provider=127.0.0.1:{front}->http://127.0.0.1:{behind}"
    command = [str(Path(sys.executable).with_name("gymtap")), "up", "--map", mapping, "--capture", str(capture)]
    tap = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220  # once
    url = f"http://127.0.0.1:{front}/v1/chat/completions"
    try:
        while not list(capture.glob("*.sqlite")):  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        await _load(url)
        alone = _told("through the tap, nobody looks", await _load(url))
        ui = Terminal(capture)
        await asyncio.to_thread(ui.until, "live")
        await asyncio.to_thread(ui.type, b"l")
        keys: list[float] = []
        stop = threading.Event()
        pressing = threading.Thread(target=_press, args=(ui, keys, stop))
        pressing.start()
        before_s = ui.cpu_s()
        watched = _told("through the tap, with the UI", await _load(url))
        print(f"{'processor that the UI took':34} {(ui.cpu_s() - before_s) / _SECONDS:6.0%} of one")
        stop.set()
        pressing.join()
        print(f"{'ratio of the two p50':34} {watched / alone:6.2f}")
        _report("j, while 500 exchanges/s come", keys)
        await asyncio.to_thread(ui.type, b"\x1b")
        await asyncio.sleep(1.5)
        await asyncio.to_thread(ui.settle)
        shown = re.findall(rb"([0-9,]+) exchanges", ui.seen)[-1].decode()
        print(f"{'the UI has seen':34} {shown} of {3 * _RATE * _SECONDS:,} exchanges, memory {ui.peak_mb():.0f} MB")
        os.kill(ui.process.pid, signal.SIGTERM)
    finally:
        tap.send_signal(signal.SIGINT)
        tap.wait(20)
        await upstream.cleanup()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(measure(Path(place)))
