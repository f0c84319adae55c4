"""Rows: their shape, what they are held against, and files of them."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gymtap.proxy.check import contract, row_check
from gymtap.proxy.check.contract import VerifyContract
from gymtap.proxy.check.identities import Identities, identity_of
from gymtap.proxy.check.model_contract import ModelContract
from gymtap.proxy.check.row_check import Against, check_rows
from gymtap.proxy.check.row_shape import check_shape
from gymtap.proxy.core.errors import UsageError

PARAMS = {"input": [{"role": "user", "content": "hi"}]}
ROW = {"responses_create_params": PARAMS, "expected_answer": "4"}

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/verify": {
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Request"}}}}
            }
        }
    },
    "components": {
        "schemas": {
            "Request": {
                "type": "object",
                "required": ["responses_create_params", "response", "expected_answer", "options"],
                "properties": {
                    "responses_create_params": {"type": "object"},
                    "response": {"type": "object"},
                    "expected_answer": {"type": "string"},
                    "options": {"type": "array", "items": {"$ref": "#/components/schemas/Option"}},
                    "limit": {"type": "integer"},
                },
            },
            "Option": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    },
}

APP = """
from pydantic import BaseModel, field_validator

print("a server's module may print")

class Option(BaseModel):
    label: str

class Request(BaseModel):
    responses_create_params: dict
    response: dict
    expected_answer: str
    options: list[Option] | None = None

    @field_validator("expected_answer")
    @classmethod
    def short(cls, value: str) -> str:
        if value == "crash":
            raise KeyError("boom")
        assert len(value) < 5, "too long"
        return value

class Server:
    async def verify(self, body: Request) -> dict: ...
"""


def params(**more: Any) -> dict[str, Any]:
    return {"responses_create_params": {**PARAMS, **more}}


def said(row: Any) -> list[tuple[str, str, str | None]]:
    return [(found.rule, found.severity, found.pointer) for found in check_shape(row)]


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        {"responses_create_params": {"input": "hi"}},
        {"responses_create_params": {"input": []}, "agent_ref": {"type": "responses_api_agents", "name": "a"}},
        params(input=[{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]),
        params(input=[{"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}]),
        params(input=[{"type": "reasoning", "summary": []}, {"type": "something_new"}]),
        params(temperature="0.5"),  # pydantic reads it
        {"reward": 1.0, "response": {"id": "r", "output": [], "usage": None}, "responses_create_params": {}},
        {"mean/reward": 0.5},
        {"_ng_failure_class": "agent_run_error", "_ng_failure_http_status": 500},
    ],
)
def test_what_every_gym_reads_has_no_finding(row: Any) -> None:
    assert said(row) == []


@pytest.mark.parametrize(
    ("row", "rule", "severity", "pointer"),
    [
        (3, "rows.not_an_object", "error", ""),
        ({"expected_answer": "4"}, "rows.no_params", "error", "/responses_create_params"),
        ({"question": "?"}, "rows.no_params", "warning", "/responses_create_params"),
        ({"responses_create_params": {}}, "rows.shape", "error", "/responses_create_params/input"),
        ({"responses_create_params": {}, "prompt": "?"}, "rows.shape", "warning", "/responses_create_params/input"),
        (params(temperature="hot"), "rows.shape", "error", "/responses_create_params/temperature"),
        (params(tools=None), "rows.shape", "error", "/responses_create_params/tools"),
        (params(max_tokens=5), "rows.unknown_param", "error", "/responses_create_params/max_tokens"),
        (params(novelty=5), "rows.unknown_param", "warning", "/responses_create_params/novelty"),
        (params(metadata=None), "rows.metadata_null", "note", "/responses_create_params/metadata"),
        (params(input=[{"content": "x"}]), "rows.message_misread", "error", "/responses_create_params/input/0/role"),
        (
            params(input=[{"role": "tool", "content": "x"}]),
            "rows.message_misread", "error", "/responses_create_params/input/0/role",
        ),
        (
            params(input=[{"role": "assistant", "content": None}]),
            "rows.message_misread", "error", "/responses_create_params/input/0/content",
        ),
        (
            params(input=[{"role": "user", "content": [{"type": "text"}]}]),
            "rows.shape", "error", "/responses_create_params/input/0/content/0/type",
        ),
        (
            params(input=[{"type": "function_call", "name": "f", "call_id": "c", "arguments": {}}]),
            "rows.shape", "error", "/responses_create_params/input/0/arguments",
        ),
        ({**ROW, "agent_ref": {"name": "a"}}, "rows.agent_ref", "note", "/agent_ref/type"),
        ({**ROW, "agent_ref": {"type": "x", "name": "a"}}, "rows.shape", "error", "/agent_ref/type"),
        ({"reward": "good"}, "rows.shape", "error", "/reward"),
    ],
)  # fmt: skip
def test_what_a_gym_refuses_is_named_with_its_place(row: Any, rule: str, severity: str, pointer: str) -> None:
    assert said(row) == [(rule, severity, pointer)]


def test_a_chat_row_says_where_its_messages_belong() -> None:
    (found,) = check_shape({"messages": [], "expected_answer": "4"})
    assert found.fix == "Move messages to responses_create_params.input."


def test_a_server_asks_for_its_own_fields_but_not_for_the_response() -> None:
    held = VerifyContract(OPENAPI)
    good = {**ROW, "options": [{"A": "x"}]}
    assert held.check(good) == []
    assert [found.pointer for found in held.check(ROW)] == ["/options"]
    (wrong,) = held.check({**good, "options": [{"A": 1}]})
    assert (wrong.pointer, wrong.expected, wrong.found, wrong.severity) == ("/options/0/A", "string", "1", "error")


def test_what_pydantic_coerces_is_a_warning() -> None:
    (found,) = VerifyContract(OPENAPI).check({**ROW, "options": [], "limit": "3"})
    assert (found.pointer, found.severity) == ("/limit", "warning")
    (found,) = VerifyContract(OPENAPI).check({**ROW, "options": [], "limit": "three"})
    assert found.severity == "error"


def test_a_live_server_gives_its_contract() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(OPENAPI).encode())

        def log_message(self, *_arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        held = contract.from_server(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()
    assert [found.pointer for found in held.check(ROW)] == ["/options"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "ftp://x", "nonsense"])
def test_a_server_that_does_not_answer_is_said_in_one_line(url: str) -> None:
    with pytest.raises(UsageError, match=r"no OpenAPI document|not an http"):
        contract.from_server(url)


@pytest.mark.parametrize(
    ("document", "words"), [("{}", "no paths"), ('{"paths": {}}', "no POST /verify"), ("{", "not JSON")]
)
def test_a_document_without_a_verify_route_is_no_contract(document: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(document)
    with pytest.raises(UsageError, match=words):
        contract.from_file(file)


def test_a_servers_own_class_gives_pydantics_own_words(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    held = ModelContract(str(tmp_path), sys.executable)
    try:
        assert held.name == "app.Request"
        assert held.check(ROW) == []
        (missing,) = held.check(params())
        assert (missing.pointer, missing.expected) == ("/expected_answer", "a value")
        (refused,) = held.check({**ROW, "expected_answer": "much too long"})
        assert "too long" in refused.message
        (inner,) = held.check({**ROW, "options": [{"label": "a"}, {"label": 1}]})
        assert inner.pointer == "/options/1/label"
        (raised,) = held.check({**ROW, "expected_answer": "crash"})
        assert "boom" in raised.message
    finally:
        held.close()


def test_a_class_is_found_by_name_and_one_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "somewhere.py").write_text(APP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for target in ("somewhere:Request", "somewhere:Server"):
        held = ModelContract(target, sys.executable)
        assert held.name == "somewhere.Request"
        held.close()
    with pytest.raises(UsageError, match="nowhere"):
        ModelContract("nowhere:Request", sys.executable)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def numbered(index: int, **more: Any) -> str:
    return json.dumps({**ROW, "_ng_task_index": index, "_ng_rollout_index": 0, **more})


def kinds(report: row_check.RowReport) -> list[tuple[str, int, list[int]]]:
    return [(group.finding.rule, group.count, group.lines) for group in report.groups]


def test_a_model_without_its_class_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no class"):
        check_rows(write(tmp_path / "rows.jsonl", [numbered(0)]), Against(model="package.module", python="/nowhere"))


def test_findings_are_grouped_by_kind_with_their_first_lines(tmp_path: Path) -> None:
    lines = [numbered(index) for index in range(20)]
    for index in range(7, 15):
        lines[index] = json.dumps({"expected_answer": str(index)})
    lines[3] = '{"cut": '
    report = check_rows(write(tmp_path / "rows.jsonl", lines))
    assert kinds(report) == [("rows.no_params", 8, [8, 9, 10, 11, 12]), ("rows.truncated", 1, [4])]
    assert (report.total.lines, report.total.rows, report.errors) == (20, 19, 9)


@pytest.mark.parametrize("size", [1, 7, 64, 100, 1000, 10**6])
def test_however_a_file_is_cut_the_report_is_the_same(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [numbered(index % 15) for index in range(18)] + ["", '{"a": NaN}', "[]", numbered(99)]
    file = write(tmp_path / "rows.jsonl", lines)
    whole = check_rows(file, jobs=1)
    monkeypatch.setattr(row_check, "RANGE_BYTES", size)
    cut = check_rows(file, jobs=1)
    assert kinds(cut) == kinds(whole)
    assert (cut.total.lines, cut.total.rows, cut.total.size_bytes) == (22, 20, file.stat().st_size)


def test_several_processes_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [numbered(index) for index in range(200)] + [numbered(5), '{"a": ']
    file = write(tmp_path / "rows.jsonl", lines)
    monkeypatch.setattr(row_check, "RANGE_BYTES", 8000)
    done: list[int] = []
    assert kinds(check_rows(file, jobs=2, progress=done.append)) == [
        ("rows.truncated", 1, [202]),
        ("rows.duplicate_identity", 1, [201]),
    ]
    assert sum(done) == file.stat().st_size


def test_the_same_row_twice_names_both_lines(tmp_path: Path) -> None:
    agent = {"type": "responses_api_agents", "name": "other"}
    lines = [numbered(0), numbered(1), numbered(0, agent_ref=agent), numbered(0, _ng_attempt_index=1), numbered(0)]
    (group,) = check_rows(write(tmp_path / "rows.jsonl", lines)).groups
    assert "lines 1 and 5" in group.finding.message


def test_rows_without_indices_have_no_identity() -> None:
    assert identity_of(ROW) is None
    assert identity_of([]) is None


def test_identities_meet_across_flushes() -> None:
    with Identities() as identities:
        for line in range(3 * 8192):
            identities.add(line * 64, line + 1)
        identities.add(64, 10**6)
        assert list(identities.duplicates()) == [(2, 10**6)]


def test_rows_are_held_against_a_contract_and_the_report_names_it(tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(OPENAPI))
    report = check_rows(write(tmp_path / "rows.jsonl", [numbered(0)]), Against(openapi=str(document)))
    assert report.against == "openapi.json"
    assert kinds(report) == [("rows.verify_model", 1, [1])]


def test_an_empty_file_is_worth_a_warning(tmp_path: Path) -> None:
    assert kinds(check_rows(write(tmp_path / "rows.jsonl", []))) == [("rows.none", 1, [1])]


def test_what_comes_through_a_pipe_is_checked_like_a_file(tmp_path: Path) -> None:
    """A pipe has no size and can be read but once; that is no empty file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=(b'{"responses_create_params": {"input": "x"}}\n{"a"',))
    writer.start()
    report = check_rows(pipe)
    writer.join()
    assert (report.file, report.total.rows) == (str(pipe), 1)
    assert [(group.finding.rule, group.lines) for group in report.groups] == [("rows.truncated", [2])]


def test_a_file_of_another_format_has_one_finding(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([{"responses_create_params": {"input": "x"}}] * 9, indent=1))
    report = check_rows(file)
    assert [(group.finding.rule, group.count) for group in report.groups] == [("rows.format", 1)]


def test_a_file_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        check_rows(tmp_path / "nothing.jsonl")


GYM_PYTHON = Path.home() / ".cache/gymtap-lab/gym/venv/bin/python"
SHARED = Path(__file__).parents[3] / "shared"


@pytest.mark.skipif(not (GYM_PYTHON.exists() and SHARED.is_dir()), reason="needs NeMo Gym and its shared inputs")
def test_rows_that_a_real_server_refuses_are_known_before_they_are_sent(tmp_path: Path) -> None:
    names = ["ok", "tool", "verify422", "verify422type", "run422c"]
    inputs = [SHARED / f"gym/inputs/{name}.jsonl" for name in names]
    file = write(tmp_path / "rows.jsonl", [file.read_text().splitlines()[0] for file in inputs])
    folder = SHARED / "gym/envs/resources_servers/chaos"
    report = check_rows(file, Against(model=str(folder), python=str(GYM_PYTHON)))
    refused = {(group.finding.pointer, *group.lines) for group in report.groups}
    assert refused == {("/expected_answer", 3), ("/options", 4), ("/responses_create_params/temperature", 5)}


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared cases")
def test_healthy_rows_of_the_cases_raise_no_error() -> None:
    for file in sorted((SHARED / "cases").glob("*.json")):
        case = json.loads(file.read_text())
        if case["expected"]["layer"] == "none" and "row" in case:
            assert [found for found in check_shape(case["row"]) if found.severity == "error"] == [], file.name
