"""The commands on a capture made by hand, in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.cli.rows import State
from gymtap.schemas import CaptureInfo, Exchange, Finding, Gap, Row, RowState, Unwrapped

type Gymtap = Callable[..., Any]


def test_rows_are_listed_with_the_innermost_message(gymtap: Gymtap, capture: Path) -> None:
    said = gymtap("rows", str(capture))
    lines = said.out.splitlines()
    assert said.code == 0
    headings = ["row", "state", "time", "status", "reward", "calls", "failed", "findings", "agent", "error"]
    assert lines[0].split() == headings
    assert lines[1].split() == ["5.0", "✗", "failed", "2.0", "ms", "500", "6", "5", "1", "no", "such", "tool"]
    assert "the tap stopped while this was open" in lines[2]
    assert len(lines) == 6
    assert "5 rows: 2 failed, 3 done" in said.err
    assert f"next: gymtap tree 5.0 -c {capture}   (" in said.err


def test_hints_stay_in_the_capture_that_was_named(gymtap: Gymtap, capture: Path) -> None:
    """What is to be typed next opens the same capture, not the newest."""
    assert f"next: gymtap show a3 -c {capture}" in gymtap("tree", "5.0", "-c", str(capture)).err
    assert "next: gymtap show a3\n" in gymtap("tree", "5.0").err


def test_the_newest_capture_is_the_default_and_is_named_on_stderr(gymtap: Gymtap, capture: Path) -> None:
    assert "capture made-by-hand, the newest" in gymtap("rows").err
    assert "the newest" not in gymtap("rows", capture.name).err


@pytest.mark.parametrize(
    "line", [["rows"], ["tree", "5.0"], ["show", "a2"], ["tail", "--from-start"], ["show", "a2", "--raw"]]
)
def test_every_face_tells_of_gaps(gymtap: Gymtap, capture: Path, line: list[str]) -> None:
    said = gymtap(*line)
    assert "! 1 gap: not everything was captured" in said.err
    assert "queue full, 3 exchanges, 1.2 kB: the tape had no room" in said.err
    if line[0] != "tail" and "--raw" not in line:
        assert [Gap.model_validate(gap).count for gap in gymtap(*line, "--json").json()["gaps"]] == [3]


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ([], ["5.0", "6.0", "7.0~alpha", "7.0~beta", "8.0"]),
        (["--failed"], ["5.0", "6.0"]),
        (["--state", "done"], ["7.0~alpha", "7.0~beta", "8.0"]),
        (["--agent", "beta"], ["7.0~beta"]),
        (["--task", "8"], ["8.0"]),
        (["--run", "2"], []),
        (["--limit", "2"], ["5.0", "6.0"]),
        (["--sort", "calls", "--limit", "1"], ["5.0"]),
        (["--sort", "reward"], ["7.0~alpha", "7.0~beta", "8.0", "5.0", "6.0"]),
    ],
)
def test_rows_are_chosen_and_ordered(gymtap: Gymtap, capture: Path, options: list[str], labels: list[str]) -> None:
    assert [row["label"] for row in gymtap("rows", "--json", *options).json()["rows"]] == labels


def test_states_are_those_of_the_rows() -> None:
    assert [str(state) for state in State] == [str(state) for state in RowState]


def test_rows_left_out_by_a_limit_are_counted(gymtap: Gymtap, capture: Path) -> None:
    assert "3 more without --limit" in gymtap("rows", "--limit", "2").err


def test_rows_as_json_are_rows(gymtap: Gymtap, capture: Path) -> None:
    document = gymtap("rows", "--json").json()
    first = document["rows"][0]
    assert document["capture"] == str(capture)
    assert (first.pop("label"), first.pop("message"), first.pop("error_findings")) == ("5.0", "no such tool", 1)
    assert [first.pop(name) for name in ("marked", "comment", "hits")] == [False, "", []]
    assert isinstance(first.pop("layer"), str)
    assert isinstance(first.pop("cause"), str)
    assert Row.model_validate(first).root == "a1"


def test_a_tree_shows_calls_retries_doubts_and_what_was_answered(gymtap: Gymtap, capture: Path) -> None:
    said = gymtap("tree", "5.0")
    assert said.out.splitlines() == [
        "row 5.0 ✗ failed after 2.0 ms · 500 · 6 exchanges, 5 failed",
        "call                          status    time  sent  received  id",
        "✗ run → agent                    500  2.0 ms  12 B     100 B  a1",
        "└─ ✗ model                       500  2.0 ms  12 B     200 B  a2",
        "   │ ✗ tool-schema  no such tool",
        "   └─ ✗ provider ×3 (429 ×3)     429  2.0 ms  12 B     500 B  a5",  # noqa: RUF001 - the sign of a count
        "        slow down",
        "called by something that was not seen",
        "✓ tool /tool → resources         200  2.0 ms  12 B     600 B  a6",
        "  ? row found by body, confidence high",
    ]
    assert "next: gymtap show a3" in said.err


def test_attempts_can_have_a_line_each(gymtap: Gymtap, capture: Path) -> None:
    assert gymtap("tree", "5.0", "--attempts").out.count("✗ provider") == 3


def test_an_exchange_is_marked_in_its_row_s_tree(gymtap: Gymtap, capture: Path) -> None:
    assert "provider ×3 (429 ×3) ◀" in gymtap("tree", "a4").out  # noqa: RUF001 - the sign of a count
    assert gymtap("tree", "a4", "--json").json()["marked"] == "a4"


def test_an_exchange_of_no_row_has_a_tree_too(gymtap: Gymtap, capture: Path) -> None:
    said = gymtap("tree", "a11")
    assert said.code == 0
    assert "✓ health → resources ◀" in said.out
    assert "?" not in said.out


def test_a_tree_as_json_is_whole(gymtap: Gymtap, capture: Path) -> None:
    document = gymtap("tree", "5.0", "--json").json()
    retries = {"attempts": ["a3", "a4", "a5"], "calls": []}
    assert document["tree"] == [{"attempts": ["a1"], "calls": [{"attempts": ["a2"], "calls": [retries]}]}]
    assert document["orphans"] == [{"attempts": ["a6"], "calls": []}]
    assert document["messages"] == {"a5": "slow down"}
    assert document["deepest_failure"] == gymtap("why", "5.0", "--json").json()["exchange"] == "a3"
    assert Row.model_validate(document["row"]).key.label == document["label"] == "5.0"
    assert [Exchange.model_validate(one).id for one in document["exchanges"]] == ["a1", "a2", "a3", "a4", "a5", "a6"]


def test_an_exchange_is_shown_with_what_is_inside_its_nested_error(gymtap: Gymtap, capture: Path) -> None:
    said = gymtap("show", "a2")
    assert "a2 ✗ POST /model → model  500" in said.out
    assert "user │ Oslo?" in said.out
    assert 'innermost, inside 1 wrapper: SimpleAgent___agent\n{"detail": "no such tool"}' in said.out
    assert "✗ tool-schema at /detail  no such tool\n  → Offer it." in said.out


def test_one_side_can_be_shown(gymtap: Gymtap, capture: Path) -> None:
    assert "slow down" not in gymtap("show", "a5", "--request").out
    assert "\nrequest ·" not in gymtap("show", "a5", "--response").out
    assert "Content-Type: application/json" in gymtap("show", "a5", "--headers").out


def test_an_exchange_as_json_has_whole_bodies(gymtap: Gymtap, capture: Path) -> None:
    document = gymtap("show", "a2", "--json").json()
    assert Exchange.model_validate(document["exchange"]).id == "a2"
    assert document["request_body"] == {"text": '{"input": "Oslo?"}'}
    assert Unwrapped.model_validate(document["innermost"]).leaf.value == {"detail": "no such tool"}
    assert Finding.model_validate(document["findings"][0]).rule == "tool-schema"
    assert gymtap("show", "a6", "--json").json()["request_body"] == {"base64": "AP8bWzMxbQ=="}


def test_raw_writes_exactly_what_was_recorded(gymtap: Gymtap, capture: Path) -> None:
    assert gymtap("show", "a6", "--raw", "--request").out.encode(errors="surrogateescape") == b"\x00\xff\x1b[31m"
    assert gymtap("show", "a6", "--raw").out.encode(errors="surrogateescape") == b"\xfe\xff" * 300


def test_bytes_from_the_wire_never_steer_the_terminal(gymtap: Gymtap, capture: Path) -> None:
    assert "\x1b" not in gymtap("show", "a6", "--full").out


def test_what_has_no_response_says_so(gymtap: Gymtap, capture: Path) -> None:
    assert "tap stopped: the tap stopped while this was open" in gymtap("show", "a7").out
    assert "none: the exchange ended without one" in gymtap("show", "a7").out
    assert gymtap("show", "a7", "--json").json()["response_body"] is None
    assert "a7 has no response body" in gymtap("show", "a7", "--raw").err


def test_tail_tells_a_finished_capture_from_its_start_and_ends(gymtap: Gymtap, capture: Path) -> None:
    lines = gymtap("tail", "--from-start").out.splitlines()
    assert lines[0].split() == ["00:53:20", "5.0", "500", "2.0", "ms", "a1", "✗", "run", "→", "agent"]
    assert lines[1].strip() == "no such tool"
    told = gymtap("tail", "--from-start", "--failed", "--json").out.splitlines()
    assert [Exchange.model_validate_json(line).id for line in told] == ["a1", "a2", "a3", "a4", "a5", "a7"]
    assert "its tap has ended" in gymtap("tail").err


def test_captures_are_listed(gymtap: Gymtap, capture: Path) -> None:
    said = gymtap("captures")
    assert said.out.splitlines()[1].startswith("made-by-hand  2026-11-30 00:53:20")
    assert said.out.splitlines()[1].endswith("✓ ended 1 gap  gym eval run")
    assert [CaptureInfo.model_validate(one).rows for one in gymtap("captures", "--json").json()["captures"]] == [5]


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (["tree", "55.0"], 3, "gymtap: no row 55.0 in made-by-hand\n  there are: 5.0, 6.0"),
        (["tree", "7.0"], 3, "gymtap: 7.0 is 2 rows\n  say which: 7.0~alpha, 7.0~beta"),
        (["tree", "nope"], 2, "gymtap: 'nope' is not a row"),
        (["show", "a99"], 3, "gymtap: no exchange a99"),
        (["show", "5.0"], 2, "`gymtap tree 5.0` lists a row's"),
        (["show", "a2", "--raw", "--json"], 2, "gymtap: --raw writes one body"),
        (["rows", "no-such"], 3, "gymtap: no-such: no such capture\n  `gymtap captures` lists them"),
        (["rows", "--state", "nope"], 2, "gymtap: Invalid value for '--state'"),
        (["rows", "--limit", "0"], 2, "gymtap: Invalid value for '--limit'"),
        (["rows", "--nope"], 2, "gymtap: No such option: --nope"),
        (["tree"], 2, "gymtap: Missing argument 'ROW'"),
        (["nope"], 2, "gymtap: No such command 'nope'"),
    ],
)
def test_a_mistake_is_one_line_and_the_way_out(
    gymtap: Gymtap, capture: Path, line: list[str], code: int, told: str
) -> None:
    said = gymtap(*line)
    assert (said.code, said.out) == (code, "")
    assert told in said.err
    assert "Traceback" not in said.err


def test_without_captures_every_command_says_how_to_begin_one(gymtap: Gymtap, home: Path) -> None:
    for line in (["rows"], ["tree", "1.0"], ["show", "a1"], ["tail"]):
        said = gymtap(*line)
        assert said.code == 3
        assert "or see one with `gymtap demo`" in said.err
    assert gymtap("captures").code == 0
    assert "or see one with `gymtap demo`" in gymtap("captures").err
    assert gymtap("captures", "--json").json() == {"captures": []}


def test_a_directory_that_is_no_capture_is_said_to_be_none(gymtap: Gymtap, tmp_path: Path) -> None:
    said = gymtap("rows", str(tmp_path))
    assert said.code == 3
    assert "not a capture" in said.err
