"""`gymtap check rows CAPTURE`: the rows that a run sent, against what the tap learned of the server that they met."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.cli.program import execute
from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import Attribution, Call, Exchange, Request, Response, RowKey, ServerKind, State

CHAOS = (Path(__file__).parents[1] / "data" / "openapi" / "chaos.json").read_bytes()
GOOD = {"responses_create_params": {"input": "hi"}, "expected_answer": "A", "options": [{"A": "x"}]}
AGENT = {"agent_ref": {"type": "responses_api_agents", "name": "agent"}}

type Check = Callable[..., tuple[int, Any]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Row 0.0 went well, 1.0 lacks a field, 2.0 has one of another type; 3.0 met a server that nothing is known of."""
    writer = CaptureWriter.create(tmp_path / "capture")
    writer.contract("resources", CHAOS)
    bodies = [GOOD, {**GOOD, "expected_answer": None}, {**GOOD, "options": "x"}, GOOD]
    bodies[1].pop("expected_answer")
    for task, body in enumerate(bodies):
        server = "resources" if task < 3 else "other"
        status = 200 if task == 0 else 500
        whole = {**body, **AGENT, "_ng_task_index": task, "_ng_rollout_index": 0}
        for number, (call, name, kind) in enumerate(
            [(Call.RUN, "agent", ServerKind.AGENT), (Call.VERIFY, server, ServerKind.RESOURCES)]
        ):
            exchange = Exchange(
                id=f"a{10 * task + number}",
                server=name,
                kind=kind,
                call=call,
                state=State.DONE,
                started_ns=10 * task + number,
                request=Request(method="POST", target=f"/{call}", headers=()),
                response=Response(status=status, reason="", headers=(), first_byte_ms=1.0, ended_ms=2.0),
                attribution=Attribution(row=RowKey(task=task, rollout=0)),
            )
            writer.add(exchange, json.dumps(whole, indent=1).encode(), b"{}")
    writer.close()
    return tmp_path / "capture"


@pytest.fixture
def check(place: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    def run(*words: str) -> tuple[int, Any]:
        code = execute(["check", "rows", str(place), *words])
        out = capsys.readouterr().out
        return code, json.loads(out) if "--json" in words else out

    return run


def found(report: Any) -> list[tuple[str, list[str]]]:
    return [(group["pointer"], group["rows"]) for group in report["groups"] if group["severity"] == "error"]


def test_the_rows_of_a_capture_meet_the_contract_of_their_own_server(check: Check) -> None:
    code, (known, unknown) = check("--json")
    assert code == 1
    assert (known["rows"], unknown["rows"]) == (3, 1)
    assert found(known) == [("/expected_answer", ["1.0"]), ("/options", ["2.0"])]
    assert (unknown["against"], found(unknown)) == (None, [])


def test_only_those_that_failed(check: Check) -> None:
    code, (known, _unknown) = check("--failed", "--json")
    assert (code, known["rows"]) == (1, 2)
    assert found(known) == [("/expected_answer", ["1.0"]), ("/options", ["2.0"])]


def test_a_person_reads_labels(check: Check) -> None:
    code, said = check()
    assert code == 1
    assert "expected_answer is missing" in said
    assert "at row 1.0  /expected_answer" in said


def test_what_is_named_goes_before_what_the_capture_knows(check: Check, tmp_path: Path) -> None:
    other = json.loads(CHAOS)
    other["paths"]["/verify"]["post"]["requestBody"]["content"]["application/json"]["schema"] = {"required": ["city"]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    _code, reports = check("--openapi", str(tmp_path / "other.json"), "--json")
    assert [found(report) for report in reports] == [[("/city", ["0.0", "1.0", "2.0"])], [("/city", ["3.0"])]]
