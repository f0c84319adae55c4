import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession, CookieJar, web
from aiohttp.test_utils import TestClient, TestServer

from gymtap.proxy.core.errors import ListenError
from gymtap.proxy.tui.web import COOKIE, HOST, free_port, guard

TOKEN = "a-token"
ORIGIN = "http://127.0.0.1:1"

type Client = TestClient[web.Request, web.Application]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="the page")

    app = web.Application(middlewares=[guard(TOKEN, ORIGIN)])
    app.router.add_get("/", page)
    async with TestClient(TestServer(app)) as opened:
        yield opened


async def test_without_the_token_there_is_nothing(client: Client) -> None:
    for path in ("/", "/?token=", "/?token=another"):
        assert (await client.get(path)).status == 403


async def test_the_url_opens_the_page_and_the_cookie_what_it_loads(client: Client) -> None:
    first = await client.get("/", params={"token": TOKEN})
    assert (first.status, await first.text()) == (200, "the page")
    assert first.cookies[COOKIE]["httponly"]
    assert first.cookies[COOKIE]["samesite"] == "Strict"
    assert (await client.get("/", headers={"Cookie": f"{COOKIE}={TOKEN}"})).status == 200


async def test_another_pages_script_is_turned_away_even_with_the_cookie(client: Client) -> None:
    cookie = {"Cookie": f"{COOKIE}={TOKEN}"}
    assert (await client.get("/", headers={**cookie, "Origin": "http://evil.example"})).status == 403
    assert (await client.get("/", headers={**cookie, "Origin": ORIGIN})).status == 200


async def test_a_port_that_is_taken_is_told(client: Client) -> None:
    assert free_port(0) > 0
    with pytest.raises(ListenError, match="cannot be had"):
        free_port(client.port)
    assert HOST == "127.0.0.1"


async def test_a_browser_gets_the_ui_from_a_process_of_its_own(demo_capture: Path) -> None:
    """From the printed URL to the overview, as textual-serve's page does it."""
    serving = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gymtap", "tui", "--web", str(demo_capture),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert serving.stderr is not None
    try:
        url = (await serving.stderr.readline()).decode().split()[0]
        base = url.partition("?")[0]
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
            await _opened(browser, url)
            origin = {"Origin": base.rstrip("/")}
            async with browser.ws_connect(f"{base}ws?width=100&height=30", headers=origin) as page:
                seen = ""
                while "top causes" not in seen:
                    message = await page.receive(timeout=30)
                    assert message.data is not None
                    seen += message.data.decode("utf-8", "replace") if isinstance(message.data, bytes) else message.data
    finally:
        serving.terminate()
        await serving.wait()


async def _opened(browser: ClientSession, url: str) -> None:
    """The page, as soon as the server that has told its URL listens there."""
    for _ in range(200):
        try:
            assert (await browser.get(url)).status == 200
        except ClientConnectionError:
            await asyncio.sleep(0.05)
        else:
            return
    pytest.fail("nothing listens")
