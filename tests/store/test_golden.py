"""Captures of every format that was ever released still open and say the same."""

import shutil
from pathlib import Path

import pytest

from gymtap.proxy.store import Capture
from gymtap.schemas import Call, GapKind, RowState, State

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(params=sorted(DATA.glob("capture-format-*")), ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, since SQLite may put files beside what it reads."""
    return Path(shutil.copytree(request.param, tmp_path / "capture"))


def test_there_is_one_for_the_first_format() -> None:
    assert (DATA / "capture-format-1" / "a.sqlite").stat().st_size < 50_000


def test_a_golden_capture_says_what_it_always_said(golden: Path) -> None:
    capture = Capture(golden)
    info = capture.info()
    assert (info.command, info.exchanges, info.rows, info.failed_rows) == (("gym", "eval", "run"), 4, 2, 1)
    assert (info.live, info.created_ns) == (False, 1_790_000_000_000_000_000)
    assert [(row.key.label, row.state, row.reward, row.exchanges) for row in capture.rows()] == [
        ("3.0", RowState.DONE, 0.5, 3),
        ("4.0", RowState.FAILED, None, 1),
    ]
    assert [(one.id, one.call, one.state, one.parent) for one in capture.exchanges()] == [
        ("a1", Call.RUN, State.DONE, None),
        ("a2", Call.MODEL, State.DONE, "a1"),
        ("a3", Call.MODEL, State.FAILED, "a1"),
        ("a4", Call.RUN, State.DONE, None),
    ]
    assert [server.name for server in capture.servers()] == ["agent", "model"]
    assert [finding.rule for finding in capture.findings(exchange="a2")] == ["golden.rule"]
    assert [gap.kind for gap in capture.gaps()] == [GapKind.UNPARSED]


def test_its_bodies_come_back_through_their_predecessors(golden: Path) -> None:
    capture = Capture(golden)
    bodies = [capture.exchange(name).request.body for name in ("a2", "a3")]
    first, second = (capture.body(body) for body in bodies if body is not None)
    assert first.endswith(b'"], "api_key": "<redacted>"}')
    assert second.endswith(b'", "two"]}')
    assert first.startswith(b'{"input": ["once upon a time ')
    assert first[:1700] == second[:1700]
