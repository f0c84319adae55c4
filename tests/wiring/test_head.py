"""A second head answers as the first, with the tap's addresses."""

import aiohttp
import orjson
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.wiring.head import (
    HeadRelay,
    fetch_config,
    gym_servers,
    read_config,
    redirect_config,
    redirect_instances,
)
from gymtap.proxy.wiring.origin import Origin
from gymtap.schemas import ServerKind

_CONFIG = {
    "head_server": {"host": "127.0.0.1", "port": 11000},
    "policy_base_url": "http://127.0.0.1:8000/v1",
    "chaos": {"resources_servers": {"chaos": {"entrypoint": "app.py", "host": "127.0.0.1", "port": 14101}}},
    "agent": {"responses_api_agents": {"simple_agent": {"host": "10.0.0.7", "port": 14102, "model": "${policy}"}}},
    "not_up": {"responses_api_models": {"vllm_model": {"entrypoint": "app.py"}}},
    "a_list": [1, 2],
}
_INSTANCES = [
    {"name": "chaos", "host": "127.0.0.1", "port": 14101, "url": "http://127.0.0.1:14101", "pid": 1},
    {"name": "other", "host": None, "port": None, "url": None},
]
_TAPPED = {("127.0.0.1", 14101): ("127.0.0.1", 50001), ("127.0.0.1", 11000): ("127.0.0.1", 50000)}


def _body(config: object) -> bytes:
    """What Gym's head answers: YAML in a JSON string."""
    return orjson.dumps(yaml.safe_dump(config))


def test_finds_every_server_that_has_an_address() -> None:
    """Neither the head, nor what is not up, nor what is no server."""
    found = [(server.name, server.kind, server.origin.url) for server in gym_servers(_CONFIG)]
    assert found == [
        ("chaos", ServerKind.RESOURCES, "http://127.0.0.1:14101"),
        ("agent", ServerKind.AGENT, "http://10.0.0.7:14102"),
    ]


def test_replaces_addresses_and_nothing_else() -> None:
    """The configuration that a collector reads differs in the tapped addresses only."""
    changed = read_config(redirect_config(_body(_CONFIG), _TAPPED))
    expected = read_config(_body(_CONFIG))
    expected["head_server"]["port"] = 50000
    expected["chaos"]["resources_servers"]["chaos"]["port"] = 50001
    assert changed == expected


def test_replaces_the_urls_of_running_servers() -> None:
    """An instance without an address stays as it is."""
    changed = orjson.loads(redirect_instances(orjson.dumps(_INSTANCES), _TAPPED))
    assert changed == [_INSTANCES[0] | {"port": 50001, "url": "http://127.0.0.1:50001"}, _INSTANCES[1]]


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)).map(
        _body
    )
)
def test_any_body_is_a_configuration_or_a_value_error(body: bytes) -> None:
    """No head's answer raises anything else."""
    try:
        gym_servers(read_config(body))
    except ValueError:
        return


async def _head(config_body: bytes, status: int = 200) -> TestServer:
    async def config(_: web.Request) -> web.Response:
        return web.Response(body=config_body, status=status, content_type="application/json")

    async def instances(_: web.Request) -> web.Response:
        return web.json_response(_INSTANCES)

    async def elsewhere(request: web.Request) -> web.Response:
        return web.Response(text=request.path_qs, status=418)

    app = web.Application()
    app.router.add_get("/global_config_dict_yaml", config)
    app.router.add_get("/server_instances", instances)
    app.router.add_get("/{path:.*}", elsewhere)
    server = TestServer(app)
    await server.start_server()
    return server


async def test_relays_the_head() -> None:
    """Configuration and instances are redirected; everything else passes as it came."""
    head = await _head(_body(_CONFIG))
    relay = HeadRelay(Origin("http", "127.0.0.1", head.port or 0))
    relay.tapped.update(_TAPPED)
    front = await relay.start()
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(front.url + "/global_config_dict_yaml") as response:
                config = read_config(await response.read())
            async with session.get(front.url + "/server_instances") as response:
                instances = await response.json()
            async with session.get(front.url + "/livez?x=1") as response:
                rest = (response.status, await response.text())
    finally:
        await relay.close()
        await head.close()
    assert config["chaos"]["resources_servers"]["chaos"]["port"] == 50001
    assert instances[0]["url"] == "http://127.0.0.1:50001"
    assert rest == (418, "/livez?x=1")


async def test_a_head_that_goes_is_not_answered_for() -> None:
    """The connection is broken off; no answer is made up."""
    head = await _head(b"")
    relay = HeadRelay(Origin("http", "127.0.0.1", head.port or 0))
    front = await relay.start()
    await head.close()
    try:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.get(front.url + "/server_instances")
    finally:
        await relay.close()


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{}", 200, "not YAML in a JSON string"),
        (b"not json", 200, "does not answer with a configuration"),
        (orjson.dumps("- 1"), 200, "its YAML is not a mapping"),
        (orjson.dumps("a: [1"), 200, "not YAML in a JSON string"),
        (b"", 404, "answers 404, so it is no Gym head"),
    ],
)
async def test_what_is_no_head_is_one_line(body: bytes, status: int, reason: str) -> None:
    """With the way out."""
    head = await _head(body, status)
    try:
        with pytest.raises(GymtapError, match=reason) as caught:
            await fetch_config(Origin("http", "127.0.0.1", head.port or 0))
    finally:
        await head.close()
    assert caught.value.hint


async def test_a_head_that_is_not_there_is_one_line(unused_tcp_port: int) -> None:
    """It names the address."""
    with pytest.raises(GymtapError, match=f"no Gym head answers at http://127.0.0.1:{unused_tcp_port}"):
        await fetch_config(Origin("http", "127.0.0.1", unused_tcp_port))
