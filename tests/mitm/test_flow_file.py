"""Flows of mitmproxy's own, and exchanges through flows."""

import gzip
import io
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mitmproxy import http
from mitmproxy.io import FlowReader, FlowWriter
from mitmproxy.test import tflow
from mitmproxy.websocket import WebSocketMessage

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.export import Chosen, Wanted
from gymtap.proxy.imports import import_files
from gymtap.proxy.mitm.flow_file import METADATA, from_own, to_flow
from gymtap.proxy.store import Capture
from gymtap.schemas import Body, Exchange, GapKind, Request, Response, Server, State, TransportErrorKind

SERVER = Server(name="model", listen="http://127.0.0.1:1", upstream="https://host.example:9443")
CODINGS = [None, "gzip", "deflate", "br", "zstd"]


def written(file: Path, *flows: Any) -> Path:
    with file.open("wb") as out:
        writer = FlowWriter(out)
        for flow in flows:
            writer.add(flow)
    return file


def through(flow: http.HTTPFlow) -> http.HTTPFlow:
    """What mitmproxy's own writer and reader make of it."""
    out = io.BytesIO()
    FlowWriter(out).add(flow)
    (back,) = FlowReader(io.BytesIO(out.getvalue())).stream()
    assert isinstance(back, http.HTTPFlow)
    return back


texts = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20)
headers = st.lists(st.tuples(st.from_regex(r"[A-Za-z-]{1,12}", fullmatch=True), texts), max_size=4).map(tuple)
bodies = st.none() | st.binary(max_size=300)


@st.composite
def exchanges(draw: st.DrawFn) -> Kept:
    asked, answered = draw(bodies), draw(bodies)

    def record(content: bytes | None) -> Body | None:
        coding = draw(st.sampled_from(CODINGS)) if content else None
        return None if content is None else Body(digest="0", size_bytes=len(content), encoding=coding)

    request = Request(
        method=draw(st.sampled_from(["GET", "POST", "WEIRD"])),
        target="/" + draw(st.from_regex(r"[!-~]{0,20}", fullmatch=True)),
        headers=draw(headers),
        body=record(asked),
    )
    status = draw(st.integers(200, 599))
    response = Response(
        status=status,
        reason=draw(texts),
        headers=draw(headers),
        body=record(answered),
        first_byte_ms=1.25,
        ended_ms=2.5,
    )
    said = Exchange(
        id="a1",
        server="model",
        kind="model",
        call="model",
        state=State.DONE,
        started_ns=draw(st.integers(1, 2**62)),
        request=request,
        response=response,
        duration_ms=draw(st.floats(0, 1e9)),
    )
    return Kept(said, SERVER, asked, answered)


@settings(max_examples=80, deadline=None)
@given(exchanges())
def test_an_exchange_comes_back_equal(kept: Kept) -> None:
    """Any headers, any bodies in any coding, any time: through mitmproxy's own writer and reader, nothing changes."""
    back = through(to_flow(kept, "a comment", marked=True))
    assert (back.comment, back.marked) == ("a comment", ":red_circle:")
    assert from_own(back, back.metadata[METADATA], "here") == kept


def test_mitmproxy_understands_a_coded_body() -> None:
    """A body that was recorded decoded is coded again, as its headers say, so mitmproxy's screens can decode it."""
    body = Body(digest="0", size_bytes=9, encoding="gzip")
    answer = Response(
        status=200, reason="OK", headers=(("Content-Encoding", "gzip"),), body=body, first_byte_ms=1.0, ended_ms=2.0
    )
    said = Exchange(
        id="a1", server="model", kind="model", call="model", state=State.DONE, started_ns=1, response=answer,
        request=Request(method="GET", target="/", headers=()), duration_ms=2.0,
    )  # fmt: skip
    flow = through(to_flow(Kept(said, SERVER, None, b"text")))
    assert flow.response is not None
    assert flow.response.text == "text"
    assert flow.request.pretty_url == "https://host.example:9443/"


def test_flows_of_a_strangers(tmp_path: Path) -> None:
    """A stranger's flows are seen anew: decoded, timed, their WebSocket's messages as bodies; others are counted."""
    plain = tflow.tflow(resp=True)
    assert plain.response is not None
    plain.response.raw_content = gzip.compress(b"hello")
    plain.response.headers["content-encoding"] = "gzip"
    broken = tflow.tflow(err=True)
    socket = tflow.twebsocketflow()
    assert socket.websocket is not None
    socket.websocket.messages = [
        WebSocketMessage(1, True, b"hi", 946681204.2),
        WebSocketMessage(2, False, b"\xff", 1.0),
    ]
    plain.response.trailers = http.Headers(Checksum="1")
    file = written(tmp_path / "x.mitm", plain, broken, socket, tflow.ttcpflow())
    done = import_files([file], tmp_path / "capture")
    assert done.whole
    assert done.left_out == [f"{file}: 1 flows that are not HTTP (TCP, UDP, DNS)", f"{file}: the trailers of 1 flows"]
    capture = Capture(done.path)
    found = list(Chosen(capture, Wanted()))
    assert [kept.exchange.server for kept in found] == ["address:22", "address:22", "example.com"]
    first, second, third = found
    assert (first.request_body, first.response_body) == (b"content", b"hello")
    assert second.exchange.error is not None
    assert second.exchange.error.kind in set(TransportErrorKind)
    assert [orjson.loads(side or b"")["type"] for side in (third.request_body, third.response_body)] == [
        "text",
        "binary",
    ]


def test_what_is_edited_in_mitmproxy_comes_back_edited(demo_capture: Path, tmp_path: Path) -> None:
    """The flow is what is believed of what it can hold; the rest is the exchange's own."""
    kept = next(one for one in Chosen(Capture(demo_capture), Wanted()) if one.response_body)
    flow = to_flow(kept)
    flow.request.path = "/other"
    assert flow.response is not None
    flow.response.status_code = 418
    flow.response.text = "a teapot"
    back = Capture(import_files([written(tmp_path / "x.mitm", flow)], tmp_path / "capture").path)
    (found,) = Chosen(back, Wanted())
    assert (found.exchange.request.target, found.exchange.response and found.exchange.response.status) == (
        "/other",
        418,
    )
    assert found.response_body == b"a teapot"
    assert found.exchange.attribution == kept.exchange.attribution


def test_metadata_that_is_none(tmp_path: Path) -> None:
    """Metadata under our name that is not ours is refused in words."""
    flow = tflow.tflow()
    flow.metadata[METADATA] = '{"exchange": 1}'
    with pytest.raises(UsageError, match="flow 1: its gymtap metadata"):
        import_files([written(tmp_path / "x.mitm", flow)], tmp_path / "capture")


def test_a_flow_that_stands_twice(demo_capture: Path, tmp_path: Path) -> None:
    """Saved twice into one file, an exchange is kept once, and the other is not lost silently."""
    kept = next(iter(Chosen(Capture(demo_capture), Wanted())))
    done = import_files([written(tmp_path / "x.mitm", to_flow(kept), to_flow(kept))], tmp_path / "capture")
    assert done.exchanges == 1
    assert ["a1 is there already" in line for line in done.left_out] == [True]
    (gap,) = Capture(done.path).gaps()
    assert (gap.kind, gap.count) == (GapKind.UNPARSED, 1)


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    """What comes before the cut is kept; the flow and the byte at which it is are named, and it is a gap."""
    file = written(tmp_path / "x.mitm", tflow.tflow(), tflow.tflow())
    whole_bytes = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-9])
    done = import_files([file], tmp_path / "capture")
    assert (done.exchanges, done.whole) == (1, False)
    (line,) = done.left_out
    assert f"flow 2, from byte {whole_bytes // 2:,} of {whole_bytes - 9:,}" in line
    (gap,) = Capture(done.path).gaps()
    assert line in gap.detail
    assert gap.count is None
