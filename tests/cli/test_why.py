"""`gymtap why` and `gymtap causes` say it in the fixed form, for people and as JSON."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import Attribution, Call, Exchange


@pytest.fixture
def demo(demo_capture: Path) -> str:
    return str(demo_capture)


def test_why_without_a_row_takes_the_first_that_failed(gymtap: Any, demo: str) -> None:
    said = gymtap("why", "-c", demo)
    assert said.code == 0
    for name in ("row", "symptom", "layer", "evidence", "cause", "next", "chain", "innermost"):
        assert any(line.startswith(name) for line in said.out.splitlines()), name


def test_why_draws_the_chain_from_run_to_the_leaf_with_status_time_and_size(gymtap: Any, demo: str) -> None:
    rows = gymtap("rows", demo, "--failed", "--json").json()["rows"]
    found = gymtap("why", rows[0]["label"], "-c", demo, "--json").json()
    assert [hop["call"] for hop in found["chain"]][:2] == ["run", "run"]
    out = gymtap("why", rows[0]["label"], "-c", demo).out
    assert all(hop["exchange"] in out for hop in found["chain"])


def test_an_exchange_names_its_row(gymtap: Any, demo: str) -> None:
    rows = gymtap("rows", demo, "--failed", "--json").json()["rows"]
    by_row = gymtap("why", rows[0]["label"], "-c", demo, "--json").json()
    by_exchange = gymtap("why", rows[0]["root"], "-c", demo, "--json").json()
    assert by_exchange == by_row


def test_why_works_from_a_log_alone(gymtap: Any, tmp_path: Path) -> None:
    log = tmp_path / "servers.log"
    log.write_text("OSError: [Errno 28] No space left on device\n")
    found = gymtap("why", "--log", str(log), "--json").json()
    assert (found["layer"], found["rule"]) == ("infra", "infra.disk")


def test_why_says_what_is_wrong_with_a_path_in_one_line(gymtap: Any, tmp_path: Path) -> None:
    said = gymtap("why", "--log", str(tmp_path / "nowhere"))
    assert said.code == 2
    assert "no such file" in said.err
    assert "Traceback" not in said.err


def test_causes_count_rows_and_name_one_of_each(gymtap: Any, demo: str) -> None:
    found = gymtap("causes", demo, "--json").json()["causes"]
    failed = gymtap("rows", demo, "--failed", "--json").json()["rows"]
    named = {label for cause in found for label in cause["rows"]}
    assert named >= {row["label"] for row in failed}
    assert sum(cause["count"] for cause in found) == len(named)
    assert gymtap("causes", demo).out.count("fingerprint") == 0
    assert all(cause["fingerprint"] in gymtap("causes", demo).out for cause in found[:1])


def test_causes_after_the_last_one_are_none(gymtap: Any, demo: str) -> None:
    said = gymtap("causes", demo, "--since", "2999-01-01T00:00:00")
    assert (said.code, said.out) == (0, "")


@pytest.fixture
def writer(home: Path) -> Iterator[CaptureWriter]:
    """An empty capture, the newest of `home`."""
    writer = CaptureWriter.create(home / "made")
    yield writer
    writer.close()


def test_why_of_a_capture_that_saw_nothing_says_that_it_knows_nothing(gymtap: Any, writer: CaptureWriter) -> None:
    """A run that died before its first row is not a healthy one."""
    writer.commit()
    said = gymtap("why", "--json")
    assert (said.code, said.json()["layer"]) == (0, "unknown")
    assert "no row was sent; 0 exchanges" in said.json()["symptom"]
    assert "--log" in said.json()["next_action"]


def test_why_of_exchanges_without_a_row_is_of_the_one_that_failed(
    gymtap: Any, writer: CaptureWriter, exchange: Callable[..., Exchange]
) -> None:
    failed = exchange(1, Call.PROVIDER, status=401, attribution=Attribution())
    writer.add(failed, b"{}", b'{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}')
    writer.commit()
    found = gymtap("why", "--json").json()
    assert (found["layer"], found["exchange"]) == ("config", "a1")


@pytest.mark.parametrize(("status", "layer", "then"), [(200, "none", "gymtap rows"), (None, "unknown", "inflight")])
def test_why_of_a_run_in_which_no_row_failed_says_so(
    gymtap: Any, writer: CaptureWriter, exchange: Callable[..., Exchange], *, status: int | None, layer: str, then: str
) -> None:
    """Healthy where the row has ended; unknown while it has not."""
    answer = b'{"output": [{"type": "message", "role": "assistant", "content": "12 degrees"}]}'
    begun = exchange(1, Call.RUN, status=status).model_copy(update={"started_ns": time.time_ns()})
    writer.add(begun, b"{}", b'{"reward": 1.0}' if status else None)
    writer.add(exchange(2, Call.MODEL, 1), b'{"input": "Oslo?"}', answer)
    writer.commit()
    found = gymtap("why", "--json").json()
    assert (found["layer"], found["rule"]) == (layer, None)
    assert "of 1 row none failed" in found["symptom"]
    assert then in found["next_action"]
