"""The real NeMo Gym made to fail in every way that hides its cause: what its logs say, and what gymtap says.

`live_failures.py --lab DIR [--transcripts docs/transcripts]` starts Gym once behind `gymtap run`, with a failing
environment and a stub provider that a marker in a row's message makes fail. One row a failure, an ordinary row
between any two, one at a time; so whatever Gym logs while a row runs is about that row. A row whose provider drops
every connection hangs from beginning to end and is looked at while it hangs. Everything that gymtap says is checked
against what was recorded or what the provider says when it is asked directly; `--json` prints the checks.
DIR holds `lab.sh`, `stub_provider.py` and `envs/` with the failing environment.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from live_failure_pages import Page, write_pages

from gymtap.proxy.diagnose.capture import diagnose_row
from gymtap.proxy.store import Capture
from gymtap.schemas import Call, Exchange, RowKey, RowState

KEY = "sk-lab-9f2b7c41d8e6a053"
"""The API key that Gym is given; nothing of the capture may hold it."""
AGENT = "chaos_simple_agent"
ORDINARY = "ordinary"
POISONED = "poisoned"
HUNG_TRIES = 14


@dataclass(frozen=True)
class Case:
    """One way to fail. `call` and `status` are the hop at fault; `field` is what a finding has to name."""

    name: str
    title: str
    about: str
    row: dict[str, Any]
    call: Call
    status: int | None
    layer: str
    field: str | None = None
    scored: bool = False
    provider_mode: str | None = None


def row(says: str, tool: str | None = None, **changes: Any) -> dict[str, Any]:
    """A row of the failing environment; a change to None leaves the field out."""
    params: dict[str, Any] = {"input": [{"role": "user", "content": says}]}
    if tool:
        city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        schema = city | {"additionalProperties": False}
        params["tools"] = [{"type": "function", "name": tool, "description": "", "strict": True, "parameters": schema}]
    whole = {"responses_create_params": params, "expected_answer": "A", "options": [{"A": "x"}], "mode": "ok"}
    return {name: value for name, value in (whole | changes).items() if value is not None}


def params(**changes: Any) -> dict[str, Any]:
    """`responses_create_params` with other fields."""
    return {"responses_create_params": {"input": [{"role": "user", "content": "Hello."}]} | changes}


HUNG = Case(
    "reset",
    "A connection that is reset, again and again",
    "The provider drops every connection without an answer. Gym's client tries again every half second, without end "
    "and without a word until the hundredth error of the process. All of this was seen while the row hung.",
    row("[[fail:reset]] Hello."),
    Call.PROVIDER,
    None,
    "infra",
)
REFUSED_KEY = Case(
    "api-key",
    "A 401, and then a model server that keeps answering it",
    "The provider refuses the key once. From then on Gym's model server answers with that old error and never calls "
    "the provider again, until it is restarted: the rows after it fail although the provider would answer.",
    row("[[fail:401]] Hello."),
    Call.PROVIDER,
    401,
    "config",
    provider_mode="401",
)
CASES = (
    Case(
        "context-overflow",
        "A 400 that is swallowed",
        "The prompt does not fit the model's context. Gym's vllm_model turns that 400 into an empty answer, which is "
        "scored like any other.",
        row("[[fail:400ctx]] Hello."),
        Call.PROVIDER,
        400,
        "data_schema",
        scored=True,
        provider_mode="400ctx",
    ),
    Case(
        "tool-404",
        "A tool that does not exist",
        "The model calls a tool that no server has. The 404 becomes the tool's output, the row gets its reward.",
        row("[[fail:toolunknown]] The weather?", "get_weather"),
        Call.TOOL,
        404,
        "model_serving",
        scored=True,
    ),
    Case(
        "tool-422",
        "Tool arguments that do not fit",
        "The model leaves out an argument. The 422 becomes the tool's output, the row gets its reward.",
        row("[[fail:toolbad]] The weather?", "get_weather"),
        Call.TOOL,
        422,
        "data_schema",
        "city",
        scored=True,
    ),
    Case(
        "tool-500",
        "A tool that raises",
        "The tool fails with an exception. The 500 becomes the tool's output, the row gets its reward.",
        row("The weather?", "boom"),
        Call.TOOL,
        500,
        "verifier_runtime",
        scored=True,
    ),
    Case(
        "verify-without-reward",
        "A verifier that answers without a reward",
        "/verify answers 200, and the agent fails on that answer. The log blames the agent.",
        row("Hello.", mode="noreward"),
        Call.VERIFY,
        200,
        "verifier_runtime",
        "reward",
    ),
    Case(
        "verify-422",
        "A row without a field that the verifier needs",
        "The rollout runs to its end, and then the verifier refuses the row.",
        row("Hello.", expected_answer=None),
        Call.VERIFY,
        422,
        "data_schema",
        "expected_answer",
    ),
    Case(
        "verify-422-type",
        "A row with a field of another type",
        "As before; this time the field is there, and is no list.",
        row("Hello.", options="none"),
        Call.VERIFY,
        422,
        "data_schema",
        "options",
    ),
    Case(
        "run-422-input",
        "A row whose input is misspelled",
        "The agent refuses the row before anything runs.",
        row("") | {"responses_create_params": {"inputs": "Hello."}},
        Call.RUN,
        422,
        "data_schema",
        "input",
    ),
    Case(
        "run-422-type",
        "A row with a temperature that is no number",
        "The agent refuses the row before anything runs.",
        row("", **params(temperature="hot")),
        Call.RUN,
        422,
        "data_schema",
        "temperature",
    ),
    Case(
        "provider-400",
        "A provider's 400 behind three 500s",
        "The case that everyone meets first: the provider's sentence is there, quoted three times over.",
        row("[[fail:400schema]] Hello."),
        Call.PROVIDER,
        400,
        "data_schema",
        provider_mode="400schema",
    ),
)
NEVER_SENT = "missing-params"


# --- Gym, its provider and its collector ------------------------------------------------------------------------


@dataclass
class Log:
    """Lines of a process with the time (UTC ns) at which each came."""

    lines: list[tuple[int, str]] = field(default_factory=list)

    def between(self, start_ns: int, end_ns: int) -> list[str]:
        """Lines that came in that time."""
        return [line for at_ns, line in list(self.lines) if start_ns <= at_ns < end_ns]

    def text(self) -> str:
        """All of it."""
        return "\n".join(line for _, line in list(self.lines))


@dataclass(frozen=True)
class Running:
    """A process and what it has said so far."""

    process: subprocess.Popen[str]
    log: Log


@contextmanager
def process(command: list[str], stop_s: float = 60.0, **given: Any) -> Iterator[Running]:
    """A process and its log; it gets SIGINT at the end."""
    log = Log()
    with subprocess.Popen(
        ["env", "--default-signal=INT", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **given,
    ) as started:
        reading = threading.Thread(target=_read, args=(started, log), daemon=True)
        reading.start()
        try:
            yield Running(started, log)
        finally:
            if started.poll() is None:
                started.send_signal(signal.SIGINT)
            try:
                started.wait(stop_s)
            except subprocess.TimeoutExpired:
                started.kill()
            reading.join(10.0)


def _read(started: subprocess.Popen[str], log: Log) -> None:
    assert started.stdout is not None
    for line in started.stdout:
        log.lines.append((time.time_ns(), line.rstrip("\n")))


def until(what: str, holds: Callable[[], Any], limit_s: float, running: "Running") -> None:
    """Wait for it; ends the script when it does not come, or when `running` ends before."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() > begun + limit_s or running.process.poll() is not None:
            told = "\n".join(running.log.text().splitlines()[-12:])
            raise SystemExit(f"{told}\nlive_failures: {what}: it did not come to that")
        time.sleep(0.2)
    print(f"{what}: after {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# --- what gymtap says -----------------------------------------------------------------------------------------


@dataclass
class Said:
    """A command as a person types it, what it said, and with which exit status."""

    command: str
    text: str
    code: int


@dataclass
class Run:
    """A run and what was seen of it. `rows` names each case's row; `spans` the time in which only it ran."""

    lab: Path
    work: Path
    environment: dict[str, str]
    head_port: int
    checks: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[str, RowKey] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    said: dict[str, list[Said]] = field(default_factory=dict)

    @property
    def head(self) -> list[str]:
        """Overrides that keep out of the way of another Gym on this machine."""
        return ["++head_server.host=127.0.0.1", f"++head_server.port={self.head_port}"]

    @property
    def capture_path(self) -> Path:
        """Where the tap records."""
        return self.work / "capture"

    def check(self, case: str, what: str, good: bool, found: object = None) -> None:
        """Keep a check, and say it on stderr where it failed."""
        self.checks.append({"case": case, "check": what, "ok": bool(good), "found": str(found)[:300]})
        if not good:
            print(f"NOT {case}: {what}: {str(found)[:300]}", file=sys.stderr, flush=True)

    def gymtap(self, *words: str, limit_s: float = 60.0) -> Said:
        """Run a command; shown as if the capture were the newest one, which needs no path."""
        command = [sys.executable, "-m", "gymtap", *words]
        home = self.environment | {"GYMTAP_HOME": str(self.work / "captures")}
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=home, check=False, timeout=limit_s
        )
        return Said(shown_command(words, self.capture_path), ended.stdout, ended.returncode)

    def asked(self, *words: str) -> Any:
        """A command's JSON."""
        home = self.environment | {"GYMTAP_HOME": str(self.work / "captures")}
        command = [sys.executable, "-m", "gymtap", *words, "--json"]
        ended = subprocess.run(command, capture_output=True, text=True, env=home, check=False, timeout=60.0)
        return json.loads(ended.stdout) if ended.stdout else {"error": ended.stderr[-500:]}


def shown_command(words: tuple[str, ...], capture: Path) -> str:
    """As a person types it where the capture is the newest one."""
    left = [word for word in words if word not in {str(capture), "-c", "--yes"}]
    return " ".join(["gymtap", *(f"'{word}'" if " " in word else word for word in left)])


# --- the run --------------------------------------------------------------------------------------------------


def dataset(path: Path) -> None:
    """The hanging row, then every case with an ordinary row behind it, then the key that is refused, then two more."""
    ordinary = row("The weather?", "get_weather") | {"case": ORDINARY}
    lines = [HUNG.row | {"case": HUNG.name}, ordinary]
    for case in (*CASES, REFUSED_KEY):
        lines += [case.row | {"case": case.name}, ordinary]
    lines.append(row("Another question.") | {"case": POISONED})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def collect(run: Run, source: Path, output: Path) -> list[str]:
    """The collector's command: two at a time, one of which hangs."""
    options = ["++route_failures_to_sidecar=true", "--concurrency", "2", *run.head]
    return ["bash", str(run.lab / "lab.sh"), "collect", AGENT, str(source), str(output), *options]


def perform(run: Run, *, pages: bool) -> list[Page]:
    """Start everything once, let it fail, look and check; the pages of what was seen."""
    port = free_port()
    stub = [sys.executable, str(run.lab / "stub_provider.py"), str(port)]
    wrapped = [sys.executable, "-m", "gymtap", "run", "--capture", str(run.capture_path), "--"]
    url = f"http://127.0.0.1:{port}/v1"
    start = ["bash", str(run.lab / "lab.sh"), "start", "chaos", url, "--model-api-key", KEY, *run.head]
    given: dict[str, Any] = {"env": run.environment, "cwd": run.work}
    with process(stub, stop_s=5.0) as provider:
        until("the provider is up", lambda: "stub up" in provider.log.text(), 30.0, provider)
        with process([*wrapped, *start], **given) as gym:
            until("Gym is up", lambda: "servers ready!" in gym.log.text(), 300.0, gym)
            config = head_config(run.head_port)
            (run.work / "missing.jsonl").write_text('{"expected_answer": "A", "options": [], "mode": "ok"}\n')
            dataset(run.work / "rows.jsonl")
            never = collect(run, run.work / "missing.jsonl", run.work / "missing" / "rollouts.jsonl")
            sent = collect(run, run.work / "rows.jsonl", run.work / "out" / "rollouts.jsonl")
            with process(never, **given) as refused, process(sent, **given) as collector:
                until("all but the hanging row ended", lambda: _settled(run), 180.0, collector)
                refused.process.wait(120.0)
                find_rows(run)
                look_while_it_hangs(run, pages)
            look_at_rest(run, url, pages)
            replay(run, "with Gym up")
        look_without_traffic(run, refused.log, pages)
        alone(run, config)
        redaction(run)
    if not pages:
        return []
    seen = [page(run, case, gym.log, collector.log) for case in (HUNG, *CASES, REFUSED_KEY)]
    return [*seen, never_sent_page(run, refused.log)]


def head_config(port: int) -> str:
    """The configuration as the head gives it: a JSON string that holds YAML."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/global_config_dict_yaml", timeout=30.0) as answer:
        return str(json.loads(answer.read()))


def _rows(run: Run) -> list[Any]:
    return list(Capture(run.capture_path).rows()) if run.capture_path.exists() else []


def _settled(run: Run) -> bool:
    """Whether every row but one has ended, and that one was tried often."""
    expected = 2 + 2 * (len(CASES) + 1) + 1
    found = _rows(run)
    if len(found) < expected or sum(one.state is RowState.RUNNING for one in found) > 1:
        return False
    hung = [one for one in found if one.state is RowState.RUNNING]
    return bool(hung) and hung[0].failed_exchanges >= HUNG_TRIES


def find_rows(run: Run) -> None:
    """Which row is which case: by what the collector's materialized inputs say; and when each ran alone."""
    text = (run.work / "out" / "rollouts_materialized_inputs.jsonl").read_text()
    names = {
        (item["_ng_task_index"], item["_ng_rollout_index"]): item["case"] for item in map(json.loads, text.splitlines())
    }
    ordered = sorted(_rows(run), key=lambda one: one.started_ns)
    for number, one in enumerate(ordered):
        name = names[one.key.task, one.key.rollout]
        if name == ORDINARY:
            continue
        run.rows[name] = one.key
        after = ordered[number + 1].started_ns if number + 1 < len(ordered) else time.time_ns()
        run.spans[name] = one.started_ns, after + 30_000_000
    last = max(one.started_ns for one in ordered if one.key != run.rows[HUNG.name])
    run.spans[HUNG.name] = last + 500_000_000, time.time_ns()
    run.spans[POISONED] = ordered[-2].started_ns, time.time_ns()


# --- the checks -------------------------------------------------------------------------------------------------


def look_while_it_hangs(run: Run, pages: bool) -> None:
    """The hanging row, before anything ends it."""
    capture, label = str(run.capture_path), run.rows[HUNG.name].label
    seen = run.asked("inflight", capture)
    run.check(HUNG.name, "inflight names the row that waits", label in seen.get("rows_waiting", []), seen)
    run.check(
        HUNG.name, "inflight raises an alarm about it", any(label in a["rows"] for a in seen.get("alarms", [])), seen
    )
    found = run.asked("why", "-c", capture, label)
    run.check(HUNG.name, "why says that it goes on without end", found["rule"] == "infra.endless_reconnect", found)
    _check_hop(run, HUNG, found, Capture(run.capture_path))
    if pages:
        faces_while_it_hangs(run, capture, label)
    run.spans[HUNG.name] = run.spans[HUNG.name][0], time.time_ns()
    row_now = Capture(run.capture_path).row(run.rows[HUNG.name])
    run.check(HUNG.name, "the row still hangs after all of this", row_now.state is RowState.RUNNING, row_now.state)


def faces_while_it_hangs(run: Run, capture: str, label: str) -> None:
    """What a person sees who looks at the hanging row."""
    words = (("inflight", capture), ("tree", "-c", capture, label), ("why", "-c", capture, label))
    run.said[HUNG.name] = [run.gymtap(*each) for each in words]
    with process([sys.executable, "-m", "gymtap", "tail", capture, "--failed"], 10.0, env=run.environment) as tail:
        until("tail shows tries", lambda: len(tail.log.lines) >= 6, 20.0, tail)
    tried = "\n".join(tail.log.text().splitlines()[:6])
    run.said[HUNG.name].insert(1, Said("gymtap tail --failed", tried, 130))


def look_at_rest(run: Run, provider_url: str, pages: bool) -> None:
    """Every case that ended: hop, leaf, layer, finding, cause."""
    capture = Capture(run.capture_path)
    path = str(run.capture_path)
    for case in (*CASES, REFUSED_KEY):
        key = run.rows[case.name]
        found = diagnosed(capture, key)
        _check_hop(run, case, found, capture)
        _check_leaf(run, case, found, capture, provider_url)
        run.check(case.name, f"the layer is {case.layer}", found["layer"] == case.layer, found["layer"])
        reward = capture.row(key).reward
        run.check(case.name, "the reward is there, or not", (reward is not None) == case.scored, reward)
        if case.field:
            pointers = [f.pointer or "" for f in capture.findings(row=key)]
            named = any(pointer.endswith(f"/{case.field}") for pointer in pointers)
            run.check(case.name, f"a live finding names {case.field}", named, pointers)
        if pages:
            label = key.label
            run.said[case.name] = [run.gymtap(face, "-c", path, label) for face in ("why", "tree")]
    _check_poisoned(run, capture, provider_url)
    _check_causes(run)
    if pages:
        more(run)


def more(run: Run) -> None:
    """What else is worth seeing on a page."""
    path = str(run.capture_path)
    poisoned = run.rows[POISONED].label
    run.said[REFUSED_KEY.name] += [run.gymtap("why", "-c", path, poisoned), run.gymtap("tree", "-c", path, poisoned)]
    bad = run.asked("why", "-c", path, run.rows["verify-without-reward"].label)
    run.said["verify-without-reward"].append(run.gymtap("show", "-c", path, bad["exchange"], "--response"))
    run.said["index"] = [run.gymtap("rows", path), run.gymtap("causes", path, "--all")]


def diagnosed(capture: Capture, key: RowKey) -> dict[str, Any]:
    """What `gymtap why --json` says of a row."""
    return diagnose_row(capture, capture.row(key), now_ns=time.time_ns()).model_dump(mode="json")


def _exchanges(capture: Capture, key: RowKey) -> list[Exchange]:
    return list(capture.exchanges(row=key))


def _body(capture: Capture, exchange: Exchange) -> bytes:
    body = exchange.response.body if exchange.response else None
    return capture.body(body) if body and body.digest else b""


def _at_fault(capture: Capture, case: Case, key: RowKey) -> list[Exchange]:
    """The recorded exchanges that the case is about."""
    return [
        one
        for one in _exchanges(capture, key)
        if one.call is case.call and (one.response.status if one.response else None) == case.status
    ]


def _check_hop(run: Run, case: Case, found: dict[str, Any], capture: Capture) -> None:
    wanted = [one.id for one in _at_fault(capture, case, run.rows[case.name])]
    run.check(case.name, "why names the hop at fault", found["exchange"] in wanted, (found["exchange"], wanted))
    chain = [hop["call"] for hop in found["chain"]]
    run.check(
        case.name, "the chain begins with /run and ends there", (chain[0], chain[-1]) == ("run", case.call), chain
    )


def _check_leaf(run: Run, case: Case, found: dict[str, Any], capture: Capture, provider_url: str) -> None:
    """The leaf is what the hop said; of a verifier that answered 200 it is what the agent made of that."""
    key = run.rows[case.name]
    said = found["innermost"]["leaf"]["text"]
    if case.provider_mode:
        direct = ask_provider(provider_url, case.provider_mode)
        run.check(case.name, "the leaf is what the provider says when it is asked", said.encode() == direct, said)
        return
    at_fault = _at_fault(capture, case, key)
    if case.status == 200:
        at_fault = [one for one in _exchanges(capture, key) if one.call is Call.RUN and one.parent is not None]
    recorded = _body(capture, at_fault[0]).decode() if at_fault else None
    wanted = recorded if recorded is None or recorded[0] == "{" else json.loads(recorded)
    run.check(case.name, "the leaf is the recorded body", said == wanted, (said, wanted))


def ask_provider(url: str, mode: str) -> bytes:
    """What the stub says to anyone in that mode, past Gym and past the tap."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"[[fail:{mode}]]"}]}).encode()
    request = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        return error.read()


def _check_poisoned(run: Run, capture: Capture, provider_url: str) -> None:
    key = run.rows[POISONED]
    found = diagnosed(capture, key)
    calls = {one.call for one in _exchanges(capture, key)}
    leaf = found["innermost"]["leaf"]["text"].encode()
    run.check(POISONED, "no call of the row reached the provider", Call.PROVIDER not in calls, calls)
    run.check(POISONED, "why names the model server", found["chain"][-1]["call"] == "model", found["chain"])
    run.check(POISONED, "the leaf is the old error", leaf == ask_provider(provider_url, "401"), leaf)
    told = " ".join(item["text"] for item in found["evidence"])
    run.check(POISONED, "why says that the provider was not asked", "without asking the provider" in told, told)


def _check_causes(run: Run) -> None:
    groups = run.asked("causes", str(run.capture_path), "--all")["causes"]
    where = {label: cause["fingerprint"] for cause in groups for label in cause["rows"]}
    cases = [run.rows[case.name].label for case in (HUNG, *CASES, REFUSED_KEY)]
    found = [where.get(label) for label in cases]
    run.check("all", "every failure has a cause of its own", None not in found and len(set(found)) == len(cases), found)
    poisoned = next(cause for cause in groups if run.rows[POISONED].label in cause["rows"])
    run.check("all", "rows that one old error failed are one cause", poisoned["count"] == 2, poisoned["rows"])
    innocent = {one.key.label for one in _rows(run) if one.reward is not None} - set(cases)
    run.check("all", "no row that went well has a cause", not innocent & where.keys(), innocent & where.keys())


def replay(run: Run, when: str, *more_words: str) -> None:
    """The verifier alone, with the row as it was and with the field that it misses."""
    label = run.rows["verify-422"].label
    words = ("replay", "-c", str(run.capture_path), label, "--from", "verify", "--yes", *more_words)
    for wanted, changed in (("REPRODUCED", ()), ("FIXED", ("--set", "/expected_answer=A"))):
        said = run.gymtap(*words, *changed)
        run.check("verify-422", f"replay {when} says {wanted}", f"  {wanted} 1/1" in said.text, said.text)
        if more_words or "verify-422" not in run.said:
            continue
        run.said["verify-422"].append(said)


def alone(run: Run, config: str) -> None:
    """The resources server and nothing else of Gym, as Gym would start it."""
    folder = run.work / "lab" / "work" / "resources_servers" / "chaos"
    python = run.work / "lab" / "venvs" / "resources_servers" / "chaos" / ".venv" / "bin" / "python"
    port = yaml.safe_load(config)["chaos"]["resources_servers"]["chaos"]["port"]
    given = {"NEMO_GYM_CONFIG_DICT": config, "NEMO_GYM_CONFIG_PATH": "chaos"}
    with process([str(python), "app.py"], 20.0, env=run.environment | given, cwd=folder) as server:
        until("the resources server is up", lambda: "Uvicorn running" in server.log.text(), 60.0, server)
        replay(run, "with the resources server alone", "--to", f"chaos=http://127.0.0.1:{port}")


def look_without_traffic(run: Run, log: Log, pages: bool) -> None:
    """A row that the collector refuses: nothing of it is on the wire; the file and the log are what there is."""
    (run.work / "missing.log").write_text(log.text())
    run.check(
        NEVER_SENT, "the collector died of it", "KeyError: 'responses_create_params'" in log.text(), log.text()[-300:]
    )
    source = str(run.work / "missing.jsonl")
    found = run.asked("check", "rows", source)
    run.check(NEVER_SENT, "check rows names the field", "/responses_create_params" in json.dumps(found), found)
    told = run.asked("why", "--log", str(run.work / "missing.log"))
    run.check(NEVER_SENT, "why reads it from the log alone", told["layer"] == "data_schema", told)
    known = {one.key for one in _rows(run) if one.key.run in {None, 1}}
    run.check(NEVER_SENT, "the capture holds no row of it", len(known) == 2 + 2 * (len(CASES) + 1) + 1, len(known))
    if pages:
        faces = (("check", "rows", source), ("why", "--log", str(run.work / "missing.log")))
        run.said[NEVER_SENT] = [run.gymtap(*words) for words in faces]


def redaction(run: Run) -> None:
    """No body, no header, no finding and no file of the capture holds the key."""
    capture = Capture(run.capture_path)
    places: list[str] = []
    for one in capture.exchanges():
        sides = (one.request.body, one.response.body if one.response else None)
        bodies = [capture.body(body) for body in sides if body and body.digest]
        if any(KEY.encode() in body for body in bodies) or KEY in one.model_dump_json():
            places.append(one.id)
    places += [
        str(path.name) for path in run.capture_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    places += ["info"] if KEY in capture.info().model_dump_json() else []
    places += ["findings"] if any(KEY in found.model_dump_json() for found in capture.findings()) else []
    run.check("all", "the capture holds no part of the API key", not places, places)


# --- the pages --------------------------------------------------------------------------------------------------


def page(run: Run, case: Case, servers: Log, collected: Log) -> Page:
    """What Gym logged while only this row ran, and what gymtap says."""
    start_ns, end_ns = run.spans[case.name]
    if case is REFUSED_KEY:
        end_ns = run.spans[POISONED][1]
    said = [(one.command, one.text) for one in run.said.get(case.name, [])]
    logs = [("collector", collected.between(start_ns, end_ns)), ("servers", servers.between(start_ns, end_ns))]
    return Page(case.name, case.title, case.about, case.row, logs, said)


def never_sent_page(run: Run, log: Log) -> Page:
    """The page of the row that was never sent."""
    about = (
        "Gym's collector reads the field before it sends anything, so nothing of this row is on any wire and a capture "
        "cannot hold it. The dataset can be checked beforehand, and the log read afterwards."
    )
    said = [(one.command, one.text) for one in run.said[NEVER_SENT]]
    given = json.loads((run.work / "missing.jsonl").read_text())
    title = "A row without responses_create_params"
    return Page(NEVER_SENT, title, about, given, [("collector", log.text().splitlines())], said)


def gym_venv(given: Path | None) -> Path | None:
    """The environment with NeMo Gym: the one given, GYMTAP_GYM_VENV's, or where it is usually installed."""
    cache = Path.home() / ".cache"
    usual = [cache / "gymtap" / "gym" / "venv", cache / "gymtap-lab" / "gym" / "venv"]
    named = [Path(os.environ["GYMTAP_GYM_VENV"])] if "GYMTAP_GYM_VENV" in os.environ else []
    candidates = [given] if given else named or usual
    return next((venv for venv in candidates if venv and (venv / "bin" / "gym").exists()), None)


def main() -> int:
    """Run, check, write; 0 when every check held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", type=Path, required=True, help="the folder with lab.sh and envs/")
    parser.add_argument("--venv", type=Path, help="the environment with NeMo Gym")
    parser.add_argument("--work", type=Path, help="where to work; a new folder by default")
    parser.add_argument("--transcripts", type=Path, help="where to write the pages")
    parser.add_argument("--json", action="store_true", help="print every check as a line of JSON")
    given = parser.parse_args()
    venv = gym_venv(given.venv)
    if venv is None:
        raise SystemExit("live_failures: no NeMo Gym: `make gym-env` installs it, --venv points elsewhere")
    work = (given.work or Path(tempfile.mkdtemp(prefix="gymtap-failures-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "GYM_LAB": str(work / "lab"),
        "GYM_VENV": str(venv),
        "RAY_raylet_start_wait_time_s": "120",
    }
    run = Run(given.lab.resolve(), work, environment, free_port())
    pages = perform(run, pages=given.transcripts is not None)
    if given.transcripts:
        index = [(one.command, one.text) for one in run.said["index"]]
        places = {str(work): "~/lab", str(work / "lab" / "work"): "~/gym", str(venv): "~/gym-venv"}
        write_pages(given.transcripts, pages, index, places)
    for check in run.checks if given.json else ():
        print(json.dumps(check))
    bad = sum(not check["ok"] for check in run.checks)
    print(f"{len(run.checks)} checks, {bad} failed; {work}", file=sys.stderr)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
