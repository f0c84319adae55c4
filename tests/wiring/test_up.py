"""`gymtap up` and `gymtap env`: a tap that stands by itself."""

import json
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import orjson
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from gymtap.proxy.store import Capture
from gymtap.proxy.wiring.environment import SHIM

_GYMTAP = (sys.executable, "-m", "gymtap")


async def _get(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status


async def test_stands_in_front_of_several_upstreams(spawn, provider, unused_tcp_port_factory, tmp_path) -> None:
    """Requests pass to each; SIGTERM ends it with 0, and what it saw is kept under the names given."""
    first, second = unused_tcp_port_factory(), unused_tcp_port_factory()
    maps = ("--map", f"policy:provider={first}->{provider.url}", "--map", f"grader:judge={second}->{provider.url}")
    tap = await spawn(*_GYMTAP, "up", "-c", str(tmp_path / "up"), *maps)
    await tap.err_line("recording to")
    assert await _get(f"http://127.0.0.1:{first}/v1/models") == 200
    assert await _get(f"http://127.0.0.1:{second}/v1/models") == 200
    tap.send(signal.SIGTERM)
    ended = await tap.end()
    assert ended.status == 0, ended.err
    seen = [(item.server, item.kind.value) for item in Capture(tmp_path / "up").exchanges()]
    assert seen == [("policy", "provider"), ("grader", "judge")]


async def test_killed_it_leaves_its_ports_free(spawn, provider, unused_tcp_port) -> None:
    """The next one listens at once."""
    for _ in range(2):
        tap = await spawn(*_GYMTAP, "up", "--map", f"policy={unused_tcp_port}->{provider.url}")
        await tap.err_line("recording to")
        assert await _get(f"http://127.0.0.1:{unused_tcp_port}/") == 200
        tap.send(signal.SIGKILL)
        await tap.end()


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        ((), 2, "nothing to stand in front of"),
        (("--map", "policy"), 2, "has no '='"),
        (
            ("--map", "policy=0->http://no-such-host.invalid:1"),
            2,
            "the upstream of policy does not resolve: no-such-host.invalid",
        ),
        (("--map", "policy=0.0.0.0:0->127.0.0.1:1"), 2, "where other machines reach it"),
        (("--map", "policy=9->localhost:9"), 2, "would call itself"),
        (("--map", "a=9->localhost:10", "--map", "b=10->localhost:9"), 2, "in a circle: a -> b -> a"),
        (("--map", "policy=0->127.0.0.1:1", "--map", "policy=0->127.0.0.1:2"), 2, "two mappings are called 'policy'"),
        (("--takeover", "--control-port", "65536"), 2, "less than or equal to 65535"),
        (("--gym", "127.0.0.1:11000"), 2, "does not begin with http"),
        (("--map", "policy=0->127.0.0.1:1", "--upstream-ca", "/no/such/file"), 2, "cannot read the upstream CA file"),
    ],
)
async def test_what_cannot_be_meant_is_one_line(spawn, tmp_path, arguments, status, reason) -> None:
    """With a way out, before anything is made."""
    ended = await (await spawn(*_GYMTAP, "up", *arguments)).end()
    assert ended.status == status, ended.err
    lines = ended.err.splitlines()
    assert reason in lines[0]
    assert len(lines) == 2
    assert not (tmp_path / "captures").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="what another process has open is looked up in /proc")
async def test_a_circle_by_way_of_another_tap_is_refused(spawn, tmp_path, unused_tcp_port_factory) -> None:
    """Before anything listens: once both stand, one request would go round until no file may be opened."""
    ours, theirs = unused_tcp_port_factory(), unused_tcp_port_factory()
    other = await spawn(*_GYMTAP, "up", "-c", str(tmp_path / "other"), "--map", f"there={theirs}->{ours}")
    await other.err_line("recording to")
    ended = await (await spawn(*_GYMTAP, "up", "--map", f"here={ours}->localhost:{theirs}")).end()
    assert ended.status == 2, ended.err
    assert f"in a circle: here -> there of pid {other.pid} -> here" in ended.err.splitlines()[0]
    chain = await spawn(*_GYMTAP, "up", "-c", str(tmp_path / "chain"), "--map", f"before=0->{theirs}")
    await chain.err_line("recording to")


async def test_a_port_that_is_taken_names_its_owner(spawn, tmp_path) -> None:
    """Status 4, and nothing is left half up, nor an empty capture that would be the newest."""
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        port = owner.getsockname()[1]
        for arguments in (("--map", f"policy={port}->127.0.0.1:1"), ("--takeover", "--control-port", str(port))):
            ended = await (await spawn(*_GYMTAP, "up", *arguments)).end()
            assert ended.status == 4, ended.err
            assert f"port 127.0.0.1:{port} is taken" in ended.err.splitlines()[0]
            assert not list((tmp_path / "captures").iterdir())


async def test_open_to_others_only_when_asked(spawn, provider, tmp_path) -> None:
    """--expose says what it means."""
    tap = await spawn(*_GYMTAP, "up", "--expose", "--map", f"policy=0.0.0.0:0->{provider.url}")
    assert "whoever reaches it is let through and recorded" in await tap.err_line("policy is open to other machines")
    tap.send(signal.SIGINT)
    assert (await tap.end()).status == 0


async def test_stands_in_front_of_a_gym_that_is_up(spawn, provider, tmp_path) -> None:
    """A collector that reads the second head calls every server through the tap."""
    port = int(provider.url.rpartition(":")[2])
    agent = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port}
    config = {"head_server": {"host": "127.0.0.1", "port": 1}, "agent": {"responses_api_agents": {"simple": agent}}}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(yaml.safe_dump(config))

    app = web.Application()
    app.router.add_get("/global_config_dict_yaml", answer)
    head = TestServer(app)
    await head.start_server()
    tap = await spawn(*_GYMTAP, "up", "-c", str(tmp_path / "up"), "--gym", f"http://127.0.0.1:{head.port}")
    override = (await tap.err_line("point the collector here")).split()
    front = "http://{}:{}".format(*(part.partition("=")[2] for part in override[-2:]))
    await tap.err_line("recording to")
    async with aiohttp.ClientSession() as session, session.get(front + "/global_config_dict_yaml") as response:
        told = yaml.safe_load(orjson.loads(await response.read()))
    tapped = told["agent"]["responses_api_agents"]["simple"]
    assert tapped["port"] != port
    assert await _get(f"http://{tapped['host']}:{tapped['port']}/run") == 200
    tap.send(signal.SIGINT)
    assert (await tap.end()).status == 0
    await head.close()
    seen = [(item.server, item.kind.value) for item in Capture(tmp_path / "up").exchanges()]
    assert seen == [("head_server", "head"), ("agent", "agent")]


async def test_env_puts_a_run_behind_a_standing_tap(spawn, miniature, tmp_path) -> None:
    """What `gymtap env` prints, in the environment of a run that nobody wraps."""
    tap = await spawn(*_GYMTAP, "up", "--takeover", "-c", str(tmp_path / "up"))
    await tap.err_line("recording to")
    printed = await (
        await spawn(*_GYMTAP, "env", "--json", "-c", str(tmp_path / "up"), variables={"PYTHONPATH": "/mine"})
    ).end()
    variables = json.loads(printed.out)
    assert variables["PYTHONPATH"] == f"{SHIM}:/mine"
    run = miniature.variables | variables | {"PYTHONPATH": f"{SHIM}:{miniature.variables['PYTHONPATH']}"}
    assert (await (await spawn(*miniature.main(1), variables=run)).end()).status == 0
    tap.send(signal.SIGTERM)
    ended = await tap.end()
    assert ended.status == 0, ended.err
    assert Capture(tmp_path / "up").info().rows == 1


async def test_env_knows_a_tap_that_was_killed(spawn, tmp_path) -> None:
    """It left its address behind: a run with that would be captured by nobody."""
    tap = await spawn(*_GYMTAP, "up", "--takeover", "-c", str(tmp_path / "up"))
    await tap.err_line("recording to")
    tap.send(signal.SIGKILL)
    await tap.end()
    ended = await (await spawn(*_GYMTAP, "env", "-c", str(tmp_path / "up"))).end()
    assert (ended.status, ended.out) == (2, "")
    assert "is gone" in ended.err.splitlines()[0]


async def test_a_second_tap_does_not_take_over_into_the_same_capture(spawn, tmp_path) -> None:
    """`gymtap env` could name one of them only; the first goes on, also when it was killed and started again."""
    command = (*_GYMTAP, "up", "--takeover", "-c", str(tmp_path / "up"))
    first = await spawn(*command)
    await first.err_line("recording to")
    refused = await (await spawn(*command)).end()
    assert (refused.status, refused.out) == (2, "")
    assert f"pid {first.pid}" in refused.err.splitlines()[0]
    assert (await (await spawn(*_GYMTAP, "env", "-c", str(tmp_path / "up"))).end()).status == 0
    first.send(signal.SIGKILL)
    await first.end()
    again = await spawn(*command)
    await again.err_line("recording to")


async def test_env_prints_lines_for_a_shell(spawn) -> None:
    """With --control and --token the tap need not stand yet."""
    command = (*_GYMTAP, "env", "--control", "http://127.0.0.1:7450", "--token", "a b", "--no-egress")
    ended = await (await spawn(*command)).end()
    lines = ended.out.splitlines()
    assert all(line.startswith("export ") for line in lines)
    assert {
        "export GYMTAP_CONTROL=http://127.0.0.1:7450",
        "export GYMTAP_TOKEN='a b'",
        "export GYMTAP_NO_EGRESS=1",
    } <= set(lines)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(("--control", "http://127.0.0.1:1"), "needs the tap's token"), (("-c", "{empty}"), "no standing tap")],
)
async def test_env_without_a_tap_is_one_line(spawn, tmp_path: Path, arguments, reason) -> None:
    """With the way out."""
    filled = [part.format(empty=tmp_path) for part in arguments]
    ended = await (await spawn(*_GYMTAP, "env", *filled)).end()
    assert ended.status != 0
    assert ended.out == ""
    assert reason in ended.err.splitlines()[0]
