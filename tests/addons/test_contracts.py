"""Contracts in the tap: learned beside the traffic, kept in the capture, and held against what passes."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gymtap.addons import contracts as addon
from gymtap.addons.contracts import Contracts, fetch_document
from gymtap.proxy.core.addon import Heard, Setup
from gymtap.proxy.core.flow import Flow
from gymtap.proxy.store import Capture
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.schemas import Attribution, Call, RowKey, Server, ServerKind, Severity

OPENAPI = Path(__file__).parents[1] / "data" / "openapi"
CHAOS = (OPENAPI / "chaos.json").read_bytes()
AGENT = (OPENAPI / "simple_agent.json").read_bytes()
ROW = {"responses_create_params": {"input": "hi"}, "expected_answer": "A", "options": [{"A": "x"}]}
TOOL = {"type": "function", "name": "get_weather", "strict": True, "parameters": {"type": "object", "properties": {}}}


class Notes(Heard):
    """A sink, and in short what findings it was told."""

    @property
    def said(self) -> list[tuple[str | None, str, str | None]]:
        return [(one.exchange, one.rule, one.pointer) for one in self.findings]


class Library:
    """Where the addon's thread gets documents; `gate` holds it back until it is opened."""

    def __init__(self, **documents: bytes) -> None:
        self.documents = documents
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def fetch(self, server: Server) -> bytes:
        self.asked.append(server.name)
        self.gate.wait(30)
        if server.name not in self.documents:
            raise ValueError("404 Not Found")
        return self.documents[server.name]


@dataclass
class Desk:
    """An addon, driven flow by flow."""

    notes: Notes
    library: Library
    contracts: Contracts
    number: int = 0

    def begin(self, call: Call, path: str, asked: Any = None, server: str = "chaos", parent: str | None = None) -> Flow:
        kind = {"chaos": ServerKind.RESOURCES, "agent": ServerKind.AGENT}.get(server, ServerKind.ENVIRONMENT)
        self.number += 1
        where = Server(name=server, kind=kind, listen="", upstream="")
        flow = Flow(f"a{self.number}", where, 0, "GET" if call is Call.HEALTH else "POST", path, ())
        flow.call, flow.parent, flow.request_body = call, parent, json.dumps(asked).encode()
        flow.attribution = Attribution(row=RowKey(task=0, rollout=0))
        self.contracts.listening(where)
        self.contracts.opened(flow)
        self.contracts.requested(flow)
        return flow

    def end(self, flow: Flow, status: int = 200, answer: Any = None) -> Flow:
        flow.status, flow.response_body = status, json.dumps(answer).encode()
        self.contracts.ended(flow)
        return flow

    def pass_by(self, call: Call, path: str, asked: Any = None, status: int = 200, answer: Any = None) -> Flow:
        return self.end(self.begin(call, path, asked), status, answer)

    def learn(self, *servers: str) -> None:
        """Let them answer once, and wait until their contracts are there."""
        for server in servers:
            self.end(self.begin(Call.HEALTH, "/", server=server), 200, {})
        while self.contracts._pending:
            self.contracts._settled(*self.contracts._asker.answers.get(timeout=30))


@pytest.fixture
def desk() -> Any:
    notes, library = Notes(), Library(chaos=CHAOS, agent=AGENT)
    contracts = Contracts(Setup(notes), library.fetch)
    yield Desk(notes, library, contracts)
    library.gate.set()
    contracts.stopped()


MISSING = {"detail": [{"type": "missing", "loc": ["body", "expected_answer"], "msg": "Field required", "input": {}}]}


def test_a_server_is_asked_once_and_its_contract_kept(desk: Desk) -> None:
    desk.learn("chaos")
    desk.pass_by(Call.SEED_SESSION, "/seed_session", ROW, answer={})
    assert desk.library.asked == ["chaos"]
    assert desk.notes.contracts == [("chaos", CHAOS, "")]


@pytest.mark.parametrize("kind", [ServerKind.PROVIDER, ServerKind.JUDGE, ServerKind.HEAD, ServerKind.UNKNOWN])
def test_what_is_not_gyms_is_never_asked(desk: Desk, kind: ServerKind) -> None:
    """Nobody but a Gym server is sent a request that no one asked for."""
    where = Server(name="x", kind=kind, listen="", upstream="")
    flow = Flow("a1", where, 0, "GET", "/", ())
    desk.contracts.opened(flow)
    desk.end(flow, 200, {})
    assert not desk.contracts._pending


def test_a_model_server_is_asked_where_others_are_gyms(desk: Desk) -> None:
    """Alone, what looks like one may be a provider that was called without a key."""
    where = Server(name="policy", kind=ServerKind.MODEL, listen="", upstream="")

    def answered() -> bool:
        flow = Flow("a1", where, 0, "POST", "/v1/responses", ())
        desk.contracts.opened(flow)
        desk.end(flow, 200, {})
        return desk.contracts._book(where).asked

    assert not answered()
    desk.learn("chaos")
    assert answered()


def test_a_busy_server_is_left_alone(desk: Desk) -> None:
    """Making the document stops its event loop: it is asked when it has nothing to do."""
    first, second = desk.begin(Call.VERIFY, "/verify", ROW), desk.begin(Call.VERIFY, "/verify", ROW)
    desk.end(first, 200, {"reward": 1})
    assert not desk.contracts._pending
    desk.end(second, 200, {"reward": 1})
    assert desk.contracts._pending == 1


def test_no_row_has_to_wait_for_a_document(desk: Desk) -> None:
    """Not even between two rows: servers that nobody asked in time are asked when the run's rows are done."""
    for _ in range(2):
        run = desk.begin(Call.RUN, "/run", ROW, server="agent")
        desk.end(desk.begin(Call.VERIFY, "/verify", {"options": []}, parent=run.id), 200, {"reward": 1})
        desk.end(run, 200, {"reward": 1})
    assert not desk.contracts._pending
    outer = desk.begin(Call.AGGREGATE, "/aggregate_metrics", {}, server="env")
    desk.end(desk.begin(Call.AGGREGATE, "/aggregate_metrics", {}, server="chaos"), 200, {})
    assert not desk.contracts._pending
    desk.end(outer, 200, {})
    assert desk.contracts._pending == 3
    desk.contracts.stopped()
    assert sorted(desk.library.asked) == ["agent", "chaos", "env"]
    assert ("a2", "contract.request", "/expected_answer") in desk.notes.said


def test_a_server_that_never_answered_is_not_asked(desk: Desk) -> None:
    flow = desk.begin(Call.HEALTH, "/")
    desk.contracts.ended(flow)
    assert not desk.contracts._pending


def test_a_server_without_a_document_is_noted_quietly(desk: Desk) -> None:
    desk.learn("env")
    assert desk.notes.contracts == [("env", None, "404 Not Found")]
    assert desk.notes.findings == []


@pytest.mark.parametrize("document", [b"<html>", b"[]", b"\xff", b"{}"])
def test_a_document_that_is_none_is_a_problem_too(desk: Desk, document: bytes) -> None:
    desk.library.documents["chaos"] = document
    desk.learn("chaos")
    ((server, kept, problem),) = desk.notes.contracts
    assert (server, kept) == ("chaos", None)
    assert problem


def test_a_violation_carries_the_models_words(desk: Desk) -> None:
    desk.learn("chaos")
    flow = desk.pass_by(Call.VERIFY, "/verify", {"options": []}, 422, MISSING)
    (one,) = desk.notes.findings
    assert (one.exchange, one.rule, one.pointer, one.expected) == (
        flow.id, "contract.request", "/expected_answer", "string"
    )  # fmt: skip


def test_without_a_contract_what_needs_none_is_said_at_once(desk: Desk) -> None:
    """And what needs one follows once it is there, without repeating what was said."""
    desk.library.gate.clear()
    desk.pass_by(Call.HEALTH, "/", answer={})
    refused = desk.pass_by(Call.VERIFY, "/verify", {"options": []}, 422, MISSING)
    assert desk.notes.said == [(refused.id, "contract.request", "/expected_answer")]
    odd = desk.pass_by(Call.TOOL, "/get_weather", {"wrong": 1}, 200, {})
    assert len(desk.notes.findings) == 1
    desk.library.gate.set()
    desk.contracts.stopped()
    assert desk.notes.said[1:] == [(odd.id, "contract.request", "/city")]


def test_what_waits_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are let go; they were checked by what needs no contract."""
    monkeypatch.setattr(addon, "HELD_MAX_BYTES", 5_000)
    desk.library.gate.clear()
    desk.pass_by(Call.HEALTH, "/", answer={})
    flows = [desk.pass_by(Call.TOOL, "/get_weather", {"wrong": 1}, 200, {}) for _ in range(20)]
    desk.library.gate.set()
    desk.contracts.stopped()
    said = [one.exchange for one in desk.notes.findings]
    assert said == [flow.id for flow in flows[-len(said) :]]
    assert 0 < len(said) < 20


def test_a_server_that_was_never_asked_has_a_reason(desk: Desk) -> None:
    """A tap that came late and left early says so in the capture."""
    run = desk.begin(Call.RUN, "/run", ROW, server="agent")
    desk.end(desk.begin(Call.VERIFY, "/verify", ROW, parent=run.id), 200, {"reward": 1})
    desk.contracts.stopped()
    assert desk.notes.contracts == [("chaos", None, "it was not asked, since rows were under way")]


def test_a_relayed_422_is_said_where_it_was_made(desk: Desk) -> None:
    """Gym 0.7's environment server passes an agent's refusal on; one of them has the finding."""
    outer = desk.begin(Call.RUN, "/run", ROW, server="env")
    inner = desk.begin(Call.RUN, "/run", ROW, server="agent", parent=outer.id)
    desk.end(inner, 422, MISSING)
    desk.end(outer, 422, MISSING)
    assert desk.notes.said == [(inner.id, "contract.request", "/expected_answer")]


def test_a_verifier_is_blamed_for_the_agents_failure(desk: Desk) -> None:
    """/verify answered 200 without a reward; the agent's /run ends in a 500 that names only the agent's class."""
    desk.learn("chaos", "agent")
    text = "1 validation error for SimpleAgentVerifyResponse\nreward\n  Field required [type=missing, input_value={}]"
    outer = desk.begin(Call.RUN, "/run", ROW, server="env")
    run = desk.begin(Call.RUN, "/run", ROW, server="agent", parent=outer.id)
    verify = desk.begin(Call.VERIFY, "/verify", {**ROW, "response": {}}, parent=run.id)
    desk.end(verify, 200, {"score": 1.0})
    desk.end(run, 500, text)
    desk.end(outer, 500, text)
    errors = [(one.exchange, one.rule) for one in desk.notes.findings if one.pointer == "/reward"]
    assert errors == [(verify.id, "contract.reward"), (run.id, "contract.rejected_answer")]
    assert verify.id in desk.notes.findings[-1].message


def test_a_rows_tools_meet_the_routes_of_the_server_that_it_seeds(desk: Desk) -> None:
    desk.learn("chaos")
    tools = [TOOL, {**TOOL, "name": "forecast"}]
    row = {**ROW, "responses_create_params": {"input": "hi", "tools": tools}}
    for _ in range(2):  # every row has its own, from one look
        desk.pass_by(Call.SEED_SESSION, "/seed_session", row, answer={})
    assert [(one.rule, one.severity) for one in desk.notes.findings] == 2 * [
        ("routing.parameters", Severity.ERROR),
        ("routing.no_route", Severity.WARNING),
    ]
    desk.notes.findings.clear()
    desk.pass_by(Call.TOOL, "/forecast", {}, 404, {"detail": "Not Found"})
    (one,) = desk.notes.findings
    assert (one.rule, one.severity, one.expected) == (
        "routing.unknown_tool",
        Severity.ERROR,
        "one of get_weather, boom",
    )


@dataclass
class Gym:
    """A resources server on loopback."""

    server: TestServer
    document: Callable[[], web.StreamResponse]
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")


@pytest.fixture
async def gym() -> AsyncIterator[Gym]:
    app = web.Application()

    async def openapi(request: web.Request) -> web.StreamResponse:
        made.seen.append(dict(request.headers))
        made.asked.set()
        return made.document()

    async def verify(_request: web.Request) -> web.Response:
        return web.json_response(MISSING, status=422)

    async def health(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    app.router.add_get("/openapi.json", openapi)
    app.router.add_post("/verify", verify)
    app.router.add_get("/", health)
    async with TestServer(app) as server:
        made = Gym(server, lambda: web.Response(body=CHAOS, content_type="application/json"))
        yield made


async def test_a_tap_learns_beside_the_traffic(gym: Gym, tmp_path: Path) -> None:
    """The document is in the capture and no exchange is; the finding is what the whole chain says."""
    upstream = Server(name="chaos", kind=ServerKind.RESOURCES, listen="http://127.0.0.1:0", upstream=gym.url)
    async with Tap(TapSettings(capture=tmp_path / "c")) as tap, aiohttp.ClientSession() as client:
        listener = await tap.listen(upstream)
        await (await client.get(listener.server.listen)).read()
        await asyncio.wait_for(gym.asked.wait(), 30)
        answer = await client.post(
            listener.server.listen + "/verify", json={"options": [], "api_key": "sk-" + "a" * 40}
        )
        assert answer.status == 422
        await answer.read()
    capture = Capture(tmp_path / "c")
    (contract,) = capture.contracts()
    assert (contract.server, contract.problem) == ("chaos", None)
    document = capture.document(contract)
    assert document is not None
    assert json.loads(document)["paths"].keys() == json.loads(CHAOS)["paths"].keys()
    assert [exchange.request.target for exchange in capture.exchanges()] == ["/", "/verify"]
    (found,) = capture.findings()
    assert (found.rule, found.pointer) == ("contract.request", "/expected_answer")
    assert b"sk-aaaa" not in (tmp_path / "c" / "a.sqlite").read_bytes()
    capture.close()


def a_redirect() -> web.StreamResponse:
    return web.Response(status=307, headers={"Location": "http://127.0.0.1:9/openapi.json"})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda: web.Response(status=404, reason="Not Found"), "404 Not Found"),
        (a_redirect, "307"),
        (lambda: web.Response(body=b"x" * (addon.DOCUMENT_MAX_BYTES + 1)), "longer than"),
    ],
)
async def test_a_fetch_follows_nothing_and_reads_no_more_than_it_may(
    gym: Gym, answer: Callable[[], web.StreamResponse], says: str
) -> None:
    gym.document = answer
    server = Server(name="chaos", listen="", upstream=gym.url)
    with pytest.raises(ValueError, match=says):
        await asyncio.to_thread(fetch_document, server)
    assert "Cookie" not in gym.seen[0]
    assert "Authorization" not in gym.seen[0]
