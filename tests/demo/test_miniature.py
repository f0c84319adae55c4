"""The miniature speaks Gym 0.7's wire format; no tap here."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gymtap.proxy.core.unwrap import innermost_bytes, unwrap
from gymtap.proxy.demo.dataset import rows
from gymtap.proxy.demo.miniature import Miniature, miniature
from gymtap.proxy.demo.server import Reply

type Answers = list[Reply | aiohttp.ClientError]


@pytest.fixture
async def gym() -> AsyncIterator[Miniature]:
    async with miniature("x-parent") as running:
        yield running


@pytest.fixture(scope="module")
def answers() -> Answers:
    """What the collector got for each row, in order; played once."""

    async def played() -> Answers:
        async with miniature("x-parent") as gym:
            return await gym.collect(rows(), concurrency=20)

    return asyncio.run(played())


def _reply(answers: Answers, task: int) -> Reply:
    reply = answers[task]
    assert isinstance(reply, Reply)
    return reply


def test_there_are_twenty_rows_with_their_identity_and_none_is_like_another() -> None:
    dataset = rows()
    assert [row["_ng_task_index"] for row in dataset] == list(range(20))
    assert len({json.dumps(row["responses_create_params"]) for row in dataset}) == 20


def test_rows_end_as_they_are_meant_to(answers: Answers) -> None:
    failed = [task for task in range(20) if _reply(answers, task).status != 200]
    unrewarded = [task for task in range(20) if task not in failed and _reply(answers, task).json()["reward"] == 0]
    assert failed == [2, 5, 9, 11, 14, 15, 17, 18]
    assert unrewarded == [7, 13, 16]


@pytest.mark.parametrize(
    ("task", "depth", "leaf"),
    [
        (2, 3, b'"message": "Invalid JSON schema for tool \'get_weather\''),
        (5, 3, b'"code": "invalid_api_key"'),
        (9, 3, b"<html>\r\n<head><title>500 Internal Server Error"),
        (11, 1, b'"loc":["body","expected_weather"]'),
        (14, 1, b"KeyError('tepid')"),
        (15, 2, b"KeyError('choices')"),
        (17, 0, b"1 validation error for SimpleAgentVerifyResponse\\nreward\\n"),
        (18, 2, b"received 70 of 5000 bytes"),
    ],
)
def test_errors_are_nested_as_gym_nests_them(answers: Answers, task: int, depth: int, leaf: bytes) -> None:
    """Depths and leaves are those that were measured on Gym 0.7.0 for the same failures."""
    reply = _reply(answers, task)
    servers = [wrapper.server for wrapper in unwrap(reply.body).wrappers if wrapper.server]
    agent = "SimpleAgent___weather_simple_agent"
    assert reply.status == 500
    assert isinstance(reply.json(), str)
    assert servers == {0: [], 1: [agent], 2: [agent] * 2, 3: [agent] * 2 + ["VLLMModel___policy_model"]}[depth]
    assert leaf in innermost_bytes(reply.body)[0]


def test_a_swallowed_context_overflow_is_an_empty_answer(answers: Answers) -> None:
    response = _reply(answers, 13).json()["response"]
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][-1]["content"][0]["text"] == ""


@pytest.mark.parametrize(("task", "output"), [(7, {"detail": "Not Found"}), (16, "missing")])
def test_a_tool_s_error_is_told_to_the_model(answers: Answers, task: int, output: Any) -> None:
    said = [item for item in _reply(answers, task).json()["response"]["output"] if "call_id" in item]
    told = json.loads(said[-1]["output"])
    assert said[-1]["type"] == "function_call_output"
    assert told == output or told["detail"][0]["type"] == output


async def test_two_runs_answer_alike(answers: Answers, gym: Miniature) -> None:
    again = await gym.collect([row for row in rows() if row["_ng_task_index"] != 3], concurrency=1)
    bodies = [_reply(answers, task).body for task in range(20) if task != 3]
    assert [reply.body for reply in again if isinstance(reply, Reply)] == bodies


async def test_a_session_cookie_is_starlette_s_and_is_sent_again(gym: Miniature) -> None:
    row = rows()[0]
    seeded = await gym.collector.post("weather", "/seed_session", row)
    ((name, value),) = seeded.cookies.items()
    assert name == "WeatherResourcesServer___weather"
    assert value.count(".") == 2
    assert list(json.loads(base64.b64decode(value.partition(".")[0]))) == ["session_id"]
    again = await gym.collector.post("weather", "/get_weather", {"city": "Oslo"}, {name: value})
    assert again.cookies == {name: value}


async def test_the_agent_s_answer_passes_all_cookies_on_and_a_500_sets_none(gym: Miniature) -> None:
    seeded = await gym.collector.post("weather", "/seed_session", rows()[0])
    params = rows()[0]["responses_create_params"]
    good = await gym.collector.post("weather_simple_agent", "/v1/responses", params, seeded.cookies)
    bad = await gym.collector.post("weather_simple_agent", "/v1/responses", rows()[2]["responses_create_params"])
    lost = await gym.collector.post("weather", "/get_forecast", {})
    assert {name.partition("___")[0] for name in good.cookies} == {"WeatherResourcesServer", "VLLMModel", "SimpleAgent"}
    assert (bad.status, bad.cookies) == (500, {})
    assert (lost.status, list(lost.cookies)) == (404, ["WeatherResourcesServer___weather"])


async def test_the_head_gives_yaml_inside_a_json_string(gym: Miniature) -> None:
    text = (await gym.collector.get("head_server", "/global_config_dict_yaml")).json()
    instances = (await gym.collector.get("head_server", "/server_instances")).json()
    assert isinstance(text, str)
    assert "responses_api_agents:" in text
    assert {one["name"]: one["url"] for one in instances}["weather"] == gym.private["weather"]
