"""Rows of a capture are diagnosed from what it holds, and grouped by cause."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gymtap.proxy.diagnose.capture import diagnose_beside, diagnose_row, sibling
from gymtap.proxy.diagnose.causes import causes
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import Call, Layer, RowKey, RowState

NOW_NS = 2_000_000_000_000_000_000


@pytest.fixture(scope="module")
def demo(demo_capture: Path) -> Iterator[Capture]:
    capture = Capture(demo_capture)
    yield capture
    capture.close()


def test_every_failed_row_of_a_real_tap_gets_a_layer_a_hop_and_a_body(demo: Capture) -> None:
    failed = list(demo.rows(failed=True))
    assert failed
    for row in failed:
        diagnosis = diagnose_row(demo, row, now_ns=NOW_NS)
        assert diagnosis.layer not in {Layer.NONE, Layer.UNKNOWN}
        assert diagnosis.row == row.key.label
        assert diagnosis.chain[0].call == "run"
        assert diagnosis.chain[-1].exchange == diagnosis.exchange
        assert diagnosis.innermost is not None


def test_a_row_that_ended_well_with_reward_one_has_no_error(demo: Capture) -> None:
    for row in demo.rows(failed=False):
        if row.reward == 1.0:
            assert diagnose_row(demo, row, now_ns=NOW_NS).layer is Layer.NONE


def test_causes_count_every_failed_row_once(demo: Capture) -> None:
    found = causes(demo, now_ns=NOW_NS)
    labels = sorted(label for cause in found for label in cause.rows)
    assert len(labels) == len(set(labels))
    assert set(labels) >= {row.key.label for row in demo.rows(failed=True)}
    assert all(cause.first_ns <= cause.last_ns for cause in found)


def test_a_row_that_ended_well_over_a_failed_exchange_is_counted_unless_it_recovered(demo: Capture) -> None:
    labels = {label for cause in causes(demo, now_ns=NOW_NS) for label in cause.rows}
    ended_well = [row for row in demo.rows(failed=False) if row.failed_exchanges]
    assert ended_well
    for row in ended_well:
        counts = diagnose_row(demo, row, now_ns=NOW_NS).rule is not None
        assert (row.key.label in labels) is counts


def test_looking_into_every_row_finds_all_that_was_silently_lost(demo: Capture) -> None:
    silent = {cause.example.rule for cause in causes(demo, now_ns=NOW_NS, every_row=True)}
    assert silent >= {cause.example.rule for cause in causes(demo, now_ns=NOW_NS)}


@pytest.fixture
def made(tmp_path: Path, exchange, attributed) -> Iterator[Capture]:  # type: ignore[no-untyped-def]  # conftest's factories
    """Three rollouts of one task: two fail for one reason with other ids in it, one passes; and one row hangs."""
    writer = CaptureWriter.create(tmp_path / "capture")
    number = 0

    def add(row: RowKey, call: Call, parent: int | None, *, status: int | None, sent: bytes, got: bytes | None) -> int:
        nonlocal number
        number += 1
        writer.add(exchange(number, call, parent, status, attribution=attributed(row=row)), sent, got)
        return number

    for rollout in range(3):
        key = RowKey(task=4, rollout=rollout, agent="a")
        passed = rollout == 2
        answer = b'{"reward": 1.0}' if passed else b'"%s"' % b"ValueError('boom')"
        ended = 200 if passed else 500
        root = add(key, Call.RUN, None, status=ended, sent=b'{"_ng_task_index": 4}', got=answer)
        request = b'{"response": {"output": []}, "expected": %d}' % (4 if passed else 5)
        body = b'{"reward": 1.0}' if passed else b"\"ValueError('bad row %d at /tmp/x%d')\"" % (rollout, rollout)
        said = b'{"output": [{"type": "message", "content": "4"}]}'
        add(key, Call.MODEL, root, status=200, sent=b'{"input": "q"}', got=said)
        add(key, Call.VERIFY, root, status=ended, sent=request, got=body)
    add(RowKey(task=5, rollout=0, agent="a"), Call.RUN, None, status=None, sent=b"{}", got=None)
    writer.close()
    capture = Capture(tmp_path / "capture")
    yield capture
    capture.close()


def test_rows_that_failed_for_one_cause_are_one_group_whatever_ids_it_names(made: Capture) -> None:
    cause = causes(made, now_ns=NOW_NS)[0]
    assert sorted(cause.rows) == ["4.0", "4.1"]
    assert cause.example.layer is Layer.VERIFIER_RUNTIME


def test_a_failed_row_is_compared_with_the_rollout_that_passed(made: Capture) -> None:
    failed = next(made.rows(failed=True, limit=1))
    other = sibling(made, failed)
    assert other is not None
    assert (other.key.label, other.state) == ("4.2", RowState.DONE)
    diagnosis, beside = diagnose_beside(made, failed, now_ns=NOW_NS)
    assert diagnosis == diagnose_row(made, failed, now_ns=NOW_NS)
    assert beside is not None
    assert beside.startswith("row 4.2 passed: ")
    assert "/expected" in beside
    assert diagnose_beside(made, other, now_ns=NOW_NS)[1] is None


def test_a_row_that_was_open_when_the_tap_ended_is_unknown_not_blamed_on_the_tap(made: Capture) -> None:
    diagnosis = diagnose_row(made, made.row(RowKey(task=5, rollout=0)), now_ns=NOW_NS)
    assert diagnosis.symptom == "/run has no answer yet"
    assert diagnosis.layer is Layer.UNKNOWN
    assert "no answer" in diagnosis.cause


def test_a_row_that_ended_well_without_a_failed_exchange_is_left_out_unless_every_row_is_wanted(made: Capture) -> None:
    passed = made.row(RowKey(task=4, rollout=2))
    assert passed.failed_exchanges == 0
    for every_row in (False, True):
        found = causes(made, now_ns=NOW_NS, every_row=every_row)
        assert passed.key.label not in {label for cause in found for label in cause.rows}
