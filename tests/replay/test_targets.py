"""Where servers are: a real head's own words, and endpoints that are mounted elsewhere."""

import json

import pytest
from aiohttp import web

from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.replay import targets
from gymtap.proxy.replay.send import open_client

INSTANCES = [  # as nemo-gym 0.7.0 answers
    {"config_path": "chaos", "process_name": "chaos", "name": "chaos", "url": "http://127.0.0.1:19212"},
    {
        "config_path": "chaos_agent",
        "process_name": "chaos_agent",
        "name": "simple_agent",
        "server_type": "responses_api_agents",
        "url": "http://127.0.0.1:16314",
    },
    {"config_path": "gone", "process_name": "gone", "name": "gone", "url": None},
]
CONFIGURATION = "policy_base_url: http://127.0.0.1:8000/v1\npolicy_api_key: EMPTY\nchaos: {resources_servers: {}}\n"


@pytest.fixture
async def head():
    """`await head(instances, configuration)`: a head that answers so; its URL."""
    runners = []

    async def start(instances, configuration):
        app = web.Application()

        async def answer(request):
            said = instances if request.path == "/server_instances" else configuration
            return web.Response(text=json.dumps(said), content_type="application/json")

        app.router.add_get("/{tail:.*}", answer)
        runners.append(web.AppRunner(app, access_log=None))
        await runners[-1].setup()
        await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
        return "http://{}:{}".format(*runners[-1].addresses[0][:2])

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_servers_of_a_head_go_by_their_names_in_the_configuration(head):
    async with open_client() as client:
        found = await targets.find_gym(client, await head(INSTANCES, CONFIGURATION))
    assert found.servers == {"chaos": "http://127.0.0.1:19212", "chaos_agent": "http://127.0.0.1:16314"}
    assert (found.providers, found.provider_key) == (("http://127.0.0.1:8000/v1",), "EMPTY")


@pytest.mark.parametrize(("instances", "configuration"), [({"a": 1}, ""), (["x"], ""), ([], "a: [")])
async def test_what_answers_otherwise_is_no_head(head, instances, configuration):
    async with open_client() as client:
        with pytest.raises(GymtapError, match="is not a Gym head"):
            await targets.find_gym(client, await head(instances, configuration))


@pytest.mark.parametrize(
    ("endpoint", "target", "url"),
    [
        ("http://h:1/v1", "/v1/chat/completions", "http://h:1/v1/chat/completions"),
        ("http://h:1", "/v1/chat/completions?a=%2F", "http://h:1/v1/chat/completions?a=%2F"),
        ("https://h/openai/v1/", "/v1/responses", "https://h/openai/v1/responses"),
        ("http://h:1/v1", "/openai/v1/responses", "http://h:1/v1/responses"),
        ("http://h:1/v1", "/chat/completions", "http://h:1/v1/chat/completions"),
    ],
)
def test_an_endpoints_path_takes_the_place_of_the_recorded_one(endpoint, target, url):
    assert targets.joined(endpoint, target) == url


@pytest.mark.parametrize("text", ["", "ftp://h", "http://", "/path"])
def test_a_url_that_is_none_is_refused(text):
    with pytest.raises(UsageError):
        targets.base_url(text)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:1", True),
        ("http://localhost", True),
        ("http://[::1]:1", True),
        ("http://10.0.0.1", False),
        ("http://127.0.0.1.example.org", False),
        ("http://localhost.example.org", False),
    ],
)
def test_only_this_machines_own_address_is_this_machine(url, here):
    assert targets.on_loopback(url) is here
