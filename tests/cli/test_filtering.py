"""The filter language on the command line: the same as in the terminal UI."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from gymtap.proxy.store.notes import Note, Notes

type Gymtap = Any
"""See conftest.py."""


def _labels(said: Any) -> list[str]:
    return [row["label"] for row in said.json()["rows"]]


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [
        ("is:failed", ["5.0", "6.0"]),
        ("-is:failed reward>=1", ["8.0"]),
        ("boundary:provider", ["5.0"]),
        ("agent:beta", ["7.0"]),
        ("~TOOL", ["5.0"]),
        ("layer:none", []),
        ("task:7,8 -agent:alpha", ["7.0", "8.0"]),
    ],
)
def test_rows_are_filtered(gymtap: Gymtap, capture: Path, wanted: str, labels: list[str]) -> None:
    assert _labels(gymtap("rows", "--json", "--filter", wanted)) == labels


@pytest.mark.parametrize("command", [["rows"], ["causes"], ["tail", "--from-start"], ["export"]])
def test_a_filter_that_is_none_is_pointed_at(gymtap: Gymtap, capture: Path, command: list[str]) -> None:
    said = gymtap(*command, "--filter", "is:failed dur>soon")
    assert said.code == 2
    assert "'soon' is no duration" in said.err
    assert "  is:failed dur>soon\n                ^" in said.err


def test_causes_of_some_rows_only(gymtap: Gymtap, capture: Path) -> None:
    rows = [cause["rows"] for cause in gymtap("causes", "--json").json()["causes"]]
    assert ["5.0"] in rows
    assert gymtap("causes", "--json", "--filter", "task:8").json()["causes"] == []
    assert [one["rows"] for one in gymtap("causes", "--json", "--filter", "task:5").json()["causes"]] == [["5.0"]]


def test_rows_and_exchanges_of_some_rows_are_exported(gymtap: Gymtap, capture: Path) -> None:
    rows = [orjson.loads(line) for line in gymtap("export", "-f", "rows-jsonl", "--filter", "task:7").out.splitlines()]
    assert [row["row"]["key"]["agent"] for row in rows] == ["alpha", "beta"]
    (head, *lines) = gymtap("export", "--filter", "layer:none task:5").out.splitlines()
    assert (orjson.loads(head)["schema"], lines) == ("gymtap.capture/1", [])
    (_, *lines) = gymtap("export", "--filter", "task:7,8").out.splitlines()
    assert [orjson.loads(line)["exchange"]["id"] for line in lines] == ["a8", "a9", "a10"]


def test_a_tail_of_some_rows(gymtap: Gymtap, capture: Path) -> None:
    said = gymtap("tail", "--json", "--from-start", "--filter", "task:7 is:done")
    assert [orjson.loads(line)["id"] for line in said.out.splitlines()] == ["a8", "a9"]


def test_bodies_are_searched(gymtap: Gymtap, capture: Path) -> None:
    """In any case of letters; each row says in which exchanges it was found."""
    (row,) = gymtap("rows", "--json", "--search", "SLOW down").json()["rows"]
    assert (row["label"], row["hits"]) == ("5.0", ["a3", "a4", "a5"])
    assert "⌕ a3, a4, a5" in gymtap("rows", "--search", "slow down").out


def test_rows_are_sorted_as_in_the_ui(gymtap: Gymtap, capture: Path) -> None:
    assert _labels(gymtap("rows", "--json", "--sort", "failed"))[0] == "5.0"
    assert _labels(gymtap("rows", "--json", "--sort", "status", "--reverse"))[-1] == "5.0"
    assert _labels(gymtap("rows", "--json", "--sort", "layer"))[0] == "5.0"


def test_marks_and_comments_are_shown(gymtap: Gymtap, capture: Path) -> None:
    notes = Notes(capture)
    notes.put("8.0", Note(marked=True, comment="ask Ada"))
    notes.save()
    (row,) = gymtap("rows", "--json", "--filter", "is:marked ~ada").json()["rows"]
    assert (row["label"], row["marked"], row["comment"]) == ("8.0", True, "ask Ada")
    assert "* “ask Ada”" in gymtap("rows").out
    exported = orjson.loads(gymtap("export", "-f", "rows-jsonl", "--row", "8.0").out)
    assert (exported["marked"], exported["comment"]) == (True, "ask Ada")
