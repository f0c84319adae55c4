"""`gymtap tui --web` in a real browser, steered through its DevTools protocol: drawn, and it hears keys."""

import asyncio
import base64
import itertools
import json
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionError, ClientSession, ClientWebSocketResponse

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_LIMIT_S = 80


class Browser:
    """One page of a headless Chromium, what was sent to it, and where it went."""

    def __init__(self, devtools: ClientWebSocketResponse) -> None:
        self._devtools = devtools
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: dict[str, str] = {}
        self.asked: list[str] = []
        self.heard = ""

    async def listen(self) -> None:
        """Take what comes, until the browser ends."""
        async for message in self._devtools:
            said = json.loads(message.data)
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said)
            elif said["method"] == "Network.requestWillBeSent":
                self.asked.append(said["params"]["request"]["url"])
            elif said["method"] == "Network.webSocketFrameReceived":
                frame = said["params"]["response"]
                if frame["opcode"] == 2:
                    self.heard += base64.b64decode(frame["payloadData"]).decode("utf-8", "replace")

    async def call(self, method: str, **given: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._devtools.send_json({"id": number, "method": method, "params": given, **self._session})
        said = await self._waiting[number] if number in self._waiting else {}
        assert "result" in said, said
        return dict(said["result"])

    async def begin(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime"):
            await self.call(f"{domain}.enable")

    async def value(self, script: str) -> Any:
        return (await self.call("Runtime.evaluate", expression=script, returnByValue=True))["result"].get("value")

    async def press(self, key: str) -> None:
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def picture(self) -> str:
        return str((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def hears(self, text: str) -> None:
        await _comes(lambda: self._has(text))

    async def _has(self, text: str) -> bool:
        return text in self.heard

    async def shows(self, text: str) -> None:
        await _comes(lambda: self._says(text))

    async def _says(self, text: str) -> bool:
        return text in str(await self.value("document.body.innerText"))


async def _comes(happened: Callable[[], Awaitable[bool]]) -> None:
    """Wait for it; the test's own time ends the wait."""
    while True:
        if await happened():
            return
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _browser(folder: Path) -> AsyncIterator[Browser]:
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium: `apt install chromium` brings it")
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--window-size=1200,700")
    running = await asyncio.create_subprocess_exec(
        program, *options, f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert running.stderr is not None
    told = b""
    while b"DevTools listening on" not in told:
        told = await running.stderr.readline()
        assert told, "the browser did not start"
    drained = asyncio.ensure_future(running.stderr.read())
    async with ClientSession() as session, session.ws_connect(told.split()[-1].decode(), max_msg_size=0) as devtools:
        browser = Browser(devtools)
        listening = asyncio.ensure_future(browser.listen())
        try:
            await browser.begin()
            yield browser
        finally:
            running.terminate()
            await running.wait()
            await asyncio.gather(drained, listening)


@asynccontextmanager
async def _served(capture: Path) -> AsyncIterator[str]:
    """The URL that is printed, as soon as somebody listens there."""
    serving = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gymtap", "tui", "--web", str(capture),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert serving.stderr is not None
    try:
        url = (await serving.stderr.readline()).decode().split()[0]
        async with ClientSession() as asking:
            await _comes(lambda: _refused(asking, url.partition("?")[0]))
        yield url
    finally:
        serving.terminate()
        await serving.wait()


async def _refused(asking: ClientSession, url: str) -> bool:
    """Whether it says no without a token; False as long as nobody listens."""
    try:
        async with asking.get(url) as answer:
            assert answer.status == 403
    except ClientConnectionError:
        return False
    return True


@pytest.mark.timeout(120)
async def test_it_is_drawn_and_hears_keys_without_a_click(own_capture: Path, tmp_path: Path) -> None:
    """From the URL to a provider's error, by keys alone; and nothing is asked of any other host."""
    async with asyncio.timeout(_LIMIT_S), _browser(tmp_path / "profile") as browser, _served(own_capture) as url:
        await browser.call("Page.navigate", url=url)
        await browser.hears("The provider cannot turn a tool's schema into a grammar")
        assert await browser.value("document.body.classList.contains('-first-byte')")
        assert await browser.value("document.activeElement.className") == "xterm-helper-textarea"
        before = await browser.picture()
        await browser.press("l")
        await browser.hears("went wrong")
        for key in "nR":
            await browser.press(key)
        await browser.hears("400 Bad Request")
        assert await browser.picture() != before
        base = url.partition("?")[0]
        assert browser.asked
        assert [one for one in browser.asked if not one.startswith(base)] == []


@pytest.mark.timeout(120)
async def test_a_wrong_token_opens_nothing(own_capture: Path, tmp_path: Path) -> None:
    """A browser without the token gets a sentence, no terminal and no socket."""
    async with asyncio.timeout(_LIMIT_S), _browser(tmp_path / "profile") as browser, _served(own_capture) as url:
        await browser.call("Page.navigate", url=f"{url}x")
        await browser.shows("with its token")
        assert await browser.value("document.querySelector('.textual-terminal')") is None
        assert browser.heard == ""
