"""Captures between processes: read while written, and left behind by one that was killed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymtap.proxy.store import Capture
from gymtap.schemas import GapKind, State, TransportErrorKind

type Writing = subprocess.Popen[str]


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    script = Path(__file__).with_name("writing.py")
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "capture")], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def committed(process: Writing) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_capture_is_read_while_another_process_writes_it(writing: Writing, tmp_path: Path) -> None:
    committed(writing)
    capture = Capture(tmp_path / "capture")
    changed, cursor = capture.changes(None, from_start=True)
    told = {exchange.id for exchange in changed}
    for _ in range(5):
        at_least = committed(writing)
        exchanges = list(capture.exchanges())
        assert len(exchanges) >= at_least
        last = exchanges[-1].request.body
        assert last is None or capture.body(last).startswith(b'{"turn": ')
        changed, cursor = capture.changes(cursor)
        told |= {exchange.id for exchange in changed}
        assert told >= {exchange.id for exchange in exchanges}
    info = capture.info()
    assert (info.live, info.ended_ns, info.gaps) == (True, None, ())
    assert info.open_exchanges >= at_least // 3


def test_a_killed_writer_leaves_a_capture_that_opens_and_says_so(writing: Writing, tmp_path: Path) -> None:
    for _ in range(20):
        at_least = committed(writing)
    writing.kill()
    writing.wait()
    capture = Capture(tmp_path / "capture")
    info = capture.info()
    assert (info.live, info.ended_ns, info.open_exchanges) == (False, None, 0)
    exchanges = {exchange.id: exchange for exchange in capture.exchanges()}
    assert all(f"a{number}" in exchanges for number in range(1, at_least + 1))
    left_open = [exchange for exchange in exchanges.values() if exchange.error is not None]
    assert len(left_open) >= at_least // 3
    assert {exchange.state for exchange in left_open} == {State.FAILED}
    assert {exchange.error.kind for exchange in left_open if exchange.error} == {TransportErrorKind.TAP_STOPPED}
    assert list(capture.exchanges(state=State.OPEN)) == []
    assert len(list(capture.exchanges(failed=True))) == len(left_open)
    (gap,) = info.gaps
    assert (gap.kind, gap.count) == (GapKind.TAP_DIED, len(left_open))
    for exchange in exchanges.values():
        body = exchange.request.body
        assert body is None or len(capture.body(body)) == body.size_bytes


def test_a_second_tap_may_go_on_in_a_dead_ones_capture(writing: Writing, tmp_path: Path) -> None:
    committed(writing)
    writing.kill()
    writing.wait()
    script = Path(__file__).with_name("writing.py")
    command = [sys.executable, str(script), str(tmp_path / "capture")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
        committed(second)
        info = Capture(tmp_path / "capture").info()
        second.kill()
    assert info.live
    assert [gap.kind for gap in info.gaps] == [GapKind.TAP_DIED]
    assert {path.name for path in (tmp_path / "capture").glob("*.sqlite")} == {"a.sqlite", "b.sqlite"}
