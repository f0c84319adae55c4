"""Each format against what reads it: a schema, a shell, an interpreter, a database."""

import asyncio
import base64
import io
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import duckdb
import jsonschema_rs
import orjson
import pytest
from aiohttp import web
from mitmproxy import http
from mitmproxy.io import FlowReader
from pyarrow import parquet  # type: ignore[import-untyped]  # it is not annotated

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.core.redaction import PLACEHOLDER
from gymtap.proxy.export import Chosen, Wanted
from gymtap.proxy.export.har import har
from gymtap.proxy.export.lines import exchange_lines, row_lines
from gymtap.proxy.export.parquet import GROUP_BYTES, record, write_parquet
from gymtap.proxy.export.snippet import curl, openai, python
from gymtap.proxy.store import Capture
from gymtap.schemas import Body, Call, Exchange, Headers, Request, Server, ServerKind, State

CLIENTS_OWN = {b"host", b"content-length"}
SCHEMA = Path(__file__).parent / "har12.schema.json"
DOCS = Path(__file__).parents[2] / "docs/exports.md"


def whole(pieces: Any) -> Any:
    return orjson.loads(b"".join(pieces))


class TestHar:
    def test_it_is_valid(self, capture: Capture, demo_capture: Path) -> None:
        """Both captures satisfy HAR 1.2, field by field."""
        validator = jsonschema_rs.validator_for(orjson.loads(SCHEMA.read_bytes()))
        for one in (capture, Capture(demo_capture)):
            document = whole(har(Chosen(one, Wanted()), "1"))
            assert [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(document)] == []
            assert len(document["log"]["entries"]) == one.count()

    def test_the_schema_refuses(self, capture: Capture) -> None:
        """The schema that the test above trusts does refuse what the specification forbids."""
        validator = jsonschema_rs.validator_for(orjson.loads(SCHEMA.read_bytes()))
        document = whole(har(Chosen(capture, Wanted()), "1"))
        for path, value in (("time", -2), ("gymtap", 1), ("startedDateTime", "today")):
            spoiled = {"log": document["log"] | {"entries": [document["log"]["entries"][0] | {path: value}]}}
            assert not validator.is_valid(spoiled)

    def test_nothing_is_cut_silently(self, capture: Capture) -> None:
        """Bodies are whole; what the capture lacks is said in the entry, and counted."""
        chosen = Chosen(capture, Wanted())
        entries = {entry["_gymtap"]["id"]: entry for entry in whole(har(chosen, "1"))["log"]["entries"]}
        assert entries["a2"]["response"]["content"] == {
            "size": 495,
            "mimeType": "application/json",
            "compression": 495 - entries["a2"]["response"]["bodySize"],
            "text": "slow " * 99,
        }
        content = entries["a3"]["response"]["content"]
        assert base64.b64decode(content["text"]) == bytes(range(256))
        assert content["encoding"] == "base64"
        assert entries["a4"]["response"]["status"] == 0
        assert entries["a4"]["response"]["_error"] == "refused: connection refused"
        assert "1000 bytes of the response body were not captured" in entries["a5"]["comment"]
        assert set(chosen.incomplete) == {"a5"}

    def test_no_entries(self, capture: Capture) -> None:
        """An empty choice is a valid HAR too."""
        assert whole(har(Chosen(capture, Wanted(server="nobody")), "1"))["log"]["entries"] == []


def test_mitmproxy_reads_our_har(capture: Capture) -> None:
    """Another program's reader of HAR finds the same requests and the same bodies."""
    document = b"".join(har(Chosen(capture, Wanted()), "1"))
    flows = [flow for flow in FlowReader(io.BytesIO(document)).stream() if isinstance(flow, http.HTTPFlow)]
    kept = list(Chosen(capture, Wanted()))
    assert [flow.request.path for flow in flows] == [one.exchange.request.target for one in kept]
    text = next(flow for flow in flows if flow.response is not None and flow.response.status_code == 429)
    assert text.response is not None
    assert text.response.text == "slow " * 99


class TestLines:
    def test_a_row_with_its_diagnosis(self, capture: Capture) -> None:
        """Each row stands once, by its label, with what a report always says."""
        (line,) = [orjson.loads(line) for line in row_lines(capture, capture.rows(), now_ns=0)]
        assert (line["schema"], line["label"]) == ("gymtap.row/1", "12.3")
        assert line["row"]["reward"] == 1.0
        assert {"symptom", "layer", "cause", "next_action"} <= line["diagnosis"].keys()

    def test_the_first_line_is_the_capture(self, capture: Capture) -> None:
        """Gaps travel with the exchanges."""
        first, *rest = [orjson.loads(line) for line in exchange_lines(capture, Chosen(capture, Wanted()))]
        assert first["schema"] == "gymtap.capture/1"
        assert len(first["gaps"]) == len(capture.gaps())
        assert [line["exchange"]["id"] for line in rest] == ["a1", "a2", "a3", "a4", "a5", "a6"]


class TestParquet:
    def test_duckdb_answers_the_documented_query(self, demo_capture: Path, tmp_path: Path) -> None:
        """The query in the documentation runs as it stands and finds the failures of the demo."""
        demo = Capture(demo_capture)
        with (tmp_path / "capture.parquet").open("wb") as out:
            write_parquet(Chosen(demo, Wanted()), out)
        (query,) = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
        with duckdb.connect() as database:
            database.execute(f"SET file_search_path = '{tmp_path}'")
            found = database.execute(query).fetchall()
            counted = database.execute("SELECT count(*), sum(failed::int) FROM 'capture.parquet'").fetchone()
        assert counted == (demo.count(), sum(exchange.failed for exchange in demo.exchanges()))
        failures = Counter(
            (exchange.server, exchange.response.status)
            for exchange in demo.exchanges(failed=True)
            if exchange.response is not None
        )
        assert {(server, status): count for server, status, count, *_ in found} == failures != {}

    def test_nothing(self, capture: Capture, tmp_path: Path) -> None:
        """An empty choice has all columns and no line, so a query over it says so."""
        with (tmp_path / "none.parquet").open("wb") as out:
            write_parquet(Chosen(capture, Wanted(server="nobody")), out)
        (query,) = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
        with duckdb.connect() as database:
            found = database.execute(query.replace("capture.parquet", str(tmp_path / "none.parquet"))).fetchall()
        assert found == []

    def test_every_column_is_documented(self, capture: Capture) -> None:
        """The schema that is written is the one that the documentation lists, and lines carry all of it."""
        out = io.BytesIO()
        write_parquet(Chosen(capture, Wanted()), out)
        columns = parquet.read_schema(io.BytesIO(out.getvalue())).names
        (listed,) = re.findall(r"## Parquet\n(.*?)```", DOCS.read_text(), re.DOTALL)
        assert set(columns) - set(re.findall(r"`(\w+)`", listed)) == set()
        assert record(named(capture, "a1")).keys() <= set(columns)

    def test_longer_than_a_group(self, capture: Capture) -> None:
        """Many bodies are written in several groups, none of which holds more than a few of them."""
        kept = named(capture, "a1")
        long = Kept(kept.exchange, kept.server, b"x" * (GROUP_BYTES // 2), kept.response_body)
        out = io.BytesIO()
        write_parquet((long for _ in range(5)), out)
        file = parquet.ParquetFile(io.BytesIO(out.getvalue()))
        assert (file.metadata.num_rows, file.num_row_groups) == (5, 3)
        assert {len(row["request_body"]) for row in file.read(["request_body"]).to_pylist()} == {GROUP_BYTES // 2}

    def test_every_body_is_there(self, capture: Capture) -> None:
        """Text and binary bodies each in their column, times to the nanosecond."""
        out = io.BytesIO()
        write_parquet(Chosen(capture, Wanted()), out)
        table = {row["id"]: row for row in parquet.read_table(io.BytesIO(out.getvalue())).to_pylist()}
        assert table["a3"]["request_binary"] == bytes(range(256))
        assert table["a3"]["request_body"] is None
        assert table["a2"]["response_body"] == "slow " * 99
        assert table["a1"]["started_ns"] == next(capture.exchanges()).started_ns
        assert (table["a1"]["row"], table["a1"]["task"], table["a1"]["rollout"]) == ("12.3", 12, 3)


type Ask = Callable[[Kept, str], Awaitable[dict[str, Any]]]


@pytest.fixture
async def sent(tmp_path: Path) -> AsyncIterator[Ask]:
    """Runs what was exported, with `python` or `sh`, against a real server, and gives what the server was asked."""
    seen: list[dict[str, Any]] = []

    async def take(request: web.Request) -> web.Response:
        seen.append(
            {
                "method": request.method,
                "target": request.raw_path,
                "headers": {name.lower(): value for name, value in request.headers.items()},
                "fields": [(name, value) for name, value in request.raw_headers if name.lower() not in CLIENTS_OWN],
                "body": await request.read(),
            }
        )
        return web.json_response({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []})

    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{tail:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    async def ask(kept: Kept, interpreter: str) -> dict[str, Any]:
        moved = Kept(
            kept.exchange,
            Server(name="x", listen="", upstream=f"http://127.0.0.1:{port}"),
            kept.request_body,
        )
        script = tmp_path / "script"
        script.write_text({"sh": curl, "python": python, "openai": openai}[interpreter](moved))
        command = ["sh", str(script)] if interpreter == "sh" else [sys.executable, "-W", "error", str(script)]
        secrets = {"OPENAI_API_KEY": "sk-again", "GYMTAP_TARGET": "again", "GYMTAP_X_TOKEN": "tk-again"}
        child = await asyncio.create_subprocess_exec(
            *command, env=os.environ | secrets | {"NO_PROXY": "*"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        said, errors = await child.communicate()
        assert child.returncode == 0, errors.decode()
        assert not [secret for secret in secrets.values() if secret.encode() in said + errors]
        return seen[-1]

    yield ask
    await runner.cleanup()


def named(capture: Capture, name: str) -> Kept:
    (kept,) = Chosen(capture, Wanted(ids=(name,)))
    return kept


@pytest.mark.parametrize("interpreter", ["sh", "python"])
@pytest.mark.parametrize("name", ["a1", "a2", "a3", "a4", "a6"])
async def test_one_exchange_is_sent_again(capture: Capture, sent: Ask, interpreter: str, name: str) -> None:
    """curl and httpx send the method, the target and the body byte for byte, and the secret from the environment."""
    kept = named(capture, name)
    found = await sent(kept, interpreter)
    assert (found["method"], found["target"]) == ("POST", kept.exchange.request.target)
    assert found["body"] == (kept.request_body or b"")
    assert found["headers"]["content-type"] == "application/json"
    if name == "a2":
        assert found["headers"]["authorization"] == "Bearer sk-again"


def asked(target: str, headers: Headers, body: bytes) -> Kept:
    """An exchange with that request."""
    request = Request(method="PUT", target=target, headers=headers, body=Body(digest=None, size_bytes=len(body)))
    exchange = Exchange(
        id="a1", server="x", kind=ServerKind.PROVIDER, call=Call.OTHER, state=State.OPEN, started_ns=1, request=request
    )
    return Kept(exchange, None, body)


UGLY = (
    ("x-Quotes", """it's "q" `id` $HOME \\ !x %s"""),
    ("X-Twice", "1"),
    ("X-TWICE", "2"),
    ("X-Empty", ""),
    ("X-Utf8", "\u00c3\u00a9"),  # as recorded: a character for each byte
    ("X-Latin1", "\u00e9'\u00ff"),
)


@pytest.mark.parametrize("interpreter", ["sh", "python"])
@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/plain?a=%2F&b", b"""{"a": "it's \\n $HOME `id` \\u00e9 \xc3\xa9 %s !x"}\n"""),
        ("//a/../b/./c?d=[1]{2}|^&e=%7e", b"\r\n\r\n"),
        ("/a/%zz/\"'$x`", b"@not-a-file"),
        ("/huge", b'{"text": "' + b"0123456789abcdef" * 200_000 + b'"}'),
        ("/binary", bytes(range(256)) * 3),
    ],
)
async def test_bytes_that_shells_and_clients_would_change(
    sent: Ask, interpreter: str, target: str, body: bytes
) -> None:
    """The target, the header fields in their order and case, and the body arrive as they were recorded."""
    found = await sent(asked(target, UGLY, body), interpreter)
    assert (found["method"], found["target"]) == ("PUT", target)
    assert found["fields"] == [(name.encode(), value.encode("latin-1")) for name, value in UGLY]
    assert found["body"] == body


@pytest.mark.parametrize("interpreter", ["sh", "python"])
async def test_secrets_come_from_the_environment(sent: Ask, interpreter: str) -> None:
    """What was redacted, in a header or in the target, is asked for by name; of a body it is said."""
    headers = (("X-Token", f"v1 {PLACEHOLDER}"), ("Content-Type", "text/plain"))
    kept = asked(f"/x?key={PLACEHOLDER}&a=b", headers, f"key={PLACEHOLDER}".encode())
    found = await sent(kept, interpreter)
    assert found["target"] == "/x?key=again&a=b"
    assert found["fields"][0] == (b"X-Token", b"v1 tk-again")
    assert "put yours in its place" in curl(kept).splitlines()[0]


def test_a_secret_that_is_not_there(capture: Capture) -> None:
    """Nothing is sent without it, and the variable is named."""
    bare = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    done = subprocess.run(["sh", "-c", curl(named(capture, "a2"))], env=bare, capture_output=True, check=False)
    assert done.returncode != 0
    assert b"OPENAI_API_KEY" in done.stderr


async def test_the_sdk_makes_the_same_call(capture: Capture, sent: Ask) -> None:
    """The OpenAI SDK sends the same JSON, once."""
    kept = named(capture, "a2")
    found = await sent(kept, "openai")
    assert found["target"] == "/v1/chat/completions"
    assert orjson.loads(found["body"]) == orjson.loads(kept.request_body or b"")
    assert found["headers"]["authorization"] == "Bearer sk-again"


def test_what_the_sdk_cannot_say(capture: Capture) -> None:
    """An exchange that is no call of a model is refused in words."""
    with pytest.raises(UsageError, match="a3 is no call"):
        openai(named(capture, "a3"))
