"""Replays and whole runs without a provider: its recorded answers stand where it stood."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.demo.dataset import rows
from gymtap.proxy.replay import load
from gymtap.proxy.replay.match import Matcher
from gymtap.proxy.replay.playback import Playback, pieces
from gymtap.proxy.replay.stub import Stub
from gymtap.proxy.store import Capture
from gymtap.schemas import Call, ServerKind, TransportError, TransportErrorKind

BERGEN = "/responses_create_params/input/1/content=What is the weather like in Bergen?"


@pytest.fixture
def stubbed(gym, gymtap):
    """`stubbed("0.0", …)` with no provider but the stub."""
    gym.with_provider(there=False)

    def call(*arguments):
        common = ("--stub", "provider", "--stub-listen", gym.stub, "--yes", "--json", "--capture", str(gym.capture))
        return gymtap("replay", *arguments, *common)

    return call


def test_a_row_with_a_tool_replays_end_to_end_with_the_same_reward_and_no_answer_left(stubbed):
    [found] = stubbed("0.0").json()["results"]
    assert (found["verdict"], found["attempts"][0]["reward"]) == ("REPRODUCED", 1.0)
    assert (found["misses"], found["unasked"]) == ([], 0)


def test_a_playback_that_nobody_asked_is_said_to_prove_nothing(gym, gymtap):
    """The servers have their provider still, so the verdict is of that one."""
    command = ("replay", "0.0", "--stub", "provider", "--stub-listen", gym.stub, "--yes")
    said = gymtap(*command, "--capture", str(gym.capture))
    assert "nobody asked the playback" in said.out


def test_retries_and_broken_connections_are_played_as_they_were(stubbed):
    for row in ("3.0", "9.0", "18.0"):  # 429 twice and then well; a page of HTML three times; a body that is cut
        [found] = stubbed(row, "-n", "2").json()["results"]
        assert (found["verdict"], found["unasked"]) == ("REPRODUCED", 0)


def test_a_changed_prompt_is_reported_at_the_first_request_that_differs(stubbed):
    said = stubbed("0.0", "--set", BERGEN)
    assert said.code == 1
    [found] = said.json()["results"]
    assert found["verdict"] == "DIFFERENT"
    assert '/messages/1/content: "What is the weather like in Oslo?"' in found["misses"][0]
    assert (found["first_difference"]["call"], found["first_difference"]["side"]) == ("provider", "request")


def test_loosely_the_same_change_is_answered_with_what_was_recorded(stubbed):
    said = stubbed("0.0", "--set", BERGEN, "--stub-loose")
    assert said.code == 0
    [found] = said.json()["results"]
    assert (found["misses"], found["unasked"]) == ([], 0)


def test_a_miss_can_be_passed_on_to_a_real_provider(stubbed, gym):
    endpoint = gym.miniature.private["provider"] + "/v1"
    more = ("--stub-miss", "pass", "--endpoint", endpoint, "--set", "/expected_weather=wet")
    [found] = stubbed("0.0", "--set", BERGEN, *more).json()["results"]
    assert found["attempts"][0]["reward"] == 1.0
    assert len(found["misses"]) == 2


@pytest.mark.parametrize(
    ("kinds", "stood_in_for"), [("policy_model", ["policy_model"]), ("model,provider", ["policy_model", "provider"])]
)
def test_any_boundary_can_be_stubbed_by_kind_or_by_name(gym, gymtap, kinds, stood_in_for):
    gym.miniature.egress.addresses.update(dict.fromkeys(stood_in_for, f"http://{gym.stub}"))
    more = ("--stub-listen", gym.stub, "--yes", "--json", "--capture", str(gym.capture))
    [found] = gymtap("replay", "0.0", "--stub", kinds, *more).json()["results"]
    gym.miniature.egress.addresses.update(gym.miniature.private)
    assert (found["verdict"], found["attempts"][0]["reward"], found["misses"]) == ("REPRODUCED", 1.0, [])
    assert found["unasked"] == (0 if kinds == "policy_model" else 2)  # a model server that is played asks no provider


def test_an_answer_that_a_model_server_never_recovers_from_is_said_before_it_is_played(gym, gymtap):
    gym.with_provider(there=False)
    common = ("--stub", "provider", "--stub-listen", gym.stub, "--capture", str(gym.capture))
    assert (
        "answered 401: with it, Gym 0.7's model server refuses every later call" in gymtap("replay", "5.0", *common).err
    )
    assert "refuses every later call" not in gymtap("replay", "9.0", *common).err


def test_a_place_that_is_taken_is_refused_before_anything_is_sent(gym, gymtap):
    said = gymtap("replay", "0.0", "--stub", "provider", "--yes", "--capture", str(gym.capture))
    assert said.code == 1
    assert f"cannot stand in at {gym.miniature.private['provider']}" in said.err


def test_a_provider_call_itself_can_be_answered_from_the_capture_without_a_credential(stubbed):
    [found] = stubbed("0.0", "--from", "provider").json()["results"]
    assert found["verdict"] == "REPRODUCED"


def provider(exchange):
    return exchange.kind is ServerKind.PROVIDER


async def _collect(gym, playback):
    """The whole dataset again, against a playback; rewards by task, None for a row that failed."""
    async with playback.listening([("127.0.0.1", gym.stub_port)]):
        answers = await gym.miniature.collect(rows(), 4)
    return [answer.json().get("reward") if answer.status == 200 else None for answer in answers]


def test_a_whole_dataset_runs_again_without_a_provider_and_gives_the_same_rewards_row_by_row(gym):
    gym.with_provider(there=False)
    capture = Capture(gym.capture)
    stub = Stub(frozenset({"provider"}))
    matcher = Matcher(stub.entries(load.requests(capture, provider)), again=True, load=partial(load.recorded, capture))
    playback = Playback(matcher)
    rewards = gym.call(_collect(gym, playback))
    assert rewards == [row.reward for row in sorted(capture.rows(), key=lambda row: row.key.task)]
    assert (playback.tally.missed, playback.tally.repeated, matcher.left()) == (0, 0, [])
    assert gym.call(_collect(gym, Playback(matcher))) == rewards  # and once more, from the first answer on


def test_a_playback_knows_the_models_and_is_ready(gym):
    async def ask():
        stub = Stub(frozenset({"provider"}))
        asked = list(load.requests(Capture(gym.capture), provider))
        recorded = Playback(Matcher(stub.entries(asked)), stub.reads(load.reads(Capture(gym.capture))))
        made_up = Playback(Matcher(stub.entries(asked)))
        found = []
        for playback in (recorded, made_up):
            async with playback.listening([("127.0.0.1", 0)]) as [url], aiohttp.ClientSession() as client:
                for path in ("/v1/models", "/health", "/no/such"):
                    async with client.get(url + path) as response:
                        found.append((response.status, await response.json()))
        return found

    recorded, ready, unknown, made_up, *_ = gym.call(ask())
    assert recorded == (200, {"object": "list", "data": [{"id": "demo-model", "object": "model"}]})
    assert ready == (200, {"status": "ok"})
    assert unknown[0] == 422
    assert [model["owned_by"] for model in made_up[1]["data"]] == ["gymtap-playback"]


EVENTS = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[]}\r\n\r\ndata: [DONE]\n\n'


def test_a_stream_is_cut_after_each_event_and_nowhere_else():
    assert [len(piece) for piece in pieces(EVENTS)] == [47, 24, 14]
    assert b"".join(pieces(EVENTS)) == EVENTS
    assert pieces(b"no event") == [b"no event"]


@asynccontextmanager
async def asked(playback, body):
    """What a playback answers to one request."""
    async with (
        playback.listening([("127.0.0.1", 0)]) as [url],
        aiohttp.ClientSession() as client,
        client.post(f"{url}/v1/chat/completions", json=body) as response,
    ):
        yield response


@given(st.lists(st.sampled_from([b"data: x", b"\n", b"\r\n", b"\n\n", b"\0", b"", b": ping"])).map(b"".join))
def test_the_pieces_of_any_body_are_the_body(body):
    assert b"".join(pieces(body)) == body
    assert all(pieces(body))


async def test_a_stream_is_played_as_a_stream(make):
    stream = (("content-type", "text/event-stream; charset=utf-8"), ("content-encoding", "gzip"))
    entry = make("a1", Call.PROVIDER, {"model": "m"}, EVENTS, answer_headers=stream)
    async with asked(Playback(Matcher([entry])), {"model": "m"}) as response:
        assert response.headers["Transfer-Encoding"] == "chunked"
        assert "Content-Encoding" not in response.headers
        assert await response.read() == EVENTS


@pytest.mark.parametrize("kind", [TransportErrorKind.RESET, TransportErrorKind.CLOSED])
@pytest.mark.parametrize("status", [None, 200])
async def test_a_connection_that_broke_breaks_again(make, kind, status):
    error = TransportError(kind=kind, message="it broke")
    said = (("content-type", "application/json"), ("content-length", "5000"))
    body = b'{"id":' if status else None
    entry = make("a1", Call.PROVIDER, {"a": 1}, body, status=status, error=error, answer_headers=said)
    with pytest.raises(aiohttp.ClientError):
        async with asked(Playback(Matcher([entry])), {"a": 1}) as response:
            await response.read()


async def test_a_miss_is_answered_so_that_no_client_of_gym_retries_or_swallows_it(make):
    playback = Playback(Matcher([make("a1", Call.PROVIDER, {"max_tokens": 1}, {})]))
    async with asked(playback, {"max_tokens": 2}) as response:
        said = (await response.json())["error"]
        assert response.status == 422
    assert (said["type"], said["param"]) == ("gymtap_playback_miss", "/max_tokens")
    assert playback.tally.misses[0].endswith("nearest is a1, first difference at /max_tokens: 1 -> 2")


async def test_many_clients_are_answered_at_once(make):
    entries = [make(f"a{n}", Call.PROVIDER, {"n": n}, {"n": n}, at=n) for n in range(50)]
    async with Playback(Matcher(entries)).listening([("127.0.0.1", 0)]) as [url], aiohttp.ClientSession() as client:

        async def ask(n):
            async with client.post(f"{url}/v1/chat/completions", json={"n": n}) as response:
                return (await response.json())["n"]

        assert await asyncio.gather(*(ask(n) for n in range(50))) == list(range(50))
