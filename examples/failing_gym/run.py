"""A real NeMo Gym 0.7.0 that fails in every way, behind `gymtap run`; prints the capture's path when rows have ended.

Two environments that Gym ships and one of our own, with a provider that fails by what it is asked. Two rows never end:
their provider does not answer, or drops every connection. Gym stays up until stdin ends, to look around in and to
replay; the line `stop provider` ends the provider before.

    make gym-env && .venv/bin/python examples/failing_gym/run.py
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gymtap.proxy.store import Capture
from gymtap.schemas import RowState

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WAITING = ("Kiruna", "Ushuaia")
"""The cities whose rows never end."""
_LIMIT_S = 900


def weather(city: str, tool: str = "get_weather", **schema: Any) -> dict[str, Any]:
    """A row of Gym's example with one tool; `schema` is put to the type of its argument."""
    turns = [_turn("developer", "You are a helpful assistant."), _turn("user", f"What is the weather like in {city}?")]
    return _row("example_single_tool_call", turns, [_tool(tool, schema)])


def travel(city: str, tool: str = "describe_city", **fields: Any) -> dict[str, Any]:
    """A row of our own environment; a field that is None is left out."""
    row = _row("travel_desk", [_turn("user", f"Tell me about {city}.")], [_tool(tool, {})])
    return row | {name: value for name, value in ({"expected_city": city} | fields).items() if value is not None}


def judged(question: str, answer: str) -> dict[str, Any]:
    """A row whose verifier asks a judge."""
    return _row("equivalence_llm_judge", [_turn("user", question)], []) | {"expected_answer": answer}


def rows() -> list[dict[str, Any]]:
    """The dataset. What is wrong with a row, or comes over it, stands beside it."""
    broken = {"format": "uri-template"}
    return [
        weather("Lisbon"),
        weather("Kiruna"),  # the provider never answers
        weather("Oslo"),
        weather("Quito", "get_forecast", **broken),  # provider: 400, it cannot make a grammar of the schema
        travel("Porto"),
        travel("Turin", expected_city=None),  # verify: 422
        judged("Which planet is called red? It is Mars", "Mars"),
        weather("Cairo"),  # provider: 500, three times
        weather("Lagos", "get_forecast", **broken),
        travel("Tunis", budget=0),  # verify: ZeroDivisionError
        weather("Mumbai"),  # provider: 429 twice, then well
        weather("Ushuaia"),  # the provider drops every connection
        judged("Who wrote the Odyssey? It was Homer", "Homer"),
        weather("Lima", "get_tides"),  # tool: 404, told to the model
        weather("Bergen", "get_forecast", **broken),
        travel("Delhi", "book_hotel"),  # tool: KeyError, told to the model
        weather("Vienna"),  # provider: 200 without choices
        weather(f"{'the old port, the new port, ' * 500} and Boston"),  # provider: 400, which Gym makes an empty answer
        judged("What is the metal of rust? It is iron", "iron"),
        travel("Perth", expected_city=None),
        weather("Accra"),
        weather("Osaka", "get_forecast", **broken),
        travel("Lisbon", "book_hotel"),
        weather("Rome"),
    ]


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"} | schema}, "required": ["city"]}
    told = {"type": "function", "name": name, "description": "Look it up.", "strict": True}
    return told | {"parameters": parameters | {"additionalProperties": False}}


def _row(environment: str, turns: list[dict[str, str]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    agent = {"type": "responses_api_agents", "name": f"{environment}_simple_agent"}
    return {"responses_create_params": {"input": turns, "tools": tools}, "agent_ref": agent}


@contextmanager
def started(command: list[str], log: Path, stop_s: float, **given: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that gets SIGINT at the end, and is ended when it does not mind that."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, text=True, **({"stdout": file} | given))  # noqa: S603  # ours
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(stop_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(what: str, holds: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    """Wait for it; ends the script when it does not come, or the process ends before."""
    limit = time.monotonic() + _LIMIT_S
    while not holds():
        if time.monotonic() > limit or process.poll() is not None:
            told = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
            sys.exit(f"{told}\n{what}: it did not come to that")
        time.sleep(0.3)
    print(what, file=sys.stderr, flush=True)


def settled(path: Path, count: int) -> bool:
    """Whether all rows began, and all but those that never end have ended."""
    states = [row.state for row in Capture(path).rows()]
    return len(states) == count and states.count(RowState.RUNNING) == len(WAITING)


def run(work: Path, stay: Callable[[subprocess.Popen[str]], None]) -> None:
    """Start everything in `work`, collect, print the capture's path, and `stay` with the provider's process."""
    shutil.copytree(HERE / "resources_servers", work / "resources_servers", dirs_exist_ok=True)
    shutil.copy(HERE / "config.yaml", work)
    source, capture = work / "rows.jsonl", work / "captures" / "failing-gym"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    given: dict[str, Any] = {"cwd": ROOT, "env": os.environ | {"GYMTAP_GYM_WORK": str(work)}}
    wrap = [sys.executable, "-m", "gymtap", "run", "--capture", str(capture), "--", "examples/gym.sh"]
    options = ["--concurrency", "4", "++route_failures_to_sidecar=true"]
    collect = ["eval", "run", "--no-serve", "--input", "rows.jsonl", "--output", "out/rollouts.jsonl", *options]
    with ExitStack() as stack:
        provider_log, gym_log, collector_log = (work / f"{name}.log" for name in ("provider", "gym", "collector"))
        speaks = {"stdout": subprocess.PIPE, **given}
        provider = stack.enter_context(started([sys.executable, str(HERE / "provider.py")], provider_log, 5, **speaks))
        assert provider.stdout is not None
        model = ("--model", "stub-model", "--model-url", provider.stdout.readline().strip(), "--model-api-key", "EMPTY")
        serve = [*wrap, "env", "start", "--config", "config.yaml", *model]
        gym = stack.enter_context(started(serve, gym_log, 60, **given))
        until("Gym is up", lambda: "servers ready!" in gym_log.read_text(errors="replace"), gym, gym_log)
        collector = stack.enter_context(started(["examples/gym.sh", *collect], collector_log, 20, **given))
        until("rows ended", lambda: settled(capture, len(rows())), collector, collector_log)
        print(capture, flush=True)
        stay(provider)


def stay_until_told(provider: subprocess.Popen[str]) -> None:
    """Wait for stdin to end; `stop provider` on the way there."""
    for line in sys.stdin:
        if line.strip() == "stop provider":
            provider.kill()
            provider.wait()
            print("the provider has ended", flush=True)


if __name__ == "__main__":
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job would hand on that it is ignored
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Gym does not stay when this is ended
    with tempfile.TemporaryDirectory(prefix="gymtap-failing-", ignore_cleanup_errors=True) as folder:
        run(Path(folder), stay_until_told)
