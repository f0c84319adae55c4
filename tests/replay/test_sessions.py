"""Replays against a resources server that keeps state, forgets closed sessions and sometimes fails."""

import base64
import itertools
import json
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.engine import Causality
from gymtap.proxy.replay.edits import assignment
from gymtap.proxy.replay.inner import Inside
from gymtap.proxy.replay.prepare import Changes, changed, of_row
from gymtap.proxy.replay.run import Order, replay
from gymtap.proxy.store import Capture
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.schemas import Call, RowKey, Server, ServerKind

ROW = {"_ng_task_index": 0, "_ng_rollout_index": 0}
KEY = RowKey(task=0, rollout=0)
SESSION = "resources-session-197bdd917f404af4a92815ba59d451f6"


def session_cookie(number):
    """As Starlette signs one."""
    payload = base64.b64encode(json.dumps({"session_id": str(uuid.UUID(int=number))}).encode()).decode()
    return f"{payload}.aSv8xw.{'Zk2mQ3J0c2lnbmF0dXJlc2ln' + str(number)}"


@dataclass
class Counter:
    """A session counts its `/add`s; verify gives a reward for exactly one. A session's id opens once."""

    mode: str | None = None
    flaky: bool = False
    sessions: dict[str, int] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    verified: int = 0
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def app(self) -> web.Application:
        app = web.Application()
        for path, answer in (
            ("/seed_session", self.seed), ("/add", self.add), ("/verify", self.verify), ("/close_session", self.close),
        ):  # fmt: skip
            app.router.add_post(path, answer)
        app.router.add_get("/reverify_mode", self.reverify_mode)
        app.router.add_get("/openapi.json", self.openapi)
        return app

    def session(self, request):
        self.seen.append((request.path, dict(request.headers)))
        return request.cookies.get("Counter___counter", "")

    async def seed(self, request):
        self.session(request)
        name = (await request.json()).get("resources_session_id", "")
        if name and name in self.opened:
            return web.json_response({"detail": "this session is closed"}, status=409)
        self.opened.add(name)
        cookie = session_cookie(next(self.numbers))
        self.sessions[cookie] = 0
        response = web.json_response({"resources_session_id": name})
        response.headers["Set-Cookie"] = f"Counter___counter={cookie}; Path=/"
        return response

    async def add(self, request):
        session = self.session(request)
        if session not in self.sessions:
            return web.json_response({"detail": "no such session"}, status=404)
        self.sessions[session] += 1
        return web.json_response({"count": self.sessions[session]})

    async def verify(self, request):
        count = self.sessions.get(self.session(request), -1)
        self.verified += 1
        if self.flaky and self.verified % 3 == 1:
            return web.json_response(f"TimeoutError('judge at 0x7f00{self.verified:08x}')", status=500)
        return web.json_response({**await request.json(), "count": count, "reward": float(count == 1)})

    async def close(self, request):
        self.sessions.pop(self.session(request), None)
        return web.json_response({})

    async def reverify_mode(self, _):
        return web.json_response(self.mode) if self.mode else web.json_response({"detail": "Not Found"}, status=404)

    async def openapi(self, _):
        schema = {"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}}
        body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Verify"}}}}
        return web.json_response(
            {"paths": {"/verify": {"post": {"requestBody": body}}}, "components": {"schemas": {"Verify": schema}}}
        )


async def rollout(url, *, closing):
    """What an agent does with the server: one row, as it is recorded."""
    named = {"resources_session_id": SESSION} if closing else {}
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
        async with client.post(f"{url}/seed_session", json={**ROW, **named}) as seeded:
            cookies = {"Cookie": f"Counter___counter={seeded.cookies['Counter___counter'].value}"}
        for path, body in (
            ("/add", {"by": 1}),
            ("/verify", {**ROW, "answer": "x"}),
            ("/close_session", {**ROW, **named}),
        ):
            if path != "/close_session" or closing:
                async with client.post(url + path, json=body, headers=cookies) as answer:
                    await answer.read()


@asynccontextmanager
async def recorded(counter, directory, *, closing=False):
    """The server, and a capture of one row; yields the server's own URL."""
    runner = web.AppRunner(counter.app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    upstream = "http://{}:{}".format(*runner.addresses[0][:2])
    try:
        async with Tap(TapSettings(capture=directory, keep_cookies=False)) as tap:
            server = Server(name="counter", kind=ServerKind.RESOURCES, listen="http://127.0.0.1:0", upstream=upstream)
            await rollout((await tap.listen(server)).server.listen, closing=closing)
        counter.seen.clear()
        yield upstream
    finally:
        await runner.cleanup()


async def again(directory, into, start="verify", *, changes=(), agree=lambda _: True, **options):
    """Replay the row; its one result."""
    capture = Capture(directory)
    draft = changed(of_row(capture, KEY, start), Changes(tuple(map(assignment, changes))))
    order = Order(drafts=[draft], servers=capture.servers(), original=directory, into=into, **options)
    results = await replay(order, {}, agree)
    return None if results is None else results[0]


async def test_a_server_with_state_is_brought_back_to_where_it_was(tmp_path):
    async with recorded(counter := Counter(), tmp_path / "capture"):
        result = await again(tmp_path / "capture", tmp_path / "kept", times=2)
        assert str(result.verdict) == "REPRODUCED 2/2: the same answer, reward 1.0"
        assert [path for path, _ in counter.seen] == ["/seed_session", "/add", "/verify"] * 2


async def test_a_server_that_says_it_is_stateless_is_not_sent_its_tool_calls_again(tmp_path):
    told = []
    async with recorded(counter := Counter(mode="stateless"), tmp_path / "capture"):
        await again(tmp_path / "capture", tmp_path / "kept", agree=lambda said: told.append(said.risks) or True)
        assert [path for path, _ in counter.seen] == ["/seed_session", "/verify"]
    assert told == [[]]


async def test_a_server_that_says_nothing_is_not_trusted(tmp_path):
    told = []
    async with recorded(counter := Counter(mode="unsupported"), tmp_path / "capture") as url:
        assert await again(tmp_path / "capture", tmp_path / "kept", agree=lambda said: told.append(said.risks)) is None
        assert counter.seen == []
    assert f"tool at {url}/add: a tool may change things" in told[0]
    assert any("reverify_mode: unsupported" in risk for risk in told[0])
    assert not (tmp_path / "kept").exists()


async def test_each_attempt_opens_a_session_of_its_own_and_closes_it(tmp_path):
    async with recorded(counter := Counter(), tmp_path / "capture", closing=True):
        result = await again(tmp_path / "capture", tmp_path / "kept", times=3)
        assert str(result.verdict).startswith("REPRODUCED 3/3")
        assert counter.sessions == {}
    assert len(counter.opened) == 4
    assert all(name.startswith("resources-session-") and len(name) == len(SESSION) for name in counter.opened)


async def test_a_failure_that_comes_and_goes_is_flaky_with_its_count(tmp_path):
    async with recorded(counter := Counter(flaky=True), tmp_path / "capture"):
        counter.verified = 0
        result = await again(tmp_path / "capture", tmp_path / "kept", times=30)
    assert (result.verdict.word, result.verdict.count, result.verdict.total) == ("FLAKY", 10, 30)
    assert result.verdict.how == "10 reproduced, 20 fixed"


async def test_a_session_that_cannot_be_opened_is_said_and_nothing_is_judged(tmp_path):
    async with recorded(counter := Counter(), tmp_path / "capture", closing=True):
        counter.numbers = iter(())
        result = await again(tmp_path / "capture", tmp_path / "kept")
    assert result.attempts[0].outcome == "different"
    assert "it was not sent: seed_session at" in result.attempts[0].how


async def test_servers_see_nothing_of_the_replay_but_the_requests_themselves(tmp_path):
    async with recorded(counter := Counter(), tmp_path / "capture"):
        await rollout(await anext(urls(counter, tmp_path)), closing=False)
        by_agent, counter.seen = dict(counter.seen), []
        await again(tmp_path / "capture", tmp_path / "kept")
        by_replay = dict(counter.seen)
    for path in ("/seed_session", "/add", "/verify"):
        assert {name.lower() for name in by_replay[path]} == {name.lower() for name in by_agent[path]}
        assert by_replay[path]["User-Agent"] == by_agent[path]["User-Agent"]


async def urls(counter, directory):
    yield next(iter(Capture(directory / "capture").servers())).upstream


async def test_what_the_servers_contract_says_of_an_edit_is_said_before_sending(tmp_path):
    told = []
    async with recorded(Counter(), tmp_path / "capture"):
        agree = lambda said: told.append(said.problems) or True  # noqa: E731 - a callback
        await again(tmp_path / "capture", tmp_path / "kept", changes=["/answer=1"], agree=agree)
    assert told == [['/answer: it is not of type "string"']]


async def test_a_redacted_part_of_a_body_is_refused_by_its_name_unless_it_is_filled_in(tmp_path):
    async with recorded(counter := Counter(), tmp_path / "capture"):
        capture = Capture(tmp_path / "capture")
        draft = of_row(capture, KEY, "verify")
        secret = draft.plan.with_bodies({draft.plan.judged: b'{"login":{"password":"<redacted>"}}'})
        order = Order([type(draft)(draft.name, secret, draft.row)], capture.servers(), capture.path, tmp_path / "kept")
        with pytest.raises(GymtapError, match="/login/password was redacted"):
            await replay(order, {}, lambda _: True)
        assert counter.seen == []


async def test_through_a_running_tap_a_replay_is_marked_for_the_tap_and_its_hops_are_found(tmp_path):
    """The mark is the parent in the tap's capture; the server behind it gets the tap's own causality header."""
    async with recorded(counter := Counter(), tmp_path / "capture") as upstream:
        async with Tap(TapSettings(capture=tmp_path / "live")) as tap:
            server = Server(name="counter", kind=ServerKind.RESOURCES, listen="http://127.0.0.1:0", upstream=upstream)
            listen = (await tap.listen(server, causality=Causality.INJECT)).server.listen
            inside = Inside(tmp_path / "live")
            since = inside.now()
            async with aiohttp.ClientSession() as client:
                for path in ("/seed_session", "/add"):
                    headers = {"x-gymtap-parent": "replay-1"}
                    async with client.post(listen + path, json=ROW, headers=headers) as answer:
                        await answer.read()
            found = await inside.caused("replay-1", since, 2)
            inside.close()
        assert [(one.exchange.call, one.exchange.parent) for one in found] == [
            (Call.SEED_SESSION, "replay-1"),
            (Call.TOOL, "replay-1"),
        ]
        assert json.loads(found[0].request_body) == ROW
        assert {headers.get("x-gymtap-parent") for _, headers in counter.seen} == {one.exchange.id for one in found}
