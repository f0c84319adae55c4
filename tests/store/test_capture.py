"""What is written is what is read, at once and from another connection."""

import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.conftest import AGENT, MODEL, Scribe, attributed

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import (
    Attribution,
    Body,
    Call,
    Confidence,
    Exchange,
    Finding,
    Gap,
    GapKind,
    Request,
    Response,
    Row,
    RowKey,
    RowState,
    ServerKind,
    Severity,
    State,
    TransportError,
    TransportErrorKind,
)

REFUSED = TransportError(kind=TransportErrorKind.REFUSED, message="connection refused")


def read(scribe: Scribe) -> Capture:
    scribe.writer.commit()
    return Capture(scribe.writer.file.parent)


def test_an_exchange_comes_back_whole(scribe: Scribe) -> None:
    flow = scribe.end(scribe.open(attribution=attributed(3), parent=None))
    capture = read(scribe)
    found = capture.exchange(flow.id)
    assert found == Exchange(
        id="a1",
        server="agent",
        kind=ServerKind.AGENT,
        call=Call.RUN,
        state=State.DONE,
        started_ns=1_000_000,
        request=Request(
            method="POST",
            target="/run",
            headers=(("Host", "127.0.0.1:1"), ("X-Twice", "a"), ("x-twice", "b")),
            body=Body(**scribe.body(b'{"x": 1}')._asdict()),
        ),
        response=Response(
            status=200,
            reason="OK",
            headers=(("content-type", "application/json"),),
            body=Body(**scribe.body(b'{"reward": 1.0}')._asdict()),
            first_byte_ms=1.5,
            ended_ms=2.5,
        ),
        duration_ms=2.5,
        request_done_ms=0.5,
        attribution=attributed(3),
    )
    assert found.request.body is not None
    assert capture.body(found.request.body) == b'{"x": 1}'


def test_an_open_exchange_is_visible_and_then_ends(scribe: Scribe) -> None:
    flow = scribe.open(attribution=attributed(1))
    capture = read(scribe)
    assert [exchange.state for exchange in capture.exchanges()] == [State.OPEN]
    assert capture.info().open_exchanges == 1
    assert next(capture.rows()).state is RowState.RUNNING
    scribe.end(flow, status=None, error=REFUSED)
    scribe.writer.commit()
    ended = capture.exchange(flow.id)
    assert (ended.state, ended.error, ended.response) == (State.FAILED, REFUSED, None)
    assert next(capture.rows()).error == "refused: connection refused"


def test_a_row_is_its_outermost_run(scribe: Scribe) -> None:
    outer = scribe.open(attribution=attributed(5))
    inner = scribe.open(attribution=attributed(5), parent=outer.id)
    tool = scribe.open(server=MODEL, call=Call.MODEL, attribution=attributed(5), parent=inner.id)
    scribe.end(tool, status=404, response=b"no")
    scribe.end(inner, response=b'{"reward": 0.25}')
    scribe.end(outer, response=b'{"reward": 0.5}')
    assert list(read(scribe).rows()) == [
        Row(
            key=RowKey(task=5, rollout=0, agent="simple"),
            state=RowState.DONE,
            root=outer.id,
            started_ns=1_000_000,
            duration_ms=2.5,
            status=200,
            reward=0.5,
            exchanges=3,
            failed_exchanges=1,
        )
    ]


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        (b'{"reward": 1}', 1.0),
        (b'{"reward": NaN}', None),
        (b'{"reward": true}', None),
        (b'{"reward": "1"}', None),
        (b"[1]", None),
        (b"", None),
    ],
)
def test_a_reward_is_a_finite_number(scribe: Scribe, answer: bytes, reward: float | None) -> None:
    scribe.end(scribe.open(attribution=attributed(0)), response=answer)
    assert next(read(scribe).rows()).reward == reward


def test_a_revised_attribution_moves_the_exchange_to_its_row(scribe: Scribe) -> None:
    scribe.end(scribe.open(attribution=attributed(1)))
    model = scribe.end(scribe.open(server=MODEL, call=Call.OTHER))
    capture = read(scribe)
    scribe.writer.attribute(model.id, attributed(1), "a1", 2)
    scribe.writer.classify(model.id, Call.MODEL)
    scribe.writer.commit()
    found = capture.exchange(model.id)
    assert (found.attribution, found.parent, found.attempt, found.call) == (attributed(1), "a1", 2, Call.MODEL)
    assert (found.caller, found.boundary) == ("agent", "agent->model")
    assert next(capture.rows()).exchanges == 2


def test_an_open_exchange_is_revised_in_memory_too(scribe: Scribe) -> None:
    flow = scribe.open(server=MODEL, call=Call.OTHER)
    scribe.writer.commit()
    scribe.writer.attribute(flow.id, attributed(1), None, 0)
    scribe.writer.classify(flow.id, Call.MODEL)
    scribe.end(flow)
    found = read(scribe).exchange(flow.id)
    assert (found.attribution, found.call) == (attributed(1), Call.MODEL)


def test_a_server_that_is_identified_later_names_its_exchanges(scribe: Scribe) -> None:
    server = MODEL.model_copy(update={"name": "x", "kind": ServerKind.UNKNOWN})
    before = scribe.end(scribe.open(server=server))
    scribe.writer.commit()
    scribe.writer.identify("x", ServerKind.JUDGE)
    after = scribe.end(scribe.open(server=server))
    capture = read(scribe)
    assert [capture.exchange(flow.id).kind for flow in (before, after)] == [ServerKind.JUDGE] * 2
    assert [server.kind for server in capture.servers()] == [ServerKind.JUDGE]


def test_exchanges_are_chosen_by_what_is_asked(scribe: Scribe) -> None:
    scribe.end(scribe.open(attribution=attributed(1)))
    scribe.end(scribe.open(server=MODEL, call=Call.MODEL, attribution=attributed(1)), status=500)
    scribe.open(server=MODEL, call=Call.HEALTH)
    capture = read(scribe)

    def ids(**asked: object) -> list[str]:
        return [exchange.id for exchange in capture.exchanges(**asked)]  # type: ignore[arg-type]  # the question varies

    assert ids() == ["a1", "a2", "a3"]
    assert ids(limit=2) == ["a1", "a2"]
    assert ids(call=Call.MODEL) == ids(failed=True) == ["a2"]
    assert ids(kind=ServerKind.MODEL) == ids(server="model") == ["a2", "a3"]
    assert ids(state=State.OPEN) == ids(attributed=False) == ["a3"]
    assert ids(row=RowKey(task=1, rollout=0)) == ["a1", "a2"]
    assert ids(row=RowKey(task=1, rollout=0, agent="another")) == []


def test_rows_are_chosen_by_what_is_asked(scribe: Scribe) -> None:
    scribe.end(scribe.open(attribution=attributed(1)))
    scribe.end(scribe.open(attribution=attributed(2, agent="other")), status=500, response=b'"KeyError(1)"')
    scribe.open(attribution=attributed(3))
    capture = read(scribe)

    def tasks(**asked: object) -> list[int | None]:
        return [row.key.task for row in capture.rows(**asked)]  # type: ignore[arg-type]  # the question varies

    assert tasks() == [1, 2, 3]
    assert tasks(failed=True) == tasks(agent="other") == tasks(task=2) == [2]
    assert tasks(failed=False) == [1, 3]
    assert tasks(state=RowState.RUNNING) == [3]
    assert tasks(run=2) == []
    assert next(capture.rows(failed=True)).error == '500 "KeyError(1)"'


def test_a_row_is_found_by_its_label_when_that_is_enough(scribe: Scribe) -> None:
    for agent in ("one", "two"):
        scribe.end(scribe.open(attribution=attributed(1, agent=agent)))
    scribe.end(scribe.open(attribution=attributed(2)))
    capture = read(scribe)
    assert capture.row(RowKey.parse("2.0")).key.agent == "simple"
    assert capture.row(RowKey.parse("1.0~two")).key.agent == "two"
    with pytest.raises(CaptureError, match="is 2 rows") as several:
        capture.row(RowKey.parse("1.0"))
    assert several.value.hint == "say which: 1.0~one, 1.0~two"
    with pytest.raises(CaptureError, match=r"no row 2\.7") as none:
        capture.row(RowKey.parse("2.7"))
    assert none.value.hint.startswith("there are: 2.0, 1.0")


def test_findings_and_gaps_come_back(scribe: Scribe) -> None:
    flow = scribe.end(scribe.open(attribution=attributed(1)))
    finding = Finding(rule="reward.missing", severity=Severity.ERROR, message="no reward", exchange=flow.id)
    gap = Gap(kind=GapKind.UNPARSED, at_ns=5, detail="an upgrade")
    scribe.writer.finding(finding)
    scribe.writer.gap(gap)
    scribe.writer.recount("x", Gap(kind=GapKind.ADDON_FAILED, at_ns=6, detail="x", count=1))
    capture = read(scribe)
    last = Gap(kind=GapKind.ADDON_FAILED, at_ns=7, detail="x", count=2)
    scribe.writer.recount("x", last)
    scribe.writer.commit()
    assert capture.gaps() == (gap, last)
    assert scribe.writer.gap_count == 2
    for chosen in (capture.findings(), capture.findings(exchange=flow.id), capture.findings(row=attributed(1).row)):
        assert list(chosen) == [finding]
    assert list(capture.findings(row=RowKey(task=9, rollout=0))) == []


def test_changes_are_told_once(scribe: Scribe) -> None:
    first = scribe.end(scribe.open())
    capture = read(scribe)
    old, cursor = capture.changes(None)
    everything, _ = capture.changes(None, from_start=True)
    assert (old, [exchange.id for exchange in everything]) == ([], [first.id])
    second = scribe.open()
    scribe.writer.attribute(first.id, attributed(1), None, 0)
    scribe.writer.commit()
    changed, cursor = capture.changes(cursor)
    assert sorted(exchange.id for exchange in changed) == [first.id, second.id]
    assert capture.changes(cursor)[0] == []


def test_two_writers_are_read_as_one(scribe: Scribe, new_scribe: Callable[[Path], Scribe]) -> None:
    other = new_scribe(scribe.writer.file.parent)
    assert (scribe.writer.prefix, other.writer.prefix) == ("a", "b")
    scribe.end(scribe.open(attribution=attributed(1), started_ns=10))
    other.end(other.open(server=MODEL, call=Call.MODEL, attribution=attributed(1), started_ns=5), response=b"far")
    other.writer.commit()
    capture = read(scribe)
    assert [exchange.id for exchange in capture.exchanges()] == ["b1", "a1"]
    assert [(row.root, row.exchanges) for row in capture.rows()] == [("a1", 2)]
    answer = capture.exchange("b1").response
    assert answer is not None
    assert answer.body is not None
    assert capture.body(answer.body) == b"far"


def test_a_writer_that_joins_later_is_seen(scribe: Scribe, new_scribe: Callable[[Path], Scribe]) -> None:
    capture = read(scribe)
    _, cursor = capture.changes(None)
    late = new_scribe(scribe.writer.file.parent)
    late.open()
    late.writer.commit()
    assert [exchange.id for exchange in capture.changes(cursor)[0]] == ["b1"]


def test_only_the_owner_can_read_it(scribe: Scribe) -> None:
    scribe.end(scribe.open())
    scribe.writer.commit()
    directory = scribe.writer.file.parent
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert files == {"a.sqlite": 0o600, "a.sqlite-wal": 0o600, "a.sqlite-shm": 0o600}


def test_a_closed_capture_is_one_file_and_says_when_it_ended(scribe: Scribe) -> None:
    flow = scribe.open(attribution=attributed(1))
    assert read(scribe).info().live
    scribe.writer.close()
    scribe.writer.close()
    directory = scribe.writer.file.parent
    info = Capture(directory).info()
    assert (info.live, info.ended_ns is not None, info.command) == (False, True, ("gym", "eval", "run"))
    assert (info.exchanges, info.open_exchanges, info.rows, info.failed_rows, info.gaps) == (1, 0, 1, 1, ())
    error = Capture(directory).exchange(flow.id).error
    assert error is not None
    assert error.kind is TransportErrorKind.TAP_STOPPED


def test_a_finished_capture_can_be_read_where_nothing_can_be_written(scribe: Scribe) -> None:
    flow = scribe.end(scribe.open())
    scribe.writer.close()
    directory = scribe.writer.file.parent
    assert [path.name for path in directory.iterdir()] == ["a.sqlite"]
    directory.chmod(0o500)
    try:
        assert Capture(directory).exchange(flow.id).id == flow.id
    finally:
        directory.chmod(0o700)


def test_long_bodies_are_read_in_pieces(scribe: Scribe) -> None:
    pieces = [bytes([number]) * 1000 for number in range(5)]
    whole = b"".join(pieces)
    spool = scribe.writer.spool("a1", "request")
    for piece in pieces:
        scribe.writer.spool_write(spool, piece)
        scribe.writer.commit()
    digest = scribe.writer.spool_end(spool, hashlib.sha256(whole).digest(), len(whole))
    again = scribe.writer.spool("a2", "request")
    scribe.writer.spool_write(again, whole)
    assert scribe.writer.spool_end(again, hashlib.sha256(whole).digest(), len(whole)) == digest
    capture = read(scribe)
    body = Body(digest=digest, size_bytes=len(whole))
    assert list(capture.body_chunks(body)) == pieces
    assert capture.body(Body(digest=None, size_bytes=3)) is None


def test_an_exchange_from_elsewhere_is_kept_redacted(scribe: Scribe) -> None:
    exchange = Exchange(
        id="case-1",
        server="model",
        kind=ServerKind.MODEL,
        call=Call.MODEL,
        state=State.DONE,
        started_ns=7,
        request=Request(
            method="POST",
            target="/v1/responses?api_key=abc",
            headers=(("Authorization", "Bearer abcdef"),),
            body=Body(digest=None, size_bytes=20),
        ),
        response=Response(status=200, reason="OK", headers=(), first_byte_ms=1.0, ended_ms=2.0),
        duration_ms=2.0,
        caller="agent",
        attribution=Attribution(
            confidence=Confidence.AMBIGUOUS,
            candidates=(RowKey(task=1, rollout=0), RowKey(task=2, rollout=0)),
        ),
    )
    scribe.writer.add(exchange, b'{"api_key": "abcdef"}', None)
    capture = read(scribe)
    found = capture.exchange("case-1")
    assert found.request.target == "/v1/responses?api_key=<redacted>"
    assert found.request.headers == (("Authorization", "Bearer <redacted>"),)
    assert found.request.body is not None
    assert capture.body(found.request.body) == b'{"api_key": "<redacted>"}'
    assert found.request.body.redacted == 1
    assert (found.response, found.attribution, found.caller) == (exchange.response, exchange.attribution, "agent")


def test_what_is_no_capture_says_so(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("x")
    for path in (tmp_path, tmp_path / "other.txt", tmp_path / "nowhere"):
        with pytest.raises(CaptureError, match="not a capture"):
            Capture(path)
    with pytest.raises(CaptureError, match="not empty"):
        CaptureWriter.create(tmp_path)


def test_another_database_is_no_capture(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection:
        connection.execute("CREATE TABLE x (y)")
    with pytest.raises(CaptureError, match="not a capture"):
        Capture(tmp_path)


def test_a_newer_format_is_refused(scribe: Scribe) -> None:
    scribe.writer.close()
    with closing(sqlite3.connect(scribe.writer.file)) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
        connection.commit()
    with pytest.raises(CaptureError, match="format 99 is newer") as refused:
        Capture(scribe.writer.file.parent)
    assert refused.value.hint == "read it with a newer gymtap"


def test_a_format_that_is_no_number_is_damage(scribe: Scribe) -> None:
    scribe.writer.close()
    with closing(sqlite3.connect(scribe.writer.file)) as connection:
        connection.execute("UPDATE meta SET value = 'abc' WHERE key = 'format'")
        connection.commit()
    with pytest.raises(CaptureError, match="damaged: its format is 'abc'"):
        Capture(scribe.writer.file.parent)


def test_damage_is_one_clear_line(scribe: Scribe) -> None:
    for _ in range(50):
        scribe.end(scribe.open())
    scribe.writer.close()
    content = scribe.writer.file.read_bytes()
    scribe.writer.file.write_bytes(content[:8192] + b"\xff" * (len(content) - 8192))
    with pytest.raises(CaptureError, match="damaged"):
        list(Capture(scribe.writer.file.parent).exchanges())
    scribe.writer.file.write_bytes(b"this is no database" * 100)
    with pytest.raises(CaptureError, match="damaged"):
        Capture(scribe.writer.file.parent)


def test_a_body_that_was_lost_says_so(scribe: Scribe) -> None:
    with pytest.raises(CaptureError, match="is not in"):
        read(scribe).body(Body(digest="00" * 32, size_bytes=1))


def test_the_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CaptureError, match="cannot keep a capture there"):
        CaptureWriter.create(tmp_path / "file" / "capture")


def test_the_record_is_json_that_others_can_read(scribe: Scribe) -> None:
    scribe.end(scribe.open())
    scribe.writer.close()
    with closing(sqlite3.connect(scribe.writer.file)) as connection:
        (record,) = connection.execute("SELECT record FROM exchanges").fetchone()
    assert json.loads(record)["request"]["target"] == "/run"
    assert AGENT.name == "agent"


def test_a_capture_of_somebody_else_is_not_called_none(tmp_path: Path) -> None:
    """A directory of mode 700 is another's capture as likely as not."""
    directory = tmp_path / "theirs"
    directory.mkdir(0o000)
    if os.access(directory, os.R_OK):
        pytest.skip("root may read everything")
    with pytest.raises(CaptureError, match="Permission denied"):
        Capture(directory)
