"""`gymtap inflight` on captures that are written, and on ones that ended."""

from pathlib import Path
from typing import Any

from gymtap.proxy.store import CaptureWriter


def test_what_is_open_is_drawn_with_its_row(gymtap: Any, live_writer: CaptureWriter, tmp_path: Path) -> None:
    """It began long ago, so it is a wedge, and the exit status says that there is an alarm."""
    said = gymtap("inflight", str(tmp_path / "live"))
    first, second = said.out.splitlines()[:2]
    assert first.startswith("! wedge: nothing was answered for")
    assert "a7" in second
    assert "6.0" in second
    assert said.code == 1
    assert "1 call open, 1 row waiting" in said.err


def test_a_longer_patience_is_no_wedge(gymtap: Any, live_writer: CaptureWriter, tmp_path: Path) -> None:
    said = gymtap("inflight", str(tmp_path / "live"), "--quiet", "1e12")
    assert (said.code, "wedge" in said.out) == (0, False)


def test_a_capture_that_ended_has_no_alarm(gymtap: Any, capture: Path) -> None:
    """What its tap left open is shown as that."""
    said = gymtap("inflight", str(capture))
    assert said.code == 0
    assert "its tap has ended" in said.err


def test_the_json_names_what_is_open(gymtap: Any, live_writer: CaptureWriter, tmp_path: Path) -> None:
    found = gymtap("inflight", str(tmp_path / "live"), "--json").json()
    assert [(one["exchange"], one["row"], one["call"]) for one in found["open"]] == [("a7", "6.0", "run")]
    assert found["rows_waiting"] == ["6.0"]
    assert [alarm["kind"] for alarm in found["alarms"]] == ["wedge"]
