"""Throughput and latency of proxies in front of one upstream, measured in one run.

    python benchmarks/throughput.py [--seconds 3] [--rounds 3] [--json]

The upstream is a raw asyncio server that answers 4 KB; requests carry 4 KB; no two bodies are alike. Each proxy is
started alone, in its own process on core 0; the upstream and the load run on the other cores. Rounds go around all
subjects and the median counts, so that a noisy neighbour meets each of them. `gymtap` is the whole tap as one starts
it, recording everything to disk; `engine` is its engine with a tape that nobody keeps, which shows what recording
costs; `bare aiohttp` is the simplest proxy that aiohttp's server and client make.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BODY_BYTES = 4096
CONNECTIONS = 32
LATENCY_REQUESTS = 400
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 120.0
PROXY_CORES = {0}
ANSWER_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n" % BODY_BYTES
)
REQUEST_HEAD = (
    b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    b"User-Agent: Python/3.12 aiohttp/3.14.5\r\nCookie: policy_model=eyJzZXNzaW9uX2lkIjogIjEifQ==.aAbBcC.dDeEfF\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES
)


QUESTION = b'{"model": "m", "input": [{"role": "user", "content": "1%09d %b"}]}'
ANSWER = (
    b'{"id": "resp_1%09d", "object": "response", "created_at": 0, "model": "m", "status": "completed", "output": '
    b'[{"type": "message", "id": "msg_1%09d", "role": "assistant", "status": "completed", "content": '
    b'[{"type": "output_text", "text": "%b", "annotations": []}]}], "tools": [], "tool_choice": "auto", '
    b'"parallel_tool_calls": true, "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}'
)


def texts(around: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers from 0, each with the text that makes a body of 4 KB; no two alike, for a store keeps equal ones once."""
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randrange(2, 10))) for _ in range(4000)]
    text = " ".join(chance.choices(words, k=200_000)).encode()
    size = BODY_BYTES - len(around)
    for number in itertools.count():
        start = number * 7919 % (len(text) - size)
        yield number, text[start : start + size]


def questions() -> Iterator[bytes]:
    """Requests to a model, of 4 KB each."""
    return (QUESTION % each for each in texts(QUESTION % (0, b"")))


def answers() -> Iterator[bytes]:
    """What a model answers, 4 KB each: a body that checks find nothing in."""
    return (ANSWER % (number, number, text) for number, text in texts(ANSWER % (0, 0, b"")))


# The upstream.


class Upstream(asyncio.Protocol):
    """Answers each request as soon as it is whole."""

    def __init__(self, answers: Iterator[bytes]) -> None:
        self.answers = answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is held yet."""
        self.transport = transport
        self.held = b""

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        self.held += data
        while (head := self.held.find(b"\r\n\r\n")) >= 0 and len(self.held) >= head + 4 + BODY_BYTES:
            self.held = self.held[head + 4 + BODY_BYTES :]
            self.transport.write(ANSWER_HEAD + next(self.answers))


async def run_upstream(port: int) -> None:
    """Serve until killed."""
    made = answers()
    server = await asyncio.get_running_loop().create_server(lambda: Upstream(made), "127.0.0.1", port)
    await server.serve_forever()


# The subjects.


async def run_bare(port: int, upstream: int) -> None:
    """The simplest proxy of aiohttp's own server and client: it records nothing and streams nothing."""
    import aiohttp  # noqa: PLC0415 - each subject's process loads only what it is
    from aiohttp import web  # noqa: PLC0415

    hop_by_hop = {"connection", "keep-alive", "transfer-encoding", "content-length"}

    def end_to_end(headers) -> list[tuple[str, str]]:
        return [(name, value) for name, value in headers.items() if name.lower() not in hop_by_hop]

    async def relay(request: web.Request) -> web.Response:
        url = f"http://127.0.0.1:{upstream}{request.raw_path}"
        body = await request.read()
        async with session.request(
            request.method, url, headers=end_to_end(request.headers), data=body, allow_redirects=False
        ) as response:
            return web.Response(
                status=response.status, body=await response.read(), headers=end_to_end(response.headers)
            )

    async with aiohttp.ClientSession(
        auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{tail:.*}", relay)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


async def run_engine(port: int, upstream: int) -> None:
    """The engine alone: its events are drained by a thread, as by the recorder, and thrown away."""
    from gymtap.proxy.core.events import Tape  # noqa: PLC0415
    from gymtap.proxy.engine import Causality, Engine  # noqa: PLC0415
    from gymtap.schemas import Server  # noqa: PLC0415

    tape = Tape(64 * 2**20)

    def drain() -> None:
        while True:
            for _ in tape.drain():
                pass
            time.sleep(0.05)

    threading.Thread(target=drain, daemon=True).start()
    server = Server(name="x", listen=f"http://127.0.0.1:{port}", upstream=f"http://127.0.0.1:{upstream}")
    await Engine(tape).listen(server, causality=Causality.INJECT)
    await asyncio.Event().wait()


@dataclass
class Subject:
    """`command` makes the argv from the proxy's port, the upstream's port and a folder; None is no proxy at all.

    Figures are one per round. `requests` counts every request made, `load_s` and `stop_s` how long they took and
    how long the proxy then took to end, which is when a recorder catches up. `recorded` is what a capture holds.
    """

    name: str
    command: Callable[[int, int, Path], list[str]] | None
    requests_per_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    written_bytes: int = 0
    requests: int = 0
    load_s: float = 0.0
    stop_s: float = 0.0
    recorded: int = 0
    lost: int = 0
    failure: str = ""


def own_role(role: str) -> Callable[[int, int, Path], list[str]]:
    """This script, as one of its own processes."""
    return lambda port, upstream, _: [sys.executable, __file__, "--role", role, str(port), str(upstream)]


def mitmdump(port: int, upstream: int, folder: Path) -> list[str]:
    """Saving flows, as one would to look at them later."""
    program = shutil.which("mitmdump", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    mode = f"reverse:http://127.0.0.1:{upstream}"
    listen = ["--listen-host", "127.0.0.1", "--listen-port", str(port)]
    confdir = ["--set", f"confdir={folder / 'conf'}"]
    return [program or "mitmdump", "-q", "--mode", mode, *listen, *confdir, "-w", str(folder / "flows.mitm")]


def gymtap(port: int, upstream: int, folder: Path) -> list[str]:
    """The whole tap."""
    mapping = f"x=127.0.0.1:{port}->http://127.0.0.1:{upstream}"
    return [sys.executable, "-m", "gymtap", "up", "--map", mapping, "--capture", str(folder / "capture")]


def subjects() -> list[Subject]:
    """In the order of the report."""
    return [
        Subject("direct", None),
        Subject("mitmdump -w", mitmdump),
        Subject("bare aiohttp", own_role("bare")),
        Subject("engine", own_role("engine")),
        Subject("gymtap", gymtap),
    ]


# The load.


class Client(asyncio.Protocol):
    """Sends the next request as soon as the answer is whole, until told to stop."""

    def __init__(self, requests: Iterator[bytes], stop: Callable[[int], bool]) -> None:
        self.requests = requests
        self.stop = stop
        self.latencies_s: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start at once."""
        self.transport = transport
        self.send()

    def send(self) -> None:
        """One request."""
        request = REQUEST_HEAD + next(self.requests)
        self.started = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take the answer's time when it is whole."""
        self.held = self.held + data if self.held else data
        head = self.held.find(b"\r\n\r\n")
        if head < 0 or len(self.held) < head + 4 + BODY_BYTES:
            return
        if not self.held.startswith(b"HTTP/1.1 200"):
            self.fail(f"answered {self.held[:60]!r}")
            return
        self.held = b""
        self.latencies_s.append(time.perf_counter() - self.started)
        if not self.stop(len(self.latencies_s)):
            self.send()
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """A proxy that drops a connection has no figures."""
        self.fail(f"connection lost: {exc}")

    def fail(self, why: str) -> None:
        """End the load, with the reason."""
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))


async def load(port: int, requests: Iterator[bytes], connections: int, stop: Callable[[int], bool]) -> list[float]:
    """Latencies in seconds of all requests."""
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: Client(requests, stop), "127.0.0.1", port) for _ in range(connections)]
    await asyncio.gather(*(client.done for _, client in made))
    for transport, _ in made:
        transport.close()
    return list(itertools.chain.from_iterable(client.latencies_s for _, client in made))


def for_seconds(seconds: float) -> Callable[[int], bool]:
    """Stop when the time is over."""
    end = time.monotonic() + seconds
    return lambda _: time.monotonic() >= end


# The run.


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextmanager
def process(argv: list[str], port: int, cores: set[int], log: Path) -> Iterator[subprocess.Popen]:
    """A process that listens on `port`; on leaving it is asked to end, and has ended."""
    with log.open("wb") as output:
        child = subprocess.Popen(argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=log.parent)
    os.sched_setaffinity(child.pid, cores)  # before it has threads, which inherit it
    try:
        wait_until_listening(child, port, log)
        yield child
    finally:
        child.terminate()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_until_listening(child: subprocess.Popen, port: int, log: Path) -> None:
    """Raises RuntimeError, with the process's last words, when it ends instead."""
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if child.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
            raise RuntimeError(f"ended with status {child.returncode}: {last[0]}")
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"does not listen after {START_TIMEOUT_S:.0f} s")


def cpu_s(pid: int) -> float:
    """Processor time of a running process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended_cpu_s() -> float:
    """Processor time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(subject: Subject, port: int, seconds: float) -> int:
    """Load the port; how many requests were made in all."""
    requests = questions()
    start = time.monotonic()
    warm = asyncio.run(load(port, requests, CONNECTIONS, for_seconds(min(1.0, seconds / 3))))
    begin = time.monotonic()
    loaded = asyncio.run(load(port, requests, CONNECTIONS, for_seconds(seconds)))
    subject.requests_per_s.append(len(loaded) / (time.monotonic() - begin))
    alone = asyncio.run(load(port, requests, 1, lambda done: done >= LATENCY_REQUESTS))
    subject.p50_ms.append(statistics.median(alone) * 1e3)
    count = len(warm) + len(loaded) + len(alone)
    subject.requests += count
    subject.load_s += time.monotonic() - start
    return count


def run_round(subject: Subject, upstream: int, seconds: float, folder: Path) -> None:
    """Start the subject, measure it, stop it, and look at what it left."""
    if subject.command is None:
        measure(subject, upstream, seconds)
        return
    port = free_port()
    folder.mkdir(parents=True)
    before = ended_cpu_s()
    try:
        with process(subject.command(port, upstream, folder), port, PROXY_CORES, folder / "log") as child:
            started = cpu_s(child.pid)
            count = measure(subject, port, seconds)
            stopping = time.monotonic()
        subject.stop_s += time.monotonic() - stopping
        subject.cpu_us.append((ended_cpu_s() - before - started) / count * 1e6)
        count_recorded(subject, folder / "capture")
    except (RuntimeError, OSError) as error:
        subject.failure = str(error)
    subject.written_bytes += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    shutil.rmtree(folder)


def count_recorded(subject: Subject, capture: Path) -> None:
    """What the capture holds, and what it says is missing."""
    if not capture.is_dir():
        return
    from gymtap.proxy.store import Capture  # noqa: PLC0415 - only where there is a capture to read

    reader = Capture(capture)
    info = reader.info()
    reader.close()
    subject.recorded += info.exchanges
    subject.lost += sum(gap.count or 1 for gap in info.gaps)


def run(seconds: float, rounds: int) -> list[Subject]:
    """All subjects, round by round."""
    measured = subjects()
    others = os.sched_getaffinity(0) - PROXY_CORES or PROXY_CORES
    os.sched_setaffinity(0, others)
    upstream = free_port()
    with tempfile.TemporaryDirectory(prefix="gymtap-bench-") as folder:
        argv = [sys.executable, __file__, "--role", "upstream", str(upstream)]
        with process(argv, upstream, others, Path(folder) / "upstream.log"):
            for number in range(rounds):
                for subject in measured:
                    print(f"round {number + 1}/{rounds}: {subject.name}", file=sys.stderr)
                    run_round(subject, upstream, seconds, Path(folder) / f"{number}-{subject.name.split()[0]}")
    return measured


# The report.


def summary(measured: list[Subject]) -> dict[str, dict[str, float | str | None]]:
    """Per subject: medians, what it adds to a direct call, and why it has no figures where it has none."""
    direct = statistics.median(next(subject for subject in measured if subject.command is None).p50_ms)
    return {subject.name: row(subject, direct) for subject in measured}


def row(subject: Subject, direct_p50_ms: float) -> dict[str, float | str | None]:
    """One subject's line."""
    if subject.failure or not subject.requests_per_s:
        return {"failure": subject.failure or "not measured"}
    p50_ms = statistics.median(subject.p50_ms)
    return {
        "requests_per_s": round(statistics.median(subject.requests_per_s), 1),
        "p50_ms": round(p50_ms, 3),
        "p50_added_ms": round(p50_ms - direct_p50_ms, 3),
        "cpu_us_per_request": round(statistics.median(subject.cpu_us), 1) if subject.cpu_us else None,
        "written_bytes_per_request": round(subject.written_bytes / subject.requests),
        "requests": subject.requests,
        "recorded": subject.recorded or None,
        "lost": subject.lost if subject.recorded else None,
        "sustained_requests_per_s": round(subject.requests / (subject.load_s + subject.stop_s), 1),
    }


def ratios(rows: dict[str, dict[str, float | str | None]]) -> dict[str, float | None]:
    """Throughput of one over another; None where one was not measured."""
    pairs = [
        ("gymtap", "mitmdump -w"),
        ("gymtap", "bare aiohttp"),
        ("engine", "bare aiohttp"),
        ("gymtap", "engine"),
    ]
    found = {f"{one} / {other}": ratio(rows[one], rows[other]) for one, other in pairs}
    sustained = ratio(rows["gymtap"], rows["mitmdump -w"], "sustained_requests_per_s")
    return {**found, "gymtap / mitmdump -w, until all is on disk": sustained}


def ratio(
    above: dict[str, float | str | None], below: dict[str, float | str | None], figure: str = "requests_per_s"
) -> float | None:
    """Rounded to two places."""
    if "failure" in above or "failure" in below:
        return None
    return round(above[figure] / below[figure], 2)


def between(rows: dict[str, dict[str, float | str | None]]) -> str:
    """What stands between gymtap and the bare proxy, in processor time of the one core both have."""
    costs = {name: rows[name].get("cpu_us_per_request") for name in ("bare aiohttp", "engine", "gymtap")}
    if None in costs.values():
        return "What stands between gymtap and the bare proxy: not all of them were measured."
    bare, engine, whole = (costs[name] for name in ("bare aiohttp", "engine", "gymtap"))
    return (
        f"Between gymtap and the bare proxy, in processor time per request: the engine takes {engine:.0f} us where "
        f"the bare proxy takes {bare:.0f} ({engine - bare:+.0f}); recording (redaction, attribution, checks, "
        f"compression, SQLite) takes {whole - engine:.0f} us on the same core."
    )


def report(rows: dict[str, dict[str, float | str | None]]) -> str:
    """What a person reads."""
    lines = [f"{'':14} {'req/s':>8} {'p50 ms':>8} {'added ms':>9} {'cpu us/req':>11} {'disk B/req':>11}"]
    for name, values in rows.items():
        if "failure" in values:
            lines.append(f"{name:14} not measured: {values['failure']}")
            continue
        cpu = values["cpu_us_per_request"]
        lines.append(
            f"{name:14} {values['requests_per_s']:8.0f} {values['p50_ms']:8.3f} {values['p50_added_ms']:9.3f} "
            f"{'-' if cpu is None else f'{cpu:.0f}':>11} {values['written_bytes_per_request']:11}"
        )
    lines += [f"{name}: {'-' if value is None else value}" for name, value in ratios(rows).items()]
    return "\n".join([*lines, between(rows), recorded(rows["gymtap"])])


def recorded(values: dict[str, float | str | None]) -> str:
    """Whether gymtap's figure is one of recording everything."""
    if values.get("recorded") is None:
        return "gymtap's capture was not read."
    return (
        f"gymtap recorded {values['recorded']} of {values['requests']} exchanges ({values['lost']} gaps). "
        f"With the time its recorder took to catch up at the end: {values['sustained_requests_per_s']:.0f} req/s."
    )


def main() -> int:
    """Run one role, or measure all; 1 when a subject has no figures, 2 where cores cannot be chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of load per subject and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        role, *ports = args.role
        asyncio.run({"upstream": run_upstream, "bare": run_bare, "engine": run_engine}[role](*map(int, ports)))
        return 0
    if not hasattr(os, "sched_setaffinity"):
        print("throughput.py pins processes to cores, which only Linux lets it do", file=sys.stderr)
        return 2
    measured = run(args.seconds, args.rounds)
    rows = summary(measured)
    if args.json:
        print(json.dumps({"subjects": rows, "ratios": ratios(rows), "between": between(rows)}, indent=2))
    else:
        print(report(rows))
    return 1 if any(subject.failure for subject in measured) else 0


if __name__ == "__main__":
    sys.exit(main())
