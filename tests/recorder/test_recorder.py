"""Events go in as an engine says them; whole exchanges come out of the capture."""

import gzip
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.recorder.conftest import BEGIN_NS, MS, SERVER, Desk, opened, request, response

from gymtap.proxy.core.addon import Addon
from gymtap.proxy.core.events import Answered, Dropped, Ended, RequestData, ResponseData, Unparsed
from gymtap.proxy.core.flow import INSPECT_MAX_BYTES, Flow
from gymtap.proxy.store import Capture
from gymtap.schemas import (
    Attribution,
    Call,
    Exchange,
    GapKind,
    Request,
    Response,
    RowKey,
    RowState,
    Server,
    ServerKind,
    State,
    TransportError,
    TransportErrorKind,
)

CLOSED = TransportError(kind=TransportErrorKind.CLOSED, message="received 3 of 9 bytes")


def test_an_exchange_is_recorded_as_it_crossed(desk: Desk) -> None:
    headers = ((b"Host", b"x"), (b"X-A", b"caf\xe9"), (b"x-a", b"2"))
    capture = desk.play(
        *request(body=[b'{"a"', b": 1}"], headers=headers, target="/v1/x%2Fy?q=%20"),
        *response(body=[b"o", b"k"], headers=((b"set-cookie", b"a=b"), (b"set-cookie", b"c=d"))),
    )
    found = capture.exchange("a1")
    assert found == Exchange(
        id="a1",
        server="model",
        kind=ServerKind.UNKNOWN,
        call=Call.OTHER,
        state=State.DONE,
        started_ns=BEGIN_NS + 1,
        request=Request(
            method="POST",
            target="/v1/x%2Fy?q=%20",
            headers=(("Host", "x"), ("X-A", "café"), ("x-a", "2")),
            body=found.request.body,
        ),
        response=Response(
            status=200,
            reason="OK",
            headers=(("set-cookie", "a=<redacted>"), ("set-cookie", "c=<redacted>")),
            body=found.response.body if found.response else None,
            first_byte_ms=2.0,
            ended_ms=3.0,
        ),
        duration_ms=3.0,
        request_done_ms=1.0,
    )
    assert desk.bodies(found) == (b'{"a": 1}', b"ok")


def test_an_exchange_is_visible_from_its_head_on(desk: Desk) -> None:
    assert desk.play(opened()).exchange("a1").state is State.OPEN
    capture = desk.play(Answered(1, BEGIN_NS + MS, 200, "OK", ((b"set-cookie", b"a=secret-value"),)))
    streaming = capture.exchange("a1")
    assert streaming.response is not None
    assert (streaming.state, streaming.response.status, streaming.response.ended_ms) == (State.OPEN, 200, None)
    assert streaming.response.headers == (("set-cookie", "a=<redacted>"),)


def test_an_exchange_that_broke_keeps_what_came(desk: Desk) -> None:
    events = response(body=[b"par"], error=CLOSED)
    found = desk.play(opened(), RequestData(1, b"half"), *events).exchange("a1")
    assert (found.state, found.error, found.request_done_ms) == (State.FAILED, CLOSED, None)
    assert desk.bodies(found) == (b"half", b"par")
    refused = TransportError(kind=TransportErrorKind.REFUSED, message="connection refused")
    found = desk.play(*request(2), Ended(2, BEGIN_NS + MS, refused)).exchange("a2")
    assert (found.error, found.response, found.request.body) == (refused, None, None)


def test_bodies_are_kept_decoded_and_say_so(desk: Desk) -> None:
    body = gzip.compress(b'{"x": 1}')
    found = desk.play(
        *request(body=[b"plain"]), *response(body=[body[:7], body[7:]], headers=((b"Content-Encoding", b"gzip"),))
    ).exchange("a1")
    assert desk.bodies(found) == (b"plain", b'{"x": 1}')
    assert found.response is not None
    assert found.response.body is not None
    assert (found.response.body.encoding, found.response.body.size_bytes) == ("gzip", len(body))


def test_what_cannot_be_decoded_is_kept_raw(desk: Desk) -> None:
    found = desk.play(*request(), *response(body=[b"no gzip"], headers=((b"Content-Encoding", b"gzip"),))).exchange(
        "a1"
    )
    assert desk.bodies(found)[1] == b"no gzip"
    assert found.response is not None
    assert found.response.body is not None
    assert (found.response.body.encoding, found.response.body.missing_bytes) == (None, 0)


def test_a_body_that_breaks_off_in_its_coding_is_kept_up_to_there(desk: Desk) -> None:
    whole = gzip.compress(random.Random(1).randbytes(100_000))
    broken = [whole[:60_000], b"\0" * 1000, whole[61_000:]]
    found = desk.play(*request(), *response(body=broken, headers=((b"Content-Encoding", b"gzip"),))).exchange("a1")
    kept = desk.bodies(found)[1]
    assert kept is not None
    assert random.Random(1).randbytes(100_000).startswith(kept[:50_000])
    assert found.response is not None
    assert found.response.body is not None
    assert (found.response.body.encoding, found.response.body.size_bytes) == ("gzip", len(whole))


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_chunking_gives_the_same_record(new_desk: Callable[..., Desk], pieces: list[bytes], zipped: bool) -> None:
    whole = b"".join(pieces)
    sent = gzip.compress(whole, mtime=0) if zipped else whole
    headers = ((b"content-encoding", b"gzip"),) if zipped else ()
    chunks = [sent[at : at + 3] for at in range(0, len(sent), 3)]
    one = new_desk()
    capture = one.play(*request(1, [sent] if sent else [], headers), *request(2, chunks, headers))
    assert capture.exchange("a1").request.body == capture.exchange("a2").request.body
    one.writer.close()


class Seen(Addon):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def listening(self, server: Server) -> None:
        self.told.append(("listening", server.name, server.kind))

    def opened(self, flow: Flow) -> None:
        self.told.append(("opened", flow.id, flow.header("authorization")))

    def requested(self, flow: Flow) -> None:
        self.told.append(("requested", flow.request_json))

    def ended(self, flow: Flow) -> None:
        self.told.append(("ended", flow.status, flow.response_body))

    def stopped(self) -> None:
        self.told.append("stopped")


def test_addons_are_told_in_order(new_desk: Callable[..., Desk]) -> None:
    seen = Seen()
    desk = new_desk(seen)
    desk.recorder.listening(SERVER)
    desk.play(*request(body=[b'{"a": 1}']), *response(body=[b"ok"]))
    desk.writer.identify("model", ServerKind.MODEL)
    desk.play()
    desk.recorder.close()
    assert seen.told == [
        ("listening", "model", ServerKind.UNKNOWN),
        ("opened", "a1", None),
        ("requested", {"a": 1}),
        ("ended", 200, b"ok"),
        ("listening", "model", ServerKind.MODEL),
        "stopped",
    ]


class Holder(Addon):
    """Looks into bodies, and holds on to flows."""

    def __init__(self) -> None:
        self.held: list[tuple[Flow, object]] = []

    def ended(self, flow: Flow) -> None:
        self.held.append((flow, flow.response_json))


def test_what_was_parsed_is_dropped_at_the_end_and_can_be_read_again(new_desk: Callable[..., Desk]) -> None:
    """Who holds a flow holds its bytes only."""
    holder = Holder()
    new_desk(holder).play(*request(body=[b"1"]), *response(body=[b'{"a": 1}']))
    ((flow, read),) = holder.held
    assert "response_json" not in vars(flow)
    assert flow.response_json == read == {"a": 1}


def test_an_addon_need_not_have_every_hook(new_desk: Callable[..., Desk]) -> None:
    """Whatever an entry point makes is told of the hooks that it has."""
    told: list[str] = []
    capture = new_desk(SimpleNamespace(ended=lambda flow: told.append(flow.id))).play(*request(), *response())
    assert told == ["a1"]
    assert capture.gaps() == ()


class Broken(Addon):
    def opened(self, flow: Flow) -> None:
        raise ValueError("no way with api_key=Zq9vX7secret")


def test_an_addon_that_raises_is_one_gap_with_a_count_and_nothing_else_stops(new_desk: Callable[..., Desk]) -> None:
    seen = Seen()
    desk = new_desk(Broken(), seen)
    capture = desk.play(*request(1), *request(2))
    capture = desk.play(*request(3))
    (gap,) = capture.gaps()
    assert (gap.kind, gap.count) == (GapKind.ADDON_FAILED, 3)
    assert gap.detail == "Broken.opened raised ValueError: no way with api_key=<redacted>"
    assert desk.recorder.gap_count == 1
    assert [told[1] for told in seen.told if isinstance(told, tuple) and told[0] == "opened"] == ["a1", "a2", "a3"]


class Rows(Addon):
    """Knows rows by the body, as the identity addon does."""

    def requested(self, flow: Flow) -> None:
        flow.call = Call.RUN
        flow.attribution = Attribution(row=RowKey(task=flow.request_json["task"], rollout=0))


def test_a_run_makes_a_row(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(Rows())
    capture = desk.play(*request(body=[b'{"task": 4}']))
    assert next(capture.rows()).state is RowState.RUNNING
    desk.play(*response(body=[b'{"reward": 0.5, "x": 1}']))
    row = next(capture.rows())
    assert (row.key.task, row.state, row.reward, row.status, row.duration_ms) == (4, RowState.DONE, 0.5, 200, 3.0)


def test_a_long_body_is_kept_but_not_looked_into(new_desk: Callable[..., Desk]) -> None:
    seen = Seen()
    desk = new_desk(seen)
    secret = b"sk-Zq9vX7Lm2Tr5Wb8Kc4"
    piece = b"0123456789abcde\n" * 4096
    pieces = [piece] * (INSPECT_MAX_BYTES // len(piece) + 3)
    pieces[3] = piece[:-10] + b" " + secret[:8]
    pieces[4] = secret[8:] + b" " + piece
    found = desk.play(*request(body=pieces), *response()).exchange("a1")
    assert ("requested", None) in seen.told
    asked = found.request.body
    assert asked is not None
    assert (asked.size_bytes, asked.redacted) == (sum(map(len, pieces)), 1)
    kept = desk.bodies(found)[0]
    assert kept == b"".join(pieces).replace(secret, b"<redacted>")


def test_what_a_slow_body_has_brought_is_there_before_its_end(desk: Desk) -> None:
    """A stream's events are readable as they come, without the secrets in them, and the whole replaces them."""
    head, *_ = response()
    desk.play(*request(), head, ResponseData(1, b'data: {"step": "one"}\n\ndata: {"api_'))
    assert desk.bodies(Capture(desk.directory).exchange("a1"))[1] == b'data: {"step": "one"}\n\n'
    desk.play(ResponseData(1, b'key": "Zq9vX7"}\n\n'))
    so_far = b'data: {"step": "one"}\n\ndata: {"api_key": "<redacted>"}\n\n'
    streaming = Capture(desk.directory).exchange("a1")
    assert (streaming.state, desk.bodies(streaming)[1]) == (State.OPEN, so_far)
    capture = desk.play(ResponseData(1, b"data: [DONE]\n\n"), Ended(1, BEGIN_NS))
    assert desk.bodies(capture.exchange("a1"))[1] == so_far + b"data: [DONE]\n\n"
    assert desk.writer._connection.execute("SELECT count(*) FROM segments").fetchone() == (0,)


def test_what_the_tape_had_no_room_for_is_counted(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(limit_bytes=10)
    capture = desk.play(*request(body=[b"12345"]), *response(body=[b"12345", b"too much"]))
    found = capture.exchange("a1")
    assert found.response is not None
    assert found.response.body is not None
    assert (found.response.body.size_bytes, found.response.body.missing_bytes) == (13, 8)
    assert [(gap.kind, gap.exchange, gap.size_bytes) for gap in capture.gaps()] == [(GapKind.QUEUE_FULL, "a1", 8)]


def test_a_request_that_lost_bytes_says_so_when_that_is_known(desk: Desk) -> None:
    capture = desk.play(
        *request(body=[b"123"]), Answered(1, BEGIN_NS, 200, "OK", ()), Dropped(1, 7, 0), Ended(1, BEGIN_NS)
    )
    body = capture.exchange("a1").request.body
    assert body is not None
    assert (body.size_bytes, body.missing_bytes) == (10, 7)


def test_bytes_that_are_no_text_do_not_stop_the_recording(desk: Desk) -> None:
    capture = desk.play(*request(1, target="/caf\udcff"), *response(1), *request(2), *response(2))
    assert [exchange.request.target for exchange in capture.exchanges()] == ["/caf\\udcff", "/x"]


def test_an_exchange_that_cannot_be_written_is_a_gap_and_the_others_go_on(new_desk: Callable[..., Desk]) -> None:
    class Surrogate(Addon):
        def ended(self, flow: Flow) -> None:
            if flow.id == "a1":
                flow.parent = "\udcff"
            if flow.id == "a2":
                flow.target = "\udcff"

    desk = new_desk(Surrogate())
    capture = desk.play(*[event for number in (1, 2, 3) for event in (*request(number), *response(number))])
    assert [exchange.id for exchange in capture.exchanges()] == ["a3"]
    told = [(gap.kind, gap.exchange) for gap in capture.gaps()]
    assert told == [(GapKind.WRITE_FAILED, "a1"), (GapKind.WRITE_FAILED, "a2")]


def test_content_beyond_the_memory_is_kept_on_disk_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymtap.proxy.recorder.HELD_LIMIT_BYTES", 1000)
    bodies = {number: bytes([64 + number]) * 400 for number in range(1, 6)}
    for number, body in bodies.items():
        desk.play(opened(number), RequestData(number, body))
    capture = desk.play(*[event for number in bodies for event in (*request(number)[1:], *response(number))])
    assert [desk.bodies(capture.exchange(f"a{number}"))[0] for number in bodies] == list(bodies.values())
    assert desk.recorder._memory.held_bytes == 0


def test_unparsed_bytes_are_a_gap(desk: Desk) -> None:
    capture = desk.play(Unparsed(SERVER, 5, "an upgrade to websocket"))
    assert [(gap.kind, gap.detail) for gap in capture.gaps()] == [(GapKind.UNPARSED, "model: an upgrade to websocket")]


def test_events_of_no_open_exchange_are_passed_over(desk: Desk) -> None:
    capture = desk.play(ResponseData(9, b"x"), Ended(9, 1), *request(1), *response(1), ResponseData(1, b"late"))
    assert [exchange.id for exchange in capture.exchanges()] == ["a1"]
    assert desk.recorder.gap_count == 0


def test_the_thread_records_while_others_put(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk()
    desk.recorder.start()
    events = [[*request(number, [b"x"]), *response(number, [b"y"])] for number in range(1, 101)]

    def put() -> None:
        for exchange in events:
            for event in exchange:
                desk.tape.put(event)

    thread = threading.Thread(target=put)
    thread.start()
    thread.join()
    assert desk.recorder.flush(30)
    exchanges = list(Capture(desk.directory).exchanges(state=State.DONE))
    assert [exchange.id for exchange in exchanges] == [f"a{number}" for number in range(1, 101)]
    desk.recorder.close()


@pytest.mark.parametrize("started", [True, False])
def test_closing_records_what_is_left(new_desk: Callable[..., Desk], started: bool) -> None:
    desk = new_desk()
    if started:
        desk.recorder.start()
    for event in (*request(1, [b"x"]), *response(1, [b"y"]), *request(2)):
        desk.tape.put(event)
    desk.recorder.close()
    capture = Capture(desk.directory)
    assert [exchange.state for exchange in capture.exchanges()] == [State.DONE, State.FAILED]
    assert capture.info().ended_ns is not None
