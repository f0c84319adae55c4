"""Made-up traffic in Gym's wire format: rows as scripts, interleaved in any order, the truth noted beside them.

Only what Gym really sends is sent: identity in /run, seed and verify; a cookie from whoever sets one; nothing at all on
first model calls and on provider calls.
"""

import base64
import hashlib
import json
import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from transcript import SURE, Book, Tap, key_of

from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Attribution, Confidence, Server, ServerKind, TransportError, TransportErrorKind

type Steps = Generator[None, None, None]
type Key = tuple[int, int, str | None]


def server(name: str, kind: ServerKind) -> Server:
    return Server(name=name, kind=kind, listen=f"http://{name}", upstream=f"http://{name}")


ENVIRONMENT = server("env", ServerKind.ENVIRONMENT)
RESOURCES = server("tools", ServerKind.RESOURCES)
MODEL = server("policy", ServerKind.MODEL)
PROVIDER = server("provider", ServerKind.PROVIDER)


@dataclass(frozen=True)
class Script:
    """How a row goes. `environment`: an environment server relays it; `prefixed`: paths name it, if it has a name."""

    task: int = 0
    rollout: int = 0
    prompt: str = "what is it like in sf?"
    tools: int = 1
    answer: str = "The answer is \\boxed{A}, I believe."
    environment: bool = True
    prefixed: bool = False
    refusals: int = 0  # the provider answers 429 so often before it answers
    fails: bool = False  # the model server answers 500 in the end
    gives_up: bool = False  # the collector goes away while the self-call is open
    names_row: bool = True
    ids: str = "random"  # or "counted", the same in every row; or "digest", the same for the same request
    agent: str = "agent"


@dataclass
class World:
    """A tap, the clock of ids, and what is true."""

    tap: Tap = field(default_factory=Tap)
    causality: bool = False
    seed: int = 0
    truth: dict[str, Key | None] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.tap.book = Judge(self)
        self.tap.addon._sink = self.tap.book

    def token(self, kind: str) -> str:
        return f"{kind}_{self.random.getrandbits(96):024x}"

    def cookie(self, owner: str) -> str:
        payload = base64.b64encode(json.dumps({"session_id": self.token("s")}).encode()).decode()
        return f"{owner}={payload}.time.signature"

    def open(
        self,
        to: Server,
        path: str,
        body: Any,
        row: Key | None,
        parent: Flow | None,
        *,
        cookies: str = "",
        attempt: int = 0,
    ) -> Flow:
        number = f"a{len(self.truth) + 1}"
        headers = (("content-type", "application/json"), *((("Cookie", cookies),) if cookies else ()))
        if to is PROVIDER:
            headers += (("Authorization", "Bearer EMPTY"),)
        flow = Flow(number, to, len(self.truth), "POST", path, headers, request_body=json.dumps(body).encode())
        flow.causality_parent = parent.id if self.causality and parent is not None else None
        self.truth[number], self.parents[number] = row, parent.id if parent else None
        self.attempts[number] = attempt
        self.tap.open(flow)
        return flow

    def end(self, flow: Flow, body: Any, status: int = 200, cookies: tuple[str, ...] = ()) -> None:
        flow.status, flow.response_body = status, json.dumps(body).encode()
        flow.response_headers = tuple(("set-cookie", f"{cookie}; path=/") for cookie in cookies)
        self.tap.end(flow)

    def drop(self, flow: Flow, kind: TransportErrorKind = TransportErrorKind.CLIENT_GONE) -> None:
        flow.error = TransportError(kind=kind, message="gone")
        self.tap.end(flow)

    def play(self, scripts: list[Script]) -> None:
        """Run all rows at once, one step of a random one at a time."""
        running: list[Steps] = [row(self, script) for script in scripts]
        while running:
            chosen = self.random.randrange(len(running))
            try:
                next(running[chosen])
            except StopIteration:
                running.pop(chosen)


class Judge(Book):
    """A book that notes every sure word that is not the truth, the moment it is said."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def attribute(self, exchange: str, attribution: Attribution, parent: str | None, attempt: int) -> None:
        super().attribute(exchange, attribution, parent, attempt)
        self._judge(exchange, attribution, parent)

    def read(self, flow: Flow) -> None:
        super().read(flow)
        self._judge(flow.id, flow.attribution, flow.parent)

    def _judge(self, exchange: str, attribution: Attribution, parent: str | None) -> None:
        truth = self.world.truth.get(exchange)
        if attribution.confidence in SURE and truth is not None and key_of(attribution) != truth:
            self.world.wrong.append(f"{exchange} is {truth}, not {attribution!r}")
        if parent is not None and parent != self.world.parents.get(exchange, parent):
            self.world.wrong.append(f"the parent of {exchange} is {self.world.parents[exchange]}, not {parent}")
        if attribution.confidence is Confidence.AMBIGUOUS and truth is not None and len(attribution.candidates) < 20:
            keys = [(row.task, row.rollout, row.agent) for row in attribution.candidates]
            if truth not in keys:
                self.world.wrong.append(f"{exchange} is {truth}, not among {keys}")


def row(world: World, script: Script) -> Iterator[None]:
    """One row from /run to its end; a step is one event."""
    key = (script.task, script.rollout, script.agent) if script.names_row else None
    stated = {"_ng_task_index": script.task, "_ng_rollout_index": script.rollout, "agent_ref": {"name": script.agent}}
    create = {"input": [{"role": "user", "content": script.prompt}]}
    body = {"responses_create_params": create, **(stated if script.names_row else {})}
    prefix = f"/ng-rollout/{script.task}-{script.rollout}" if script.prefixed and script.names_row else ""
    agent = server(script.agent, ServerKind.AGENT)
    outer = None
    if script.environment:
        outer = world.open(ENVIRONMENT, "/run", body, key, None)
        yield
    run = world.open(agent, "/run", body, key, outer)
    yield
    seed = world.open(RESOURCES, prefix + "/seed_session", body, key, run)
    yield
    session, agent_session = world.cookie("Tools___tools"), world.cookie("Agent___agent")
    world.end(seed, {}, cookies=(session,))
    yield
    turn = world.open(agent, prefix + "/v1/responses", create, key, run, cookies=session)
    yield
    if script.gives_up:
        world.drop(turn)
        yield
    turns = Turns(world, script, key, turn, prefix, list(create["input"]))
    for number in range(script.tools + 1):
        if script.fails and number == script.tools:
            break
        yield from turns.ask(number < script.tools)
        if number < script.tools:
            tool = world.open(RESOURCES, "/get_weather", {"city": "sf"}, key, turn, cookies=session)
            yield
            world.end(tool, {"weather": "cold"}, cookies=(session,))
            yield
    if script.fails:
        yield from turns.fail()
    if script.gives_up:
        world.drop(run)
        if outer is not None:
            world.drop(outer)
        return
    if script.fails:
        world.end(turn, "inner error", 500)
        yield
        world.end(run, "inner error", 500)
    else:
        response = {"id": turns.id, "output": turns.output}
        world.end(turn, response, cookies=(session, turns.cookie, agent_session))
        yield
        cookies = "; ".join((session, turns.cookie, agent_session))
        verify = world.open(RESOURCES, prefix + "/verify", body | {"response": response}, key, run, cookies=cookies)
        yield
        world.end(verify, {"reward": 1.0}, cookies=(session,))
        yield
        world.end(run, {"reward": 1.0}, cookies=(agent_session,))
    yield
    if outer is not None:
        world.end(outer, {"reward": 1.0}, cookies=(agent_session,))


@dataclass
class Turns:
    """The turns of one self-call: model calls, and the provider calls beneath them."""

    world: World
    script: Script
    key: Key | None
    turn: Flow
    prefix: str
    input: list[dict[str, Any]]
    cookie: str = ""
    id: str = ""
    output: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, calls_tool: bool) -> Iterator[None]:
        """One turn that ends well."""
        world, script = self.world, self.script
        model = self._model()
        yield
        provider = yield from self._provide(model)
        call = "call_0" if script.ids == "counted" else self._token("call")
        function = {"name": "get_weather", "arguments": "{}"}
        message: dict[str, Any] = {"role": "assistant", "content": script.answer}
        item: dict[str, Any] = {"type": "message", "role": "assistant", "content": [{"text": script.answer}]}
        if calls_tool:
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": call, "function": function}]}
            item = {"type": "function_call", "call_id": call, **function}
        world.end(provider, {"id": self._token("chatcmpl"), "choices": [{"message": message}]})
        yield
        self.id, self.cookie, self.output = self._token("resp"), self.cookie or world.cookie("Model___policy"), [item]
        world.end(model, {"id": self.id, "output": [item]}, cookies=(self.cookie,))
        yield
        outcome = [{"type": "function_call_output", "call_id": call, "output": "cold"}] if calls_tool else []
        self.input = [*self.input, item, *outcome]

    def fail(self) -> Iterator[None]:
        """One turn that the provider refuses for good."""
        model = self._model()
        yield
        provider = yield from self._provide(model)
        self.world.end(provider, {"error": "no"}, 400)
        yield
        self.world.end(model, "inner error", 500)
        yield

    def _token(self, kind: str) -> str:
        if self.script.ids != "digest":
            return self.world.token(kind)
        return f"{kind}_{hashlib.sha256(json.dumps(self.input).encode()).hexdigest()[:24]}"

    def _model(self) -> Flow:
        path = self.prefix + "/v1/responses"
        return self.world.open(MODEL, path, {"input": self.input}, self.key, self.turn, cookies=self.cookie)

    def _provide(self, model: Flow) -> Generator[None, None, Flow]:
        body = {"model": "stub", "messages": [_converted(item) for item in self.input]}
        for attempt in range(self.script.refusals):
            refused = self.world.open(PROVIDER, "/v1/chat/completions", body, self.key, model, attempt=attempt)
            yield
            self.world.end(refused, {"error": "slow down"}, 429)
            yield
        provider = self.world.open(
            PROVIDER, "/v1/chat/completions", body, self.key, model, attempt=self.script.refusals
        )
        yield
        return provider


def _converted(item: dict[str, Any]) -> dict[str, Any]:
    """A Responses item as vllm_model of Gym 0.7 sends it to /chat/completions."""
    if item.get("type") == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        return {"role": "assistant", "content": None, "tool_calls": [{"id": item["call_id"], "function": function}]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    return {"role": item["role"], "content": item["content"]}
