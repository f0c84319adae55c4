"""What leaves Gym goes through the tap with its true upstream; where that cannot be honoured it goes straight."""

import socket
import sys
from pathlib import Path

from gymtap.proxy.store import Capture
from gymtap.schemas import Exchange, ServerKind

_GYMTAP = (sys.executable, "-m", "gymtap")


def _outside(capture: Path) -> list[Exchange]:
    return [item for item in Capture(capture).exchanges() if item.kind is ServerKind.PROVIDER]


def _point_at(miniature, url: str) -> None:
    entry = miniature.entry("policy")
    entry["base_url"], entry["calls"] = f"{url}/v1", {"/v1/responses": [f"{url}/v1/chat/completions"]}


def _provider_call(row: dict) -> dict:
    return row["calls"][1]["answer"]["calls"][0]["answer"]["calls"][0]


async def test_https_is_verified_by_the_tap(spawn, miniature, secure_provider, authority, tmp_path) -> None:
    """The application's URL stays https; the provider sees its own name; the tap trusts what --upstream-ca names."""
    _point_at(miniature, secure_provider.url)
    capture = tmp_path / "capture"
    command = (*_GYMTAP, "run", "-c", str(capture), "--upstream-ca", str(authority.ca_file), "--", *miniature.main(1))
    ended = await (await spawn(*command, variables=miniature.variables)).end()
    assert ended.status == 0, ended.err
    call = _provider_call(ended.rows[0])
    assert (call["status"], call["url"]) == (200, f"{secure_provider.url}/v1/chat/completions")
    assert secure_provider.seen[0]["host"] == secure_provider.url.removeprefix("https://")
    (exchange,) = _outside(capture)
    assert (exchange.response.status if exchange.response else None) == 200


async def test_https_that_is_not_trusted_fails_as_a_connection(spawn, miniature, secure_provider, tmp_path) -> None:
    """Nothing is sent, the application meets a broken connection, and the exchange says why."""
    _point_at(miniature, secure_provider.url)
    capture = tmp_path / "capture"
    ended = await (
        await spawn(*_GYMTAP, "run", "-c", str(capture), "--", *miniature.main(1), variables=miniature.variables)
    ).end()
    assert "error" in _provider_call(ended.rows[0])
    assert secure_provider.seen == []
    error = _outside(capture)[0].error
    assert error is not None
    assert "--upstream-ca" in error.message


async def test_tls_settings_of_the_applications_own_are_left_alone(spawn, miniature, secure_provider, tmp_path) -> None:
    """The call goes straight, without the header, and one line says so."""
    _point_at(miniature, secure_provider.url)
    miniature.entry("policy")["options"] = {"unverified": True}
    capture = tmp_path / "capture"
    command = (*_GYMTAP, "run", "-c", str(capture), "--", *miniature.main(2))
    ended = await (await spawn(*command, variables=miniature.variables)).end()
    assert _provider_call(ended.rows[0])["status"] == 200
    assert "x-gymtap-parent" not in secure_provider.seen[0]
    assert _outside(capture) == []
    told = [line for line in ended.err.splitlines() if "uses its own TLS settings" in line]
    assert told == [f"gymtap: {secure_provider.url} is not captured: the application uses its own TLS settings"]


async def test_a_provider_that_refuses_is_seen_as_refusing(spawn, miniature, unused_tcp_port, tmp_path) -> None:
    """The application's connection is broken off, as the provider's was; no answer is made up."""
    _point_at(miniature, f"http://127.0.0.1:{unused_tcp_port}")
    capture = tmp_path / "capture"
    command = (*_GYMTAP, "run", "-c", str(capture), "--", *miniature.main(1))
    ended = await (await spawn(*command, variables=miniature.variables)).end()
    assert _provider_call(ended.rows[0])["error"] in ("ServerDisconnectedError", "ClientOSError")
    error = _outside(capture)[0].error
    assert error is not None
    assert error.kind == "refused"


async def test_a_process_that_is_not_gym_is_left_alone(spawn, provider, tmp_path) -> None:
    """Its requests and its ports are its own, though the hooks are loaded in it."""
    code = (
        "import asyncio, socket, aiohttp, sys, os\n"
        "async def main():\n"
        "    async with aiohttp.ClientSession() as session, session.get(sys.argv[1]) as response:\n"
        "        print(response.status)\n"
        "asyncio.run(main())\n"
        "sock = socket.socket(); sock.bind(('127.0.0.1', int(sys.argv[2]))); print(sock.getsockname()[1])\n"
        "print(type(sys.meta_path[0]).__module__)\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    capture = tmp_path / "capture"
    command = (*_GYMTAP, "run", "-c", str(capture), "--", sys.executable, "-c", code, provider.url, str(port))
    ended = await (await spawn(*command)).end()
    assert ended.out.split() == ["200", str(port), "sitecustomize"], ended.err
    assert Capture(capture).info().exchanges == 0
