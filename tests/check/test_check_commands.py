import json
from contextlib import closing
from pathlib import Path

import pytest

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.cli.program import execute
from gymtap.proxy.store import CaptureWriter

TOOL = {"type": "function", "name": "f", "strict": True, "parameters": {"type": "object", "properties": {}}}
BAD = {**TOOL, "parameters": {"type": "object", "properties": {"u": {"type": "int"}}}}


def write(path: Path, *tools: object) -> str:
    path.write_text(json.dumps({"responses_create_params": {"input": "x", "tools": list(tools)}}) + "\n")
    return str(path)


def test_tools_exit_0_when_all_is_well_and_1_with_the_place_when_not(
    engines: Engines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert engines is not None
    assert execute(["check", "tools", write(tmp_path / "good.jsonl", TOOL)]) == 0
    assert execute(["check", "tools", write(tmp_path / "bad.jsonl", BAD)]) == 1
    shown = capsys.readouterr().out
    assert "/responses_create_params/tools/0/parameters/properties/u/type" in shown
    assert 'fix: Set /properties/u/type to "integer".' in shown


def test_tools_exit_2_when_the_engines_could_not_be_asked(
    bare_python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "bad.jsonl", BAD)
    assert execute(["check", "tools", file, "--engines-python", bare_python]) == 2
    assert "gymtap engines install" in capsys.readouterr().err
    assert execute(["check", "tools", file, "--engines-python", bare_python, "--no-grammar"]) == 0


def test_tools_as_json_carry_verdict_and_findings(
    engines: Engines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert engines is not None
    assert execute(["check", "tools", write(tmp_path / "bad.jsonl", BAD), "--json", "--path", "all"]) == 1
    whole = json.loads(capsys.readouterr().out)
    assert {answer["path"]: answer["verdict"] for answer in whole["preflight"]} == {
        "strict_tool": "reject",
        "required_json": "reject",
        "response_format": "reject",
    }
    assert whole["preflight"][0]["changes"] == ['set /properties/u/type to "integer"']


@pytest.mark.parametrize("wrong", [["--backend", "x"], ["--path", "x"]])
def test_an_option_that_is_none_is_said(wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", "tools", write(tmp_path / "good.jsonl", TOOL), *wrong]) == 2
    assert "not one of" in capsys.readouterr().err


def test_another_release_is_not_claimed_to_be_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["check", "tools", write(tmp_path / "good.jsonl", TOOL), "--vllm", "0.99", "--no-grammar"])
    assert "where vLLM 0.99 differs is not known" in capsys.readouterr().err


def test_rows_exit_0_1_and_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"responses_create_params": {"input": "x"}}\n')
    bad.write_text('{"expected_answer": "4"}\n')
    assert execute(["check", "rows", str(good)]) == 0
    assert execute(["check", "rows", str(bad), "--json"]) == 1
    assert json.loads(capsys.readouterr().out.partition("\n[")[2].join(["[", ""]))[0]["groups"][0]["lines"] == [1]
    assert execute(["check", "rows", str(tmp_path / "none.jsonl")]) == 2
    assert execute(["check", "rows", str(good), "--model", "a:B"]) == 2
    assert "--python" in capsys.readouterr().err


def test_the_engines_are_shown_with_their_versions(bare_python: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["engines", "show", "--engines-python", bare_python]) == 2
    assert "gymtap engines install" in capsys.readouterr().out


def write_capture(folder: Path, *servers: str) -> str:
    """A capture that knows these servers' contracts, each of which wants an expected_answer."""
    schema = {"type": "object", "required": ["expected_answer"]}
    body = {"content": {"application/json": {"schema": schema}}}
    document = json.dumps({"paths": {"/verify": {"post": {"requestBody": body}}}})
    with closing(CaptureWriter.create(folder)) as writer:
        for server in servers:
            writer.contract(server, document.encode())
    return str(folder)


def test_rows_are_held_against_a_server_that_a_capture_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"responses_create_params": {"input": "x"}}\n')
    one, two = write_capture(tmp_path / "one", "mcqa"), write_capture(tmp_path / "two", "mcqa", "math")
    assert execute(["check", "rows", str(rows), "--capture", one]) == 1
    assert "mcqa.openapi.json answers 422 to /verify: expected_answer is missing" in capsys.readouterr().out
    assert execute(["check", "rows", str(rows), "--capture", two]) == 2
    assert "--of takes one of mcqa, math" in capsys.readouterr().err
    assert execute(["check", "rows", str(rows), "--capture", two, "--of", "math"]) == 1
