"""The demo's capture: everything is there, every exchange with its row, and each failure as it was meant."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gymtap.proxy.store import Capture
from gymtap.schemas import ROWLESS_CALLS, Call, CaptureInfo, Confidence, Method, RowKey, RowState


@pytest.fixture(scope="session")
def capture(demo_capture: Path) -> Capture:
    return Capture(demo_capture)


def test_every_row_is_there_and_nothing_is_missing(capture: Capture) -> None:
    info = capture.info()
    assert (info.rows, info.failed_rows, info.open_exchanges) == (20, 8, 0)
    assert info.gaps == ()
    assert info.ended_ns is not None
    assert info.command == ("gymtap", "demo")
    failed = [row.key.label for row in capture.rows(state=RowState.FAILED)]
    assert sorted(failed, key=float) == ["2.0", "5.0", "9.0", "11.0", "14.0", "15.0", "17.0", "18.0"]


def test_every_exchange_is_certain_of_its_row(capture: Capture) -> None:
    for exchange in capture.exchanges():
        if exchange.call in ROWLESS_CALLS:
            assert exchange.attribution.row is None
        else:
            assert (exchange.attribution.confidence, exchange.id) == (Confidence.CERTAIN, exchange.id)


def test_every_call_is_beneath_its_run(capture: Capture) -> None:
    exchanges = {exchange.id: exchange for exchange in capture.exchanges()}
    for exchange in exchanges.values():
        top = exchange
        while top.parent is not None:
            top = exchanges[top.parent]
        assert top.call is Call.RUN or top.call in ROWLESS_CALLS
        assert top.attribution.row == exchange.attribution.row


def test_the_provider_s_calls_are_known_by_causality(capture: Capture) -> None:
    methods = {exchange.attribution.method for exchange in capture.exchanges(call=Call.PROVIDER)}
    assert methods == {Method.CAUSALITY}


def test_a_healthy_row_makes_the_calls_that_gym_makes(capture: Capture) -> None:
    calls = Counter(exchange.call for exchange in capture.exchanges(row=RowKey(task=0, rollout=0)))
    once = dict.fromkeys((Call.SEED_SESSION, Call.RESPONSES, Call.TOOL, Call.VERIFY), 1)
    assert calls == {Call.RUN: 2, Call.MODEL: 2, Call.PROVIDER: 2, **once}


@pytest.mark.parametrize(("task", "statuses"), [(3, [429, 429, 200] * 2), (9, [500] * 3), (13, [400]), (18, [200])])
def test_the_provider_s_statuses_are_what_it_answered(capture: Capture, task: int, statuses: list[int]) -> None:
    calls = list(capture.exchanges(row=RowKey(task=task, rollout=0), call=Call.PROVIDER))
    assert [call.response.status for call in calls if call.response] == statuses
    assert [call.attempt for call in calls] == [number % 3 for number in range(len(statuses))]


def test_a_body_that_was_cut_off_is_a_failed_exchange_with_what_came(capture: Capture) -> None:
    (cut,) = capture.exchanges(row=RowKey(task=18, rollout=0), call=Call.PROVIDER)
    assert cut.failed
    assert cut.error is not None
    assert cut.response is not None
    assert cut.response.body is not None
    assert capture.body(cut.response.body).startswith(b'{"id":"chatcmpl-cut"')


def test_the_causality_header_does_not_reach_the_provider_and_no_key_reaches_the_disk(
    capture: Capture, demo_capture: Path
) -> None:
    (first, *_) = capture.exchanges(call=Call.PROVIDER)
    assert dict(first.request.headers)["Authorization"] != "Bearer sk-demo-not-a-real-key-0123456789"
    for file in demo_capture.iterdir():
        assert b"sk-demo-not-a-real-key" not in file.read_bytes()


def test_the_command_plays_shows_and_says_what_to_type_next(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "gymtap", "demo"],
        env=os.environ | {"GYMTAP_HOME": str(tmp_path)}, capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    assert [line for line in said.stdout.splitlines() if line.startswith("$ gymtap ")][:2] == [
        "$ gymtap rows",
        "$ gymtap tree 2.0",
    ]
    assert "Invalid JSON schema for tool 'get_weather'" in said.stdout
    assert "gymtap run -- gym eval run" in said.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_the_command_tells_a_script_where_the_capture_is(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "gymtap", "demo", "--json", "--capture", str(tmp_path / "here")],
        capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    document = json.loads(said.stdout)
    assert document["capture"] == str(tmp_path / "here")
    assert CaptureInfo.model_validate(document["info"]).rows == 20
