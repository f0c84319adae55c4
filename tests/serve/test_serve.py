"""The API, by a real client."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import pytest

from gymtap.proxy.core.errors import ListenError
from gymtap.proxy.core.events import Answered, Ended, Opened, RequestDone, Tape
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.serve import Serving, serve
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import Server

TOKEN = "let-me-in"


@pytest.fixture
async def api(demo_capture: Path, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that has the token, of a server that has the demo's capture."""
    serving = Serving(tmp_path, (demo_capture,), token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with serve(serving) as url, aiohttp.ClientSession(url, headers=headers) as session:
        yield session


async def get(api: aiohttp.ClientSession, path: str, status: int = 200) -> Any:
    async with api.get(path) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def test_a_token_is_needed(api: aiohttp.ClientSession) -> None:
    """Without it, or with another, nothing is said; the document is open."""
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer no"}, {"Authorization": TOKEN}):
        for path in ("/v1/captures", "/v1/captures/capture/rows", "/anything"):
            async with api.get(path, headers=headers) as answer:
                assert answer.status == 401
                assert "Bearer" in (await answer.json())["hint"]
    async with api.get("/openapi.json", headers={"Authorization": ""}) as answer:
        assert answer.status == 200


async def test_the_document_tells_the_truth(api: aiohttp.ClientSession, demo_capture: Path) -> None:
    """Every JSON answer satisfies the schema that the document gives for it."""
    document = await get(api, "/openapi.json")
    assert document["openapi"].startswith("3.1")
    demo = Capture(demo_capture)
    row = next(demo.rows(failed=True))
    names = {"capture": "capture", "row": row.key.label, "exchange": row.root}
    checked = 0
    for path, operations in document["paths"].items():
        (media, said), *_ = operations["get"]["responses"]["200"]["content"].items()
        if media != "application/json" or path == "/openapi.json":
            continue
        answer = await get(api, path.format(**names))
        schema = said["schema"] | {"components": document["components"]}
        assert [error.message for error in jsonschema_rs.validator_for(schema).iter_errors(answer)] == [], path
        checked += 1
    assert checked == 8


async def test_rows_are_chosen_and_paged(api: aiohttp.ClientSession, demo_capture: Path) -> None:
    """The pages together are what the capture has; `failed` and the rest choose."""
    demo = Capture(demo_capture)
    pages = [await get(api, f"/v1/captures/capture/rows?limit=7&offset={offset}") for offset in (0, 7, 14)]
    assert [page["more"] for page in pages] == [True, True, False]
    assert [row["label"] for page in pages for row in page["rows"]] == [row.key.label for row in demo.rows()]
    failed = await get(api, "/v1/captures/capture/rows?failed=true")
    assert [row["label"] for row in failed["rows"]] == [row.key.label for row in demo.rows(failed=True)]
    exchanges = await get(api, f"/v1/captures/capture/exchanges?call=provider&row={failed['rows'][0]['label']}")
    assert {exchange["call"] for exchange in exchanges["exchanges"]} == {"provider"}


async def test_causes_and_a_diagnosis(api: aiohttp.ClientSession) -> None:
    """The causes name rows, and each row's diagnosis has the same fingerprint."""
    causes = (await get(api, "/v1/captures/capture/causes"))["causes"]
    assert causes
    for cause in causes:
        said = await get(api, f"/v1/captures/capture/rows/{cause['rows'][0]}/diagnosis")
        assert said["fingerprint"] == cause["fingerprint"]


async def test_a_body_is_its_bytes(api: aiohttp.ClientSession, demo_capture: Path) -> None:
    """Bodies come as they were recorded, and never as something that a browser would run."""
    demo = Capture(demo_capture)
    exchange = next(one for one in demo.exchanges() if one.response and one.response.body)
    assert exchange.response is not None
    assert exchange.response.body is not None
    async with api.get(f"/v1/captures/capture/exchanges/{exchange.id}/response/body") as answer:
        assert answer.content_type == "application/octet-stream"
        assert await answer.read() == demo.body(exchange.response.body)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/v1/captures/nobody/rows", 404, "nobody: no such capture"),
        ("/v1/captures/..%2F..%2Fetc/rows", 404, "no such capture"),
        ("/v1/captures/capture/rows/99.9", 404, "no row 99.9"),
        ("/v1/captures/capture/rows/what", 400, "is not a row"),
        ("/v1/captures/capture/exchanges/a99999", 404, "no exchange a99999"),
        ("/v1/captures/capture/exchanges/a1/middle/body", 404, "no middle"),
        ("/v1/captures/capture/rows?limit=many", 400, "limit=many"),
        ("/v1/captures/capture/exchanges?call=phone", 400, "phone"),
        ("/v2", 404, "Not Found"),
    ],
)
async def test_errors_have_a_way_out(api: aiohttp.ClientSession, path: str, status: int, says: str) -> None:
    """What is wrong is said in JSON; a name is never a path."""
    from yarl import URL  # noqa: PLC0415 - the only way to send a target as it is

    async with api.get(URL(path, encoded=True)) as answer:
        assert answer.status == status
        assert says in (await answer.json())["error"]


async def test_events_come_as_they_happen(tmp_path: Path) -> None:
    """An exchange is told of when it opens and when it ends; the end of the capture ends the stream."""
    tape = Tape(2**20)
    writer = CaptureWriter.create(tmp_path / "live")
    recorder = Recorder(tape, writer, [])
    server = Server(name="model", listen="http://127.0.0.1:1", upstream="http://127.0.0.1:2")
    serving = Serving(tmp_path, token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        serve(serving) as url,
        aiohttp.ClientSession(url, headers=headers) as session,
        session.get("/v1/captures/live/events?from_start=true") as answer,
    ):

        async def event() -> tuple[str, Any]:
            name = ""
            async for line in answer.content:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                if line.startswith(b"data: "):
                    return name, json.loads(line[6:])
            return "closed", None

        tape.put(Opened(1, server, 1, 1, "", "POST", "/v1/responses", "1.1", ()))
        recorder.drain()
        name, opened = await event()
        assert (name, opened["id"], opened["state"]) == ("exchange", "a1", "open")
        for ending in (RequestDone(1, 2), Answered(1, 3, 200, "OK", ()), Ended(1, 4)):
            tape.put(ending)
        recorder.drain()
        name, ended = await event()
        assert (name, ended["state"], ended["response"]["status"]) == ("exchange", "done", 200)
        recorder.close()
        assert (await event())[0] == "end"
        assert (await event())[0] == "closed"


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """It is said in one line."""
    async with serve(Serving(tmp_path)) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ListenError, match=str(port)):
            async with serve(Serving(tmp_path, port=port)):
                pass


async def test_the_command(demo_capture: Path) -> None:
    """`gymtap serve` says where and with which token, answers, and stops on SIGINT."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gymtap", "serve", str(demo_capture)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    said = json.loads(await child.stdout.readline())
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", said["url"])
    headers = {"Authorization": f"Bearer {said['token']}"}
    url = f"{said['url']}/v1/captures/{demo_capture.name}"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        assert (await answer.json())["exchanges"] == Capture(demo_capture).count()
    child.send_signal(signal.SIGINT)
    assert await child.wait() == 0
