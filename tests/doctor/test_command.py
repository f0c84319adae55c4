"""`gymtap doctor` as it is typed: what it prints, its JSON, its exit status; on a capture and on files alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.doctor.conftest import OLD_S

type Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gymtap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: Call) -> Call:
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path / "captures"))
    return command_line


def test_a_capture_with_failures(gymtap: Call, demo_capture: Path) -> None:
    """Each step names the rows that have a problem there; the report ends in the fixed form."""
    code, out, _ = gymtap("doctor", demo_capture)
    assert code == 1
    lines = out.splitlines()
    assert [line[2] for line in lines if line[:1] in "✓✗-" and line[2:3].isdigit()] == list("12345678")
    assert [name for name in ("symptom", "layer", "evidence", "cause", "next") if f"\n{name} " not in out] == []
    marks = {line[2]: line[0] for line in lines if line[2:3].isdigit()}
    assert {number for number, mark in marks.items() if mark == "✗"} == set("2478")


def test_the_json_is_the_report(gymtap: Call, demo_capture: Path) -> None:
    code, out, _ = gymtap("doctor", demo_capture, "--json")
    document = json.loads(out)
    assert (code, document["healthy"]) == (1, False)
    assert [step["number"] for step in document["steps"]] == list(range(1, 9))
    assert {step["outcome"] for step in document["steps"]} <= {"ok", "problem", "not checked"}
    assert document["diagnosis"]["next_action"]
    seven = document["steps"][6]
    assert any("KeyError('tepid')" in note["cause"] for note in seven["notes"])


def test_a_healthy_run_without_any_capture(gymtap: Call, run: Any) -> None:
    code, out, _ = gymtap("doctor", "--output", run.output, "--source", run.source)
    assert code == 0
    assert "✓ 5 materialized inputs" in out


def test_what_is_not_there_is_one_line_and_2(gymtap: Call, tmp_path: Path) -> None:
    """It could not look."""
    for option in ("--output", "--log", "--source", "--config"):
        code, out, err = gymtap("doctor", option, tmp_path / "nothing.jsonl")
        assert (code, out) == (2, "")
        assert "nothing.jsonl" in err.splitlines()[0]
    assert gymtap("doctor", "--gym", "nonsense")[0] == 2


def test_without_any_capture_the_way_out_is_what_else_it_looks_at(gymtap: Call) -> None:
    code, out, err = gymtap("doctor")
    assert (code, out) == (3, "")
    assert "no captures in" in err.splitlines()[0]
    assert "--output" in err.splitlines()[1]


def test_why_works_on_the_same_files(gymtap: Call, run: Any) -> None:
    log = run.log("Traceback (most recent call last):\n  File \"x.py\", line 1, in verify\nKeyError: 'tepid'\n")
    code, out, _ = gymtap("why", "--log", log, "--output", run.output, "--source", run.source)
    assert code == 0
    assert "verifier_runtime" in out


def test_a_run_that_never_ended_is_not_healthy(gymtap: Call, tmp_path: Path) -> None:
    """No row failed, because none came to an end: the provider drops every try of one call."""
    lines = [
        {
            "seq": number,
            "hop": "provider",
            "t0": OLD_S + number / 2,
            "t1": OLD_S + number / 2 + 0.01,
            "method": "POST",
            "path": "/v1/chat/completions",
            "req_headers": [["Host", "127.0.0.1:8000"], ["Content-Type", "application/json"]],
            "req_body": '{"model": "m", "messages": []}',
            "error": "ServerDisconnectedError('Server disconnected')",
        }
        for number in range(20)
    ]
    (tmp_path / "boundaries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert gymtap("import", tmp_path / "boundaries.jsonl", "-c", tmp_path / "capture")[0] == 0
    code, out, _ = gymtap("doctor", tmp_path / "capture", "--json")
    document = json.loads(out)
    assert (code, document["healthy"], document["diagnosis"]["layer"]) == (1, False, "infra")
    assert document["steps"][1]["outcome"] == "problem"


def test_a_note_is_a_sentence_without_holes(gymtap: Call, run: Any) -> None:
    """Whose key, which model: a rule's sentence is filled in a step as it is in the diagnosis."""
    key = '[model_retry_stop url=http://h:1/v1 status=401 error_msg={"error": {"message": "Incorrect API '
    code, out, _ = gymtap("doctor", "--log", run.log(key + 'key provided.", "code": "invalid_api_key"}}]\n'), "--json")
    notes = [note for step in json.loads(out)["steps"] for note in step["notes"]]
    assert code == 1
    assert any("the policy's API key" in note["cause"] for note in notes)
    assert not any(
        hole in note["cause"] + note["next_action"] for note in notes for hole in ("{what}", "{role}", "{model}")
    )
