"""What leaves Gym goes through the tap with its true upstream; where that cannot be honoured it goes straight."""

import json
import socket
import sys

import pytest

from gymtap.proxy.store import Capture
from gymtap.schemas import Exchange, Method, ServerKind

_GYMTAP = (sys.executable, "-m", "gymtap")


def _outside(capture: Capture) -> list[Exchange]:
    return [item for item in capture.exchanges() if item.kind is ServerKind.PROVIDER]


def _calls(capfd: pytest.CaptureFixture[str]) -> list[dict]:
    """What each row's call to the outside gave, as the miniature's main process printed it."""
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [row["calls"][0] for row in rows]


async def test_https_is_verified_by_the_tap(wrapped, miniature, secure_provider, authority, capfd) -> None:
    """The application's URL stays https; the provider sees its own name; the tap trusts what --upstream-ca names."""
    miniature.only_calling(secure_provider.url)
    status, capture, _ = await wrapped(1, upstream_ca=authority.ca_file)
    assert status == 0
    (call,) = _calls(capfd)
    assert (call["status"], call["url"]) == (200, f"{secure_provider.url}/v1/chat/completions")
    assert secure_provider.seen[0]["host"] == secure_provider.url.removeprefix("https://")
    (exchange,) = _outside(capture)
    assert (exchange.response.status if exchange.response else None) == 200
    assert exchange.attribution.method is Method.CAUSALITY


async def test_https_that_is_not_trusted_fails_as_a_connection(wrapped, miniature, secure_provider, capfd) -> None:
    """Nothing is sent, the application meets a broken connection, and the exchange says why."""
    miniature.only_calling(secure_provider.url)
    _, capture, _ = await wrapped(1)
    assert "error" in _calls(capfd)[0]
    assert secure_provider.seen == []
    error = _outside(capture)[0].error
    assert error is not None
    assert "--upstream-ca" in error.message


async def test_tls_settings_of_the_applications_own_are_left_alone(wrapped, miniature, secure_provider, capfd) -> None:
    """The call goes straight, without the header, and one line says so."""
    miniature.only_calling(secure_provider.url)
    miniature.entry("policy")["options"] = {"unverified": True}
    _, capture, _ = await wrapped(2)
    told = capfd.readouterr()
    assert [json.loads(line)["calls"][0]["status"] for line in told.out.splitlines()] == [200, 200]
    assert "x-gymtap-parent" not in secure_provider.seen[0]
    assert _outside(capture) == []
    lines = [line for line in told.err.splitlines() if "uses its own TLS settings" in line]
    assert lines == [f"gymtap: {secure_provider.url} is not captured: the application uses its own TLS settings"]


async def test_a_provider_that_refuses_is_seen_as_refusing(wrapped, miniature, unused_tcp_port, capfd) -> None:
    """The application's connection is broken off; no answer is made up."""
    miniature.only_calling(f"http://127.0.0.1:{unused_tcp_port}")
    _, capture, _ = await wrapped(1)
    assert _calls(capfd)[0]["error"] in ("ServerDisconnectedError", "ClientOSError")
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
