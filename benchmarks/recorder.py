"""What recording costs: processor time of the recorder alone for an exchange, the engine absent.

    python benchmarks/recorder.py [--rounds 5] [--exchanges 3000] [--mix NAME] [--profile] [--digest] [--open N]

Tapes are made beforehand and fed as an engine would, a few exchanges at a time; the best round counts. `model` is what
throughput.py sends through one tap; `gym` are rows of environment, agent, resources server, model server and provider,
thirty at a time, with the causality header and without. Each capture is on disk, and closed, when the clock stops.
`--digest` prints what the capture says, as a hash, by which two versions of the recorder can be compared. `--open`
leaves so many exchanges open, and prints what memory they take. `--profile` shows where the time goes.
"""

import argparse
import base64
import cProfile
import gc
import hashlib
import itertools
import json
import os
import pstats
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from throughput import answers, questions

from gymtap.proxy.core.events import Answered, Ended, Event, Opened, RequestData, RequestDone, ResponseData, Tape
from gymtap.proxy.core.redaction import Redactor
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import CaptureWriter
from gymtap.proxy.tap import NEW_OBJECTS, load_addons
from gymtap.schemas import Server, ServerKind

MIXES = ("model", "gym", "gym+header")
ROWS_AT_ONCE = 30
EVENTS_A_DRAIN = 384
CLIENT = "127.0.0.1:40000"
ASKED = ((b"Host", b"127.0.0.1:8000"), (b"Accept", b"*/*"), (b"Accept-Encoding", b"gzip, deflate"))
AGENT = ((b"User-Agent", b"Python/3.13 aiohttp/3.14.5"), (b"Content-Type", b"application/json"))
TOLD = ((b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"), (b"server", b"uvicorn"), (b"content-type", b"application/json"))


def server(name: str, kind: ServerKind = ServerKind.UNKNOWN) -> Server:
    """A boundary; nobody listens at its ends."""
    return Server(name=name, kind=kind, listen=f"http://{name}", upstream="http://127.0.0.1:9")


SINGLE = server("x")
ENVIRONMENT = server("env", ServerKind.ENVIRONMENT)
SIMPLE_AGENT = server("agent", ServerKind.AGENT)
RESOURCES = server("tools", ServerKind.RESOURCES)
MODEL = server("policy", ServerKind.MODEL)
PROVIDER = server("provider", ServerKind.PROVIDER)

type Steps = Iterator[Event]


class Traffic:
    """Makes events: numbers them, and lets time pass. `header`: the engine knew which exchange caused which."""

    def __init__(self, header: bool) -> None:
        self.header = header
        self.numbers = itertools.count(1)
        self.clock_ns = itertools.count(10**18, 100_000)
        self.chance = random.Random(0)
        words = ["".join(self.chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2000)]
        self.prose = " ".join(self.chance.choices(words, k=60_000))

    def text(self, size: int) -> str:
        """Prose that is unlike all other."""
        start = self.chance.randrange(len(self.prose) - size)
        return self.prose[start : start + size]

    def name(self, kind: str) -> str:
        """An id as models and sessions have them."""
        return f"{kind}_{self.chance.getrandbits(96):024x}"

    def exchange(
        self,
        to: Server,
        path: str,
        body: bytes,
        answer: bytes,
        parent: int | None = None,
        *,
        cookies: str = "",
        key: str = "",
        sets: str = "",
        inner: Callable[[int], Steps] = lambda _: iter(()),
    ) -> Steps:
        """One exchange; `inner` are those that it causes."""
        number = next(self.numbers)
        extra = ((b"Cookie", cookies.encode()),) if cookies else ()
        extra += ((b"Authorization", f"Bearer {key}".encode()),) if key else ()
        headers = (*ASKED, *AGENT, *extra, (b"Content-Length", b"%d" % len(body)))
        caused = f"a{parent}" if self.header and parent is not None else None
        at_ns = next(self.clock_ns)
        yield Opened(number, to, at_ns, at_ns, CLIENT, "POST", path, "1.1", headers, caused)
        yield RequestData(number, body)
        yield RequestDone(number, next(self.clock_ns))
        yield from inner(number)
        extra = ((b"set-cookie", sets.encode() + b"; path=/; Max-Age=1209600; httponly; samesite=lax"),) if sets else ()
        yield Answered(
            number, next(self.clock_ns), 200, "OK", (*TOLD, (b"content-length", b"%d" % len(answer)), *extra)
        )
        yield ResponseData(number, answer)
        yield Ended(number, next(self.clock_ns))

    def model_calls(self, count: int) -> list[Steps]:
        """As throughput.py makes them."""
        pairs = zip(questions(), answers(), strict=False)
        return [self.exchange(SINGLE, "/v1/responses", *pair) for pair in itertools.islice(pairs, count)]

    def row(self, task: int, rollout: int) -> Steps:
        """A row of Gym's legacy shape: two turns of the model, with a tool call between."""
        tools = [{"type": "function", "name": f"tool_{n}", "parameters": {"type": "object"}} for n in range(8)]
        asked = {"input": [{"role": "user", "content": self.text(2000)}], "tools": tools, "temperature": 1.0}
        place = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "agent"}}
        row = {"responses_create_params": asked, "verifier_metadata": {"expected": self.text(200)}, **place}
        tool_session, policy_session = self.cookie("Tools___tools"), self.cookie("Policy___policy")
        turns = [self.turn(asked, rollout), self.turn(asked, rollout)]
        turns[1] = {**turns[1], "output": [message(self, 800)]}
        last = dump({**turns[1], "output": [*turns[0]["output"], tool_output(turns[0], self), *turns[1]["output"]]})
        verified = dump({**row, "response": json.loads(last), "reward": 1.0})

        def model_turn(parent: int, said: dict, answer: dict, cookie: str) -> Steps:
            chat = dump({"model": "m", "messages": messages(said["input"]), "tools": tools, "temperature": 1.0})
            reply = dump({"id": self.name("chatcmpl"), "object": "chat.completion", "model": "m", **choices(answer)})
            yield from self.exchange(
                MODEL, "/v1/responses", dump(said), dump(answer), parent, cookies=cookie, sets=policy_session,
                inner=lambda n: self.exchange(PROVIDER, "/v1/chat/completions", chat, reply, n, key="EMPTY"),
            )  # fmt: skip

        def agent(parent: int) -> Steps:
            yield from model_turn(parent, asked, turns[0], "")
            arguments = dump({"city": self.text(20)})
            yield from self.exchange(
                RESOURCES, "/tool_1", arguments, dump(self.text(300)), parent, cookies=tool_session
            )
            more = {**asked, "input": [*asked["input"], *turns[0]["output"], tool_output(turns[0], self)]}
            yield from model_turn(parent, more, turns[1], policy_session)

        def run(parent: int) -> Steps:
            both = f"{tool_session}; {policy_session}"
            yield from self.exchange(RESOURCES, "/seed_session", dump(row), b"{}", parent, sets=tool_session)
            yield from self.exchange(
                SIMPLE_AGENT, "/v1/responses", dump(asked), last, parent, cookies=tool_session, sets=policy_session,
                inner=agent,
            )  # fmt: skip
            yield from self.exchange(
                RESOURCES, "/verify", dump({**row, "response": json.loads(last)}), verified, parent, cookies=both
            )

        yield from self.exchange(
            ENVIRONMENT, "/run", dump(row), verified,
            inner=lambda n: self.exchange(SIMPLE_AGENT, "/run", dump(row), verified, n, inner=run),
        )  # fmt: skip

    def cookie(self, name: str) -> str:
        """A Starlette session cookie."""
        payload = base64.b64encode(dump({"session_id": self.name("s")})).decode()
        return f"{name}={payload}.aAbBcC.{self.name('q')}"

    def turn(self, asked: dict, rollout: int) -> dict:
        """A model's answer that says something and calls a tool."""
        call = {"type": "function_call", "name": "tool_1", "arguments": '{"city": "x"}', "status": "completed"}
        output = [message(self, 400), {**call, "call_id": self.name("call"), "id": self.name("fc")}]
        usage = {"input_tokens": 900, "output_tokens": 90 + rollout, "total_tokens": 990 + rollout}
        about = {
            "id": self.name("resp"),
            "object": "response",
            "model": "m",
            "status": "completed",
            "tool_choice": "auto",
        }
        return {**about, "output": output, "tools": asked["tools"], "parallel_tool_calls": True, "usage": usage}


def dump(value: object) -> bytes:
    """As Gym's clients write JSON."""
    return json.dumps(value).encode()


def message(traffic: Traffic, size: int) -> dict:
    """An output item with text."""
    content = [{"type": "output_text", "text": traffic.text(size), "annotations": []}]
    return {
        "type": "message",
        "id": traffic.name("msg"),
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def tool_output(turn: dict, traffic: Traffic) -> dict:
    """What became of a turn's tool call."""
    return {"type": "function_call_output", "call_id": turn["output"][-1]["call_id"], "output": traffic.text(300)}


def tool_call(item: dict) -> dict:
    """A function call as chat completions say it."""
    about = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": about}


def messages(items: list[dict]) -> list[dict]:
    """A request's input as chat completions say it."""
    made = []
    for item in items:
        if item.get("type") == "function_call":
            made.append({"role": "assistant", "tool_calls": [tool_call(item)]})
        elif item.get("type") == "function_call_output":
            made.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
        else:
            made.append({"role": item["role"], "content": item["content"]})
    return made


def choices(answer: dict) -> dict:
    """A turn as a chat completion says it."""
    calls = [tool_call(item) for item in answer["output"] if item["type"] == "function_call"]
    said = {"role": "assistant", "content": answer["output"][0]["content"][0]["text"], "tool_calls": calls}
    usage = {"prompt_tokens": 900, "completion_tokens": 90, "total_tokens": 990}
    return {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}], "usage": usage}


def interleaved(steps: list[Steps], at_once: int, chance: random.Random) -> list[Event]:
    """All events, so many flows at once."""
    waiting, live, events = iter(steps), [], []
    while True:
        live += itertools.islice(waiting, at_once - len(live))
        if not live:
            return events
        one = chance.choice(live)
        event = next(one, None)
        live.remove(one) if event is None else events.append(event)


def mix(name: str, count: int) -> list[Event]:
    """The events of about `count` exchanges."""
    traffic = Traffic(header=name == "gym+header")
    if name == "model":
        return interleaved(traffic.model_calls(count), 32, traffic.chance)
    rows = [traffic.row(number // 4, number % 4) for number in range(count // 10)]
    return interleaved(rows, ROWS_AT_ONCE, traffic.chance)


def record(events: list[Event], directory: Path) -> float:
    """CPU seconds that the recorder took until all was on disk."""
    redactor = Redactor()
    writer = CaptureWriter.create(directory, redactor=redactor)
    tape = Tape(2**40)
    recorder = Recorder(tape, writer, load_addons(writer, redactor))
    started_s = time.process_time()
    for batch in itertools.batched(events, EVENTS_A_DRAIN):
        for event in batch:
            tape.put(event)
        recorder.drain()
    recorder.close()
    return time.process_time() - started_s


def digest(directory: Path) -> str:
    """What a capture says, without who wrote it, when, and in how many transactions, which also number the rows."""
    connection = sqlite3.connect(next(directory.glob("*.sqlite")))
    rows = {number: key for number, *key in connection.execute("SELECT * FROM rows")}
    lines = []
    for table in ("servers", "exchanges", "bodies", "segments", "findings", "gaps"):
        cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
        names = [column[0] for column in cursor.description]
        for values in cursor:
            said = {**dict(zip(names, values, strict=True)), "changed": None}
            lines.append(repr((table, {**said, "row": rows.get(said.get("row"))})))
    connection.close()
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def resident_mib() -> float:
    """Of this process, now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure_open(count: int, directory: Path) -> None:
    """Memory of exchanges of which only the requests came, of 4 KB each."""
    events = [event for steps in Traffic(header=False).model_calls(count) for event in itertools.islice(steps, 3)]
    gc.collect()
    writer = CaptureWriter.create(directory)
    tape = Tape(2**40)
    recorder = Recorder(tape, writer, load_addons(writer, writer.redactor))
    before = resident_mib()
    for event in events:
        tape.put(event)
    recorder.drain()
    print(f"{count} open: {resident_mib() - before:.0f} MiB beside their events")
    recorder.close()


def measure(name: str, arguments: argparse.Namespace, folder: Path) -> None:
    """Print one mix's line, or its profile."""
    events = mix(name, arguments.exchanges)
    count = sum(isinstance(event, Opened) for event in events)
    gc.set_threshold(NEW_OBJECTS)
    gc.collect()
    gc.freeze()
    if arguments.profile:
        with cProfile.Profile(time.thread_time) as profile:
            record(events, folder / "profiled")
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(45)
        return
    best_s = min(record(events, folder / f"{number}") for number in range(arguments.rounds))
    said = f", {digest(folder / '0')}" if arguments.digest else ""
    print(f"{name:11} {best_s / count * 1e6:6.1f} us of CPU per exchange, {count} exchanges{said}")


def main() -> None:
    """Print one line per mix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--exchanges", type=int, default=3000)
    parser.add_argument("--mix", choices=MIXES, action="append")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--digest", action="store_true")
    parser.add_argument("--open", type=int, metavar="N")
    arguments = parser.parse_args()
    for name in ["open"] if arguments.open else arguments.mix or MIXES:
        with tempfile.TemporaryDirectory() as folder:
            if arguments.open:
                measure_open(arguments.open, Path(folder) / name)
            else:
                measure(name, arguments, Path(folder))


if __name__ == "__main__":
    main()
