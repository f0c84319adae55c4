"""A disk that refuses: traffic goes on, what could be kept is kept, what is lost is counted."""

import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.conftest import Scribe, attributed

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import Body, GapKind


def fill(scribe: Scribe) -> None:
    """Make the disk full, for this writer: SQLite refuses to grow its file (SQLITE_FULL)."""
    pages = scribe.writer._connection.execute("PRAGMA page_count").fetchone()[0]
    scribe.writer._connection.execute(f"PRAGMA max_page_count = {pages}")


def make_room(scribe: Scribe) -> None:
    scribe.writer._connection.execute("PRAGMA max_page_count = 1000000")


def big(number: int) -> bytes:
    """A body that does not compress."""
    return random.Random(number).randbytes(40_000)


def test_what_waited_is_written_once_there_is_room(scribe: Scribe) -> None:
    fill(scribe)
    for number in range(5):
        scribe.end(scribe.open(request=big(number), attribution=attributed(number)))
        scribe.writer.commit()
    make_room(scribe)
    assert scribe.writer.commit()
    capture = Capture(scribe.writer.file.parent)
    assert [exchange.id for exchange in capture.exchanges()] == ["a1", "a2", "a3", "a4", "a5"]
    assert (capture.gaps(), scribe.writer.gap_count) == ((), 0)


def test_what_does_not_fit_in_memory_is_lost_and_counted(tmp_path: Path) -> None:
    told: list[str] = []
    writer = CaptureWriter.create(tmp_path / "c", on_failure=told.append, pending_limit_bytes=2000)
    scribe = Scribe(writer)
    still_open = scribe.open(request=b"first " + big(0))
    fill(scribe)
    for number in range(1, 6):
        scribe.end(scribe.open(request=big(number)))
        assert not writer.commit()
    assert writer.gap_count == 1
    assert len(told) == 1
    assert "full" in told[0]
    make_room(scribe)
    again = scribe.end(scribe.open(request=big(1)))
    scribe.end(still_open)
    assert writer.commit()
    capture = Capture(tmp_path / "c")
    (gap,) = capture.gaps()
    assert (gap.kind, gap.count) == (GapKind.WRITE_FAILED, 5)
    assert {exchange.id for exchange in capture.exchanges()} == {still_open.id, again.id}
    body = capture.exchange(again.id).request.body
    assert body is not None
    assert capture.body(body) == big(1)
    writer.close()


def test_a_long_body_that_lost_a_part_is_not_said_to_be_whole(tmp_path: Path) -> None:
    writer = CaptureWriter.create(tmp_path / "c", pending_limit_bytes=10)
    scribe = Scribe(writer)
    spool = writer.spool("a1", "request")
    fill(scribe)
    for number in range(20):
        writer.spool_write(spool, big(number))
        writer.commit()
    make_room(scribe)
    writer.spool_write(spool, big(21))
    assert writer.spool_end(spool, b"d" * 32, 1) is None
    writer.commit()
    assert Capture(tmp_path / "c").gaps()[0].kind is GapKind.WRITE_FAILED
    assert writer._connection.execute("SELECT count(*) FROM segments").fetchone() == (0,)
    writer.close()


def test_closing_on_a_full_disk_still_counts(tmp_path: Path) -> None:
    writer = CaptureWriter.create(tmp_path / "c")
    scribe = Scribe(writer)
    fill(scribe)
    for number in range(5):
        scribe.end(scribe.open(request=big(number)))
    writer.close()
    assert writer.gap_count == 1
    capture = Capture(tmp_path / "c")
    assert capture.gaps()[0].count == 5
    assert capture.info().ended_ns is not None
    with pytest.raises(CaptureError):
        capture.body(Body(digest="11" * 32, size_bytes=1))


@pytest.fixture
def tiny_files() -> Iterator[None]:
    """No file of this process may grow over 512 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("tiny_files")
def test_where_no_capture_can_be_begun_none_is_left(tmp_path: Path) -> None:
    """It would be the newest, and empty."""
    with pytest.raises(CaptureError, match="cannot keep a capture there"):
        CaptureWriter.create(tmp_path / "full")
    assert list(tmp_path.iterdir()) == []
