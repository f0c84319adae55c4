"""The real NeMo Gym behind the tap: is everything captured, with its row, and is the run unchanged?

`gym_proof.py [legacy|single_agent_turn|several|served] ...` runs each scenario: 60 or more rollouts, 30 at a
time. Rows are checked against what the tap does not attribute by: identity in the bodies, the session cookie
that the row's own seed_session set, and the row's prompt in what the model was asked. With `--compare` the same
run is made twice without the tap, and its files compared.
"""

import argparse
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymtap.proxy.store import Capture
from gymtap.schemas import ROWLESS_CALLS, Call, Confidence, Exchange, Method

HERE = Path(__file__).parent
ROOT = HERE.parent
GYM = ROOT / "examples" / "gym.sh"
MODEL = ("--model", "stub-model", "--model-api-key", "EMPTY")


@dataclass(frozen=True)
class Scenario:
    """`repeats` rollouts for each of `tasks` rows; `served`: servers in one process, the collector in another."""

    config: str
    tasks: int
    repeats: int
    served: bool = False


SCENARIOS = {
    "legacy": Scenario("legacy", 5, 12),
    "single_agent_turn": Scenario("single_agent_turn", 5, 12),
    "several": Scenario("several", 15, 4),
    "served": Scenario("legacy", 5, 12, served=True),
}


@contextmanager
def provider() -> Iterator[str]:
    """The stub provider's URL."""
    command = [sys.executable, str(ROOT / "examples" / "stub_provider.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def run(scenario: Scenario, work: Path, url: str, capture: Path | None) -> None:
    """One run into `work`/out, behind a tap where there is a capture; its log beside it."""
    (work / "out").mkdir(parents=True)
    environment = os.environ | {"GYMTAP_GYM_WORK": str(work)}
    config = ("--config", str(HERE / "gym_configs" / f"{scenario.config}.yaml"), *MODEL, "--model-url", url)
    wrap = [sys.executable, "-m", "gymtap", "run", "--capture", str(capture), "--"] if capture else []
    output = ("--output", str(work / "out" / "rollouts.jsonl"), "--concurrency", "30")
    collect = [*output, "--num-repeats", str(scenario.repeats)]
    with (work / "gym.log").open("w") as log:
        if not scenario.served:
            command = [*wrap, str(GYM), "eval", "run", *config, "--split", "validation", *collect]
            status = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False).returncode
        else:
            status = _served([*wrap, str(GYM), "env", "start", *config], collect, environment, work, log)
    if status:
        sys.exit(f"the run failed with {status}: see {work / 'gym.log'}")


def _served(serve: list[str], collect: list[str], environment: dict[str, str], work: Path, log: Any) -> int:
    """`gym env start` behind the tap, `gym eval run --no-serve` not: the collector is untouched."""
    source = "resources_servers/example_single_tool_call/data/example.jsonl"
    agent = ("--agent", "example_single_tool_call_simple_agent", "--input", source)
    with subprocess.Popen(serve, env=environment, stdout=log, stderr=log) as servers:
        try:
            while "servers ready!" not in (work / "gym.log").read_text():
                if servers.poll() is not None:
                    return 1
                time.sleep(1)
            command = [str(GYM), "eval", "run", "--no-serve", *agent, *collect]
            return subprocess.run(command, env=environment, stdout=log, stderr=log, check=False).returncode
        finally:
            servers.send_signal(signal.SIGINT)
            servers.wait()


class Truth:
    """What a row's exchanges show by themselves, apart from the header that the tap attributes by."""

    def __init__(self, capture: Capture, inputs: list[dict[str, Any]]) -> None:
        self._capture = capture
        self._prompts = {row["_ng_task_index"]: _prompt(row) for row in inputs}
        self.wrong: list[str] = []
        self.checked: Counter[str] = Counter()
        self._sessions: dict[str, str] = {}

    def check(self, exchanges: list[Exchange]) -> None:
        """Check every exchange that has a row."""
        for exchange in exchanges:
            if exchange.call is Call.SEED_SESSION and exchange.attribution.row:
                for session in _sessions(exchange, response=True):
                    self._sessions[session] = exchange.attribution.row.label
        for exchange in exchanges:
            self._check(exchange)

    def _check(self, exchange: Exchange) -> None:
        row = exchange.attribution.row
        assert row is not None
        body = self._body(exchange)
        known = body.get("_ng_task_index"), body.get("_ng_rollout_index")
        if None not in known:
            self._judge(exchange, "identity in the body", known == (row.task, row.rollout))
        for session in _sessions(exchange, response=False):
            if session in self._sessions:
                self._judge(exchange, "session cookie", self._sessions[session] == row.label)
        if exchange.call in (Call.RESPONSES, Call.MODEL, Call.PROVIDER) and row.task is not None:
            self._judge(exchange, "prompt in the body", self._prompts[row.task] in json.dumps(body))

    def _judge(self, exchange: Exchange, what: str, right: bool) -> None:
        self.checked[what] += 1
        if not right:
            self.wrong.append(f"{exchange.id} {exchange.call} is not of row {exchange.attribution.row}: {what}")

    def _body(self, exchange: Exchange) -> dict[str, Any]:
        body = exchange.request.body
        content = self._capture.body(body) if body and body.digest else b"{}"
        value = json.loads(content or b"{}")
        return value if isinstance(value, dict) else {}


def _prompt(row: dict[str, Any]) -> str:
    """The last thing that the user says in a row, as it stands in JSON."""
    said = row["responses_create_params"]["input"]
    text = said if isinstance(said, str) else [item for item in said if item.get("role") == "user"][-1]["content"]
    return json.dumps(text)[1:-1]


def _sessions(exchange: Exchange, *, response: bool) -> Iterator[str]:
    """Session ids in Starlette's cookies: base64 of JSON before the first dot."""
    if response:
        fields = exchange.response.headers if exchange.response else ()
        cookies = [value.partition(";")[0] for name, value in fields if name.lower() == "set-cookie"]
    else:
        values = [value for name, value in exchange.request.headers if name.lower() == "cookie"]
        cookies = [part.strip() for value in values for part in value.split(";")]
    for cookie in cookies:
        payload = cookie.partition("=")[2].strip('"').partition(".")[0]
        try:
            yield json.loads(base64.b64decode(payload + "=" * (-len(payload) % 4)))["session_id"]
        except (ValueError, KeyError, TypeError):
            continue


def prove(scenario: Scenario, work: Path, capture_path: Path) -> bool:
    """Print what was captured; whether all of it is right."""
    capture = Capture(capture_path)
    exchanges = list(capture.exchanges())
    rowed = [item for item in exchanges if item.call not in ROWLESS_CALLS]
    inputs = [
        json.loads(line) for line in (work / "out" / "rollouts_materialized_inputs.jsonl").read_text().splitlines()
    ]
    certain = [item for item in rowed if item.attribution.row and item.attribution.confidence is Confidence.CERTAIN]
    truth = Truth(capture, inputs)
    truth.check(certain)
    rootless = [item for item in rowed if item.call is not Call.RUN and item.attribution.method is not Method.CAUSALITY]
    info = capture.info()
    wanted = scenario.tasks * scenario.repeats
    print(f"  rows {info.rows} of {wanted}, gaps {len(info.gaps)}, exchanges {len(exchanges)}")
    print(f"  calls {dict(sorted(Counter(item.call.value for item in exchanges).items()))}")
    print(f"  boundaries {dict(sorted(Counter(item.boundary for item in rowed).items()))}")
    print(f"  attributed for certain {len(certain)} of {len(rowed)}; but /run not by causality {len(rootless)}")
    print(f"  checked {dict(truth.checked)}; wrong {len(truth.wrong)}")
    for problem in truth.wrong[:5]:
        print(f"    {problem}")
    whole = info.rows == wanted and not info.gaps and not info.open_exchanges
    return whole and len(certain) == len(rowed) and not rootless and not truth.wrong


def main() -> int:
    """Run the scenarios; 0 when all is proved."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], default=[])
    parser.add_argument("--compare", action="store_true", help="run twice without the tap too, and compare the files")
    given = parser.parse_args()
    good = True
    for name in given.scenario or SCENARIOS:
        work = Path(tempfile.mkdtemp(prefix=f"gymtap-{name}-"))
        print(f"{name}: {work}", flush=True)
        with provider() as url:
            run(SCENARIOS[name], work / "tapped", url, work / "capture")
            good &= prove(SCENARIOS[name], work / "tapped", work / "capture")
            if given.compare:
                for plain in ("plain_a", "plain_b"):
                    run(SCENARIOS[name], work / plain, url, None)
                command = [sys.executable, str(HERE / "compare_runs.py")]
                outputs = [str(work / part / "out") for part in ("plain_a", "plain_b", "tapped")]
                good &= subprocess.run(command + outputs, check=False).returncode == 0
    print("proved" if good else "NOT proved")
    return not good


if __name__ == "__main__":
    sys.exit(main())
