"""Our HAR in the devtools of a real browser: Chromium serves their pages itself, and their own importer is called."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.export import Chosen, Wanted
from gymtap.proxy.export.har import har
from gymtap.proxy.store import Capture
from gymtap.schemas import Body, Call, Exchange, Request, Response, Server, ServerKind, State

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.timeout(180),  # a browser on a busy machine
]
IMPORT = """(async () => {
    const {NetworkPanel: {NetworkPanel}} = await import("/devtools/panels/network/network.js");
    const {ViewManager: {ViewManager}} = await import("/devtools/ui/legacy/legacy.js");
    const {NetworkLog: {NetworkLog}} = await import("/devtools/models/logs/logs.js");
    await ViewManager.instance().showView("network");
    const view = NetworkPanel.instance().networkLogView;
    await view.onLoadFromFile(new File([HAR], "capture.har"));
    const requests = NetworkLog.instance().requests();
    while (view.flatNodesList().length < requests.length) {
        await new Promise(requestAnimationFrame);
    }
    const told = [];
    for (const one of requests) {
        const content = await one.requestContentData();
        told.push({
            method: one.requestMethod, url: one.url(), status: one.statusCode,
            headers: one.responseHeaders.map(header => [header.name, header.value]), type: one.resourceType().name(),
            sent: await one.requestFormData(), received: "error" in content ? null : content.isTextContent
                ? content.text : content.base64,
            messages: one.frames().map(frame => [frame.type, frame.text]),
        });
    }
    return JSON.stringify(told);
})()"""


class Page:
    """A page, by the browser's debugging protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        return await self._next(lambda said: said.get("id") == self._number)

    async def opened(self, url: str) -> None:
        await self.call("Page.enable")
        await self.call("Page.navigate", url=url)
        await self._next(lambda said: said.get("method") == "Page.loadEventFired")

    async def value(self, expression: str) -> Any:
        said = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said["result"], said["result"]["exceptionDetails"]
        return said["result"]["result"].get("value")

    async def _next(self, wanted: Any) -> dict[str, Any]:
        async for message in self._socket:
            said: dict[str, Any] = json.loads(message.data)
            if wanted(said):
                return said
        raise AssertionError("the browser has gone")


@pytest.fixture
async def devtools(tmp_path: Path) -> AsyncIterator[Page]:
    """The devtools of a browser, opened on an empty page."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    child = await asyncio.create_subprocess_exec(
        *(
            str(CHROMIUM),
            *options,
            "--remote-allow-origins=*",
            f"--user-data-dir={tmp_path / 'profile'}",
            "about:blank",
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    try:
        found = None
        while not found:
            line = await child.stderr.readline()
            assert line, "the browser has ended"
            found = re.search(rb"DevTools listening on ws://(127\.0\.0\.1:\d+)/", line)
        address = found[1].decode()
        async with aiohttp.ClientSession(f"http://{address}") as session:
            async with session.get("/json") as answer:
                page = next(one for one in await answer.json() if one["type"] == "page")
            async with session.put("/json/new?about:blank") as answer:
                frontend = await answer.json()
            async with session.ws_connect(frontend["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                opened = Page(socket)
                await opened.opened(
                    f"http://{address}/devtools/inspector.html?ws={address}/devtools/page/{page['id']}&panel=network"
                )
                yield opened
    finally:
        child.terminate()
        await child.communicate()


async def imported(devtools: Page, document: bytes) -> list[dict[str, Any]]:
    await devtools.value(f"globalThis.HAR = {json.dumps(document.decode())}; 0")
    found: list[dict[str, Any]] = json.loads(await devtools.value(IMPORT))
    return found


def websocket() -> Kept:
    """A WebSocket as the tap keeps it: its messages are the bodies."""
    body = Body(digest=None, size_bytes=9)
    upgrade = (("Upgrade", "websocket"),)
    said = Exchange(
        id="a99", server="x", kind=ServerKind.UNKNOWN, call=Call.OTHER, state=State.DONE, started_ns=19 * 10**17,
        request=Request(method="GET", target="/ws", headers=upgrade, body=body), duration_ms=9.0,
        response=Response(status=101, reason="", headers=upgrade, body=body, first_byte_ms=1.0, ended_ms=9.0),
    )  # fmt: skip
    sent = b'{"at_ns":1900000000001000000,"type":"text","text":"hi"}\n'
    received = b'{"at_ns":1900000000002000000,"type":"binary","base64":"/w=="}\n'
    return Kept(said, Server(name="x", listen="", upstream="http://x.example"), sent, received)


async def test_the_network_panel_has_it_all(devtools: Page, demo_capture: Path) -> None:
    """As many requests as exchanges, each with its method, URL, status, headers, and both bodies as they were."""
    document = b"".join(har(Chosen(Capture(demo_capture), Wanted()), "1"))
    entries = orjson.loads(document)["log"]["entries"]
    found = await imported(devtools, document)
    assert len(found) == len(entries) == Capture(demo_capture).count()
    for one, entry in zip(found, entries, strict=True):
        request, response = entry["request"], entry["response"]
        assert (one["method"], one["url"], one["status"]) == (request["method"], request["url"], response["status"])
        assert one["headers"] == [[pair["name"], pair["value"]] for pair in response["headers"]]
        assert one["received"] == response["content"].get("text", "")
        assert one["sent"] == request.get("postData", {}).get("text")
        assert one["type"] == "fetch"


async def test_the_network_panel_has_what_is_unusual(devtools: Page, capture: Capture) -> None:
    """No answer, coded and binary bodies, the messages of a WebSocket."""
    kept = [*Chosen(capture, Wanted()), websocket()]
    found = await imported(devtools, b"".join(har(kept, "1")))
    by_id = dict(zip([one.exchange.id for one in kept], found, strict=True))
    assert by_id["a2"]["received"] == "slow " * 99
    assert by_id["a3"]["received"] == bytes(range(256)).decode(errors="replace")  # its headers call it JSON
    assert (by_id["a4"]["status"], by_id["a4"]["received"]) == (0, "")
    assert by_id["a99"]["messages"] == [["send", "hi"], ["receive", "/w=="]]
