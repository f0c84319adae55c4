"""The API, by a real client."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import pytest

from gymtap.proxy.core.errors import ListenError
from gymtap.proxy.core.events import Answered, Ended, Opened, RequestDone, ResponseData, Tape
from gymtap.proxy.core.filter import parse
from gymtap.proxy.diagnose.listing import listed_rows
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.serve import Serving, reading, serve
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
    """Without it, or with another, nothing is said on any path; the document is open."""
    described = (await get(api, "/openapi.json"))["paths"]
    paths = [re.sub(r"\{\w+\}", "x", path) for path in described if path != "/openapi.json"] + ["/anything"]
    assert len(paths) == 11
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer no"}, {"Authorization": TOKEN}):
        for path in paths:
            async with api.get(path, headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert "Bearer" in (await answer.json())["hint"]
    async with api.get("/openapi.json", headers={"Authorization": ""}) as answer:
        assert answer.status == 200
    for scheme in ("bearer ", "BEARER  "):  # RFC 9110, 11.1: in any case
        async with api.get("/v1/captures", headers={"Authorization": scheme + TOKEN}) as answer:
            assert answer.status == 200


async def test_only_loopbacks_own_names_are_served(api: aiohttp.ClientSession) -> None:
    """A page that had its own name resolve to loopback is refused, even the document; a tunnel's port is none of it."""
    for host, status in {"evil.example": 403, "127.0.0.1.evil.example": 403, "": 403, "localhost:9": 200}.items():
        for path in ("/openapi.json", "/v1/captures"):
            async with api.get(path, headers={"Host": host}) as answer:
                assert answer.status == status
                assert answer.content_type == "application/json"


async def test_nothing_but_reading(api: aiohttp.ClientSession) -> None:
    """Other methods are refused in JSON, and no page of another origin is let in."""
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        async with api.request(method, "/v1/captures", headers={"Origin": "http://evil.example"}) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD")
            assert "error" in await answer.json()
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", ["captures", "captures/capture/events", "captures/capture/exchanges/a1/request/body"])
async def test_heads(api: aiohttp.ClientSession, path: str) -> None:
    """HEAD gives what GET would, without the content, and ends."""
    async with api.head(f"/v1/{path}") as head:
        assert head.status == 200
        assert await head.read() == b""
    async with api.get(f"/v1/{path}") as answer:
        assert answer.content_type == head.content_type


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


async def test_a_filter_chooses(api: aiohttp.ClientSession, demo_capture: Path) -> None:
    """The filter of the faces chooses rows, and by them exchanges and causes."""
    demo = Capture(demo_capture)
    wanted = {row.line.key for row in listed_rows(demo, parse("status:5xx layer:model_serving"))}
    assert 0 < len(wanted) < len(list(demo.rows(failed=True)))
    said = "filter=status:5xx+layer:model_serving"
    rows = (await get(api, f"/v1/captures/capture/rows?{said}"))["rows"]
    assert {row["label"] for row in rows} == {key.label for key in wanted}
    exchanges = (await get(api, f"/v1/captures/capture/exchanges?limit=1000&{said}"))["exchanges"]
    assert [one["id"] for one in exchanges] == [one.id for one in demo.exchanges() if one.attribution.row in wanted]
    causes = (await get(api, f"/v1/captures/capture/causes?{said}"))["causes"]
    assert {label for cause in causes for label in cause["rows"]} == {key.label for key in wanted}


async def test_a_way_through_many_exchanges(api: aiohttp.ClientSession, demo_capture: Path) -> None:
    """Page after page, each exchange comes once, and a filter of the first page holds for the others."""
    demo = Capture(demo_capture)
    for choice, wanted in (("", None), ("&failed=true", True)):
        found: list[str] = []
        page: dict[str, Any] = {"more": True}
        while page["more"]:
            after = f"&after={found[-1]}" if found else ""
            page = await get(api, f"/v1/captures/capture/exchanges?limit=17{choice}{after}")
            found += [one["id"] for one in page["exchanges"]]
        assert found == [one.id for one in demo.exchanges(failed=wanted)]


async def test_exchanges_that_began_together(tmp_path: Path) -> None:
    """Pages do not lose or repeat one of those that have the same time."""
    writer = CaptureWriter.create(tmp_path / "equal")
    tape = Tape(2**20)
    recorder = Recorder(tape, writer, [])
    server = Server(name="model", listen="", upstream="")
    for number, at_ns in enumerate([1, 2, 2, 2, 2, 3], 1):
        tape.put(Opened(number, server, at_ns, at_ns, "", "POST", "/v1/responses", "1.1", ()))
    recorder.close()
    with closing(Capture(tmp_path / "equal")) as capture:
        everything = [one["id"] for one in reading.exchanges(capture, {})["exchanges"]]
        for number, name in enumerate(everything):
            page = reading.exchanges(capture, {"after": name, "limit": "2"})
            assert [one["id"] for one in page["exchanges"]] == everything[number + 1 : number + 3]


async def test_captures_of_one_name(demo_capture: Path, tmp_path: Path) -> None:
    """Each of those that were named is served."""
    writer = CaptureWriter.create(tmp_path / demo_capture.name)
    writer.close()
    serving = Serving(tmp_path / "none", (demo_capture, tmp_path / demo_capture.name), token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with serve(serving) as url, aiohttp.ClientSession(url, headers=headers) as session:
        listed = (await get(session, "/v1/captures"))["captures"]
        assert [one["name"] for one in listed] == ["capture", "capture~2"]
        for one in listed:
            assert await get(session, f"/v1/captures/{one['name']}") == one


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


async def test_a_body_whose_headers_no_server_could_send(tmp_path: Path) -> None:
    """An imported recording may have line ends in a header; its body comes all the same, and they break nothing."""
    tape = Tape(2**20)
    recorder = Recorder(tape, CaptureWriter.create(tmp_path / "odd"), [])
    server = Server(name="model", listen="", upstream="")
    tape.put(Opened(1, server, 1, 1, "", "GET", "/x", "1.1", ()))
    tape.put(RequestDone(1, 2))
    tape.put(Answered(1, 3, 200, "OK", ((b"content-type", b"text/plain\r\nx-more: \x001"),)))
    tape.put(ResponseData(1, b"hello"))
    tape.put(Ended(1, 4, None))
    recorder.close()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        serve(Serving(tmp_path, token=TOKEN)) as url,
        aiohttp.ClientSession(url, headers=headers) as session,
        session.get("/v1/captures/odd/exchanges/a1/response/body") as answer,
    ):
        assert (answer.status, await answer.read()) == (200, b"hello")
        assert answer.headers["X-Content-Type"] == "text/plain x-more:  1"
        assert "X-More" not in answer.headers


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/v1/captures/nobody/rows", 404, "nobody: no such capture"),
        (f"/v1/captures/capture/rows?offset={10**18}", 400, "offset is too large"),
        (f"/v1/captures/capture/rows?task={'9' * 5000}", 400, "task is too large"),
        ("/v1/captures/..%2F..%2Fetc/rows", 404, "no such capture"),
        ("/v1/captures/capture/rows/99.9", 404, "no row 99.9"),
        ("/v1/captures/capture/rows/what", 400, "is not a row"),
        ("/v1/captures/capture/exchanges/a99999", 404, "no exchange a99999"),
        ("/v1/captures/capture/exchanges/a1/middle/body", 404, "no middle"),
        ("/v1/captures/capture/rows?limit=many", 400, "limit=many"),
        ("/v1/captures/capture/exchanges?call=phone", 400, "there is no 'phone'"),
        ("/v1/captures/capture/rows?limit=0", 400, "limit=0"),
        ("/v1/captures/capture/rows?limt=5", 400, "limt is no parameter"),
        ("/v1/captures/capture?x=1", 400, "x is no parameter"),
        ("/v1/captures/capture/rows?task=1&task=2", 400, "task is given twice"),
        ("/v1/captures/capture/rows?filter=layer%3Aspleen", 400, "spleen"),
        ("/v1/captures/capture/exchanges?after=a99999", 404, "no exchange a99999"),
        ("/v1/captures/capture/events?from_start=maybe", 400, "from_start=maybe"),
        ("/v1/captures/%00/rows", 404, "no such capture"),
        (f"/v1/captures/{'x' * 300}/rows", 404, "no such capture"),
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


async def test_events_of_what_was(api: aiohttp.ClientSession, demo_capture: Path) -> None:
    """Of a capture that has ended, all exchanges are told of, and the end."""
    async with api.get("/v1/captures/capture/events?from_start=true") as answer:
        told = (await answer.text()).split("\n\n")
    ids = [json.loads(one.partition("data: ")[2])["id"] for one in told if one.startswith("event: exchange")]
    assert ids == [one.id for one in Capture(demo_capture).exchanges()]
    assert told[-2:] == ["event: end\ndata: {}", ""]


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
