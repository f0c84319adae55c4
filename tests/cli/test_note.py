from pathlib import Path
from typing import Any

import pytest

type Gymtap = Any
"""See conftest.py."""


def test_what_is_noted_is_kept_beside_the_capture_and_shown(gymtap: Gymtap, capture: Path) -> None:
    gymtap("note", "5.0", "--mark", "--comment", " ask Ada ")
    gymtap("note", "a2", "--comment", "look here")
    assert gymtap("note", "--json").json() == {
        "capture": str(capture),
        "rows": {"5.0": {"marked": True, "comment": "ask Ada"}},
        "exchanges": {"a2": {"marked": False, "comment": "look here"}},
    }
    assert gymtap("note").out.splitlines() == ["* 5.0  ask Ada", "  a2  look here"]
    assert (capture / "notes.json").exists()


def test_a_note_is_taken_back(gymtap: Gymtap, capture: Path) -> None:
    """What is not named stays as it is."""
    gymtap("note", "5.0", "--mark", "--comment", "ask Ada")
    assert gymtap("note", "5.0", "--unmark").out == "  5.0  ask Ada\n"
    assert "nothing is noted" in gymtap("note", "5.0", "--comment", "").err


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (["9.9", "--mark"], 3, "no row 9.9"),
        (["a99", "--mark"], 3, "no exchange a99"),
        (["7.0", "--mark"], 3, "say which: 7.0~alpha, 7.0~beta"),
        (["--mark"], 2, "nothing is named"),
    ],
)
def test_only_what_is_there_is_noted(gymtap: Gymtap, capture: Path, line: list[str], code: int, told: str) -> None:
    said = gymtap("note", *line)
    assert (said.code, told in said.err) == (code, True)
    assert not (capture / "notes.json").exists()


def test_a_sidecar_that_cannot_be_read_is_left_alone(gymtap: Gymtap, capture: Path) -> None:
    (capture / "notes.json").write_text("not json")
    said = gymtap("note", "5.0", "--mark")
    assert (said.code, "cannot be read" in said.err) == (2, True)
    assert (capture / "notes.json").read_text() == "not json"
