"""A takeover lasts as long as both ends live, and whichever goes first leaves the other working."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gymtap.proxy.tap import Tap, TapSettings
from gymtap.proxy.wiring.control import Control
from gymtap.proxy.wiring.environment import Parts, wiring_variables
from gymtap.proxy.wiring.standing import read_control

_DATA = Path(__file__).parent.parent / "data" / "miniature_gym"


@pytest.fixture
async def tap(tmp_path: Path) -> AsyncIterator[Tap]:
    async with Tap(TapSettings(capture=tmp_path / "capture")) as tap:
        yield tap


@pytest.fixture
async def control(tap: Tap) -> AsyncIterator[Control]:
    control = Control(tap)
    await control.start()
    yield control
    await control.close(run_over=True)


def _server(miniature, name: str, url: str, token: str) -> dict[str, str]:
    """The environment of one server of the miniature, behind a tap."""
    base = miniature.variables | {"NEMO_GYM_CONFIG_PATH": name}
    return base | wiring_variables(url, token, Parts(), base)


async def _get(port: int) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as response:
        return str((await response.json(content_type=None))["server"])


async def _status(control: Control) -> list[str]:
    headers = {"Authorization": f"Bearer {control.token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(control.url + "/status") as response:
        return [server["name"] for server in (await response.json())["servers"]]


async def test_a_killed_servers_port_is_free_for_the_next(spawn, miniature, control) -> None:
    """Its successor takes over the same port at once."""
    port, variables = miniature.port("agent"), _server(miniature, "agent", control.url, control.token)
    for _ in range(2):
        process = await spawn(*miniature.serve, variables=variables)
        assert "serving" in await process.line()
        assert await _get(port) == "agent"
        assert await _status(control) == ["agent"]
        process.send(signal.SIGKILL)
        await process.end()


async def test_a_second_server_on_a_live_ones_port_fails_as_it_would_have(spawn, miniature, control) -> None:
    """The tap refuses, names who has it, and the server's own bind says that the address is in use."""
    variables = _server(miniature, "agent", control.url, control.token)
    first = await spawn(*miniature.serve, variables=variables)
    await first.line()
    ended = await (await spawn(*miniature.serve, variables=variables)).end()
    assert ended.status != 0
    assert f"the tap listens at 127.0.0.1:{miniature.port('agent')} for agent, which is alive" in ended.err
    assert "address already in use" in ended.err
    assert await _get(miniature.port("agent")) == "agent"


async def test_a_run_outlives_its_tap(spawn, miniature, tmp_path) -> None:
    """Killed in the middle, the tap leaves servers that serve their own addresses again."""
    tap = await spawn(sys.executable, "-m", "gymtap", "up", "--takeover", "-c", str(tmp_path / "up"))
    url = (await tap.err_line("takes over on request")).split()[-1]
    await tap.err_line("recording to")
    token = _token(tmp_path / "up")
    server = await spawn(*miniature.serve, variables=_server(miniature, "agent", url, token))
    assert "serving" in await server.line()
    assert await _get(miniature.port("agent")) == "agent"
    tap.send(signal.SIGKILL)
    await tap.end()
    assert "agent serves" in await server.err_line("the tap is gone")
    assert await _get(miniature.port("agent")) == "agent"


async def test_stopping_a_standing_tap_gives_the_ports_back(spawn, miniature, tmp_path) -> None:
    """The run goes on without it."""
    tap = await spawn(sys.executable, "-m", "gymtap", "up", "--takeover", "-c", str(tmp_path / "up"))
    url = (await tap.err_line("takes over on request")).split()[-1]
    await tap.err_line("recording to")
    token = _token(tmp_path / "up")
    server = await spawn(*miniature.serve, variables=_server(miniature, "agent", url, token))
    await server.line()
    tap.send(signal.SIGTERM)
    assert (await tap.end()).status == 0
    await server.err_line("the tap is gone")
    assert await _get(miniature.port("agent")) == "agent"
    assert not (tmp_path / "up" / "control.json").exists()


def _token(capture: Path) -> str:
    file = capture / "control.json"
    assert file.stat().st_mode & 0o777 == 0o600
    return read_control(capture).token


@pytest.mark.parametrize("answering", [False, True])
async def test_without_a_tap_the_server_serves_as_ever(spawn, miniature, provider, unused_tcp_port, answering) -> None:
    """No tap there, or something else in its place: one line, and the server is at its own address."""
    url = provider.url.replace("localhost", "127.0.0.1") if answering else f"http://127.0.0.1:{unused_tcp_port}"
    server = await spawn(*miniature.serve, variables=_server(miniature, "agent", url, "t"))
    assert str(miniature.port("agent")) in await server.line()
    assert await _get(miniature.port("agent")) == "agent"
    server.send(signal.SIGINT)
    told = [line for line in (await server.end()).err.splitlines() if line.startswith("gymtap:")]
    assert len(told) == 1
    assert f"gymtap: agent at 127.0.0.1:{miniature.port('agent')} is not captured: " in told[0]


async def test_a_wrong_token_is_refused(spawn, miniature, control) -> None:
    """Nobody takes over without it."""
    server = await spawn(*miniature.serve, variables=_server(miniature, "agent", control.url, "guessed"))
    assert "the token is not this tap's" in await server.err_line("is not captured")
    assert await _status(control) == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"host": "x", "port": "y", "name": 1, "type": 2}'])
async def test_what_is_no_request_is_refused(control: Control, body: bytes) -> None:
    """400 with a reason, and nothing is opened."""
    headers = {"Authorization": f"Bearer {control.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for path in ("/takeover", "/route"):
            async with session.post(control.url + path, data=body) as response:
                assert (response.status, list(await response.json())) == (400, ["error"])
    assert await _status(control) == []


async def test_a_hidden_sitecustomize_runs_as_if_it_were_alone(spawn, miniature, control) -> None:
    """Under its own name, beside the hooks."""
    miniature.variables_extra = {"PYTHONPATH": f"{_DATA}:{_DATA / 'hidden'}"}
    server = await spawn(*miniature.serve, variables=_server(miniature, "agent", control.url, control.token))
    assert '"mark": "sitecustomize"' in await server.line()
    assert await _status(control) == ["agent"]


async def test_a_port_that_is_taken_is_refused_with_its_owner(spawn, miniature, control) -> None:
    """The server's bind fails as it would have."""
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", miniature.port("agent")))
        owner.listen()
        ended = await (
            await spawn(*miniature.serve, variables=_server(miniature, "agent", control.url, control.token))
        ).end()
    assert ended.status != 0
    assert f"port 127.0.0.1:{miniature.port('agent')} is taken" in ended.err


_PLAIN_SERVER = """
import sys, types, socket
gym, config = types.ModuleType("nemo_gym"), types.ModuleType("nemo_gym.global_config")
config._GLOBAL_CONFIG_DICT = {"s": {"resources_servers": {"s": {"host": "127.0.0.1", "port": int(sys.argv[1])}}}}
sys.modules.update({"nemo_gym": gym, "nemo_gym.global_config": config})
sock = socket.socket()
sock.bind(("127.0.0.1", int(sys.argv[1])))
sock.listen()
print(sock.getsockname()[1], flush=True)
peer, _ = sock.accept()
peer.recv(1000)
peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 15\\r\\n\\r\\n{\\"server\\": \\"s\\"}")
"""


def _interpreters() -> list[str]:
    """Every Python from 3.9 on that is installed here, ours included."""
    found = {}
    for minor in range(9, 16):
        path = shutil.which(f"python3.{minor}")
        candidates = [path, *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))]
        for candidate in filter(None, candidates):
            asked = subprocess.run(
                [candidate, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True, check=False
            )
            if asked.stdout.strip() == str(minor):
                found[minor] = candidate
    return list(found.values()) or [sys.executable]


@pytest.mark.parametrize("python", _interpreters())
async def test_the_hooks_run_on_every_python_of_gym(spawn, miniature, control, unused_tcp_port, python) -> None:
    """From 3.9 on."""
    base = {"NEMO_GYM_CONFIG_PATH": "s", "PATH": os.environ["PATH"]}
    variables = base | wiring_variables(control.url, control.token, Parts(), base)
    server = await spawn(python, "-c", _PLAIN_SERVER, str(unused_tcp_port), variables=variables)
    private = (await server.line()).strip()
    assert private.isdigit()
    assert private != str(unused_tcp_port)
    assert await _get(unused_tcp_port) == "s"
    assert (await server.end()).err == ""
