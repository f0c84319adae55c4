"""Healthy rows stay healthy: a world that says no, a program that fails, and a verdict that gives its reasons."""

import json
from typing import Any

import pytest

from gymtap.proxy.diagnose import diagnose, from_case
from gymtap.schemas import Diagnosis, Layer, Severity

WORLD: tuple[Any, ...] = (
    "plain text",
    None,
    {"result": None, "error": None},
    {"error": "Item not found"},
    {"error": "Permission denied"},
    {"status": "error", "message": "user is not authorized to view this order"},
    {"success": False, "reason": "seat taken"},
    {"stdout": "", "stderr": "bash: foo: command not found", "exit_code": 127},
    {"output": "Killed", "exit_code": 137},
    {"content": [{"type": "text", "text": "Error: no such table: users"}], "isError": True},
    {"content": "ERROR ConnectionRefusedError: [Errno 111] Connection refused\nERROR 503"},
    {"error": "Session cart is empty"},
    {"error": "Network device eth0 is down in the simulation"},
    {"error": "The container you asked for (box 12) was not found in the warehouse"},
    {"error": "Your account quota of 3 bookings has been reached"},
    {"message": "Access token is missing, invalid or expired."},
    {"message": "No connection available: flight 503 is full, connection BA12 timed out of season", "status": "error"},
    {"output": "curl: (7) Failed to connect to localhost port 80: Connection refused\n", "exit_code": 7},
    {"stdout": "", "stderr": "Execution timed out after 10 seconds", "status": "timeout"},
    {"output": "", "exit_code": 1},
    {"error": "Meeting room is unavailable at that time"},
    {"error": "Too many guests for this table"},
    {"content": [{"type": "text", "text": "ENOENT: no such file or directory, open 'x'"}], "isError": True},
    "Error: division by zero",
    {"code": 0, "message": "ok", "data": None},
    {"code": 404, "message": "Order 12 not found", "data": None},
    {"code": -1, "message": "No seat left in row 4"},
)
VERDICTS: tuple[dict[str, Any], ...] = (
    {"error": None, "exception": None, "errors": []},
    {"errors": ["expected 51, got 52"]},
    {"parse_error": "no \\boxed{} found in the answer"},
    {"failure_reason": "no boxed answer", "failure_kind": None},
    {"execution_error": "ZeroDivisionError: division by zero"},
    {"status": "failed", "tests": [{"error": "ValueError: CUDA out of memory"}]},
    {"stderr": "Traceback (most recent call last):\n  File \"solution.py\", line 1\nNameError: name 'x'"},
    {"judge_output": "[[A!=B]] The answer is an error", "feedback": "Exception handling missing"},
)


def call(boundary: str, url: str, asked: Any, answered: Any, times: tuple[float, float]) -> dict[str, Any]:
    bodies = [body if isinstance(body, str) else json.dumps(body) for body in (asked, answered)]
    return {
        "boundary": boundary,
        "request": {"method": "POST", "url": f"http://{url}", "body_text": bodies[0]},
        "response": {"status": 200, "headers": {}, "body_text": bodies[1]},
        "t_ms": times[0],
        "duration_ms": times[1],
    }


def turn(message: dict[str, Any], start: float) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    body = {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 9}}
    return call("model->provider", "p:8000/v1/chat/completions", {"messages": []}, body, (start, 1))


def row(tool_said: Any, verdict: dict[str, Any], reward: float) -> Diagnosis:
    """A row whose one tool says that, and whose verifier adds that to its reward."""
    asked = {"responses_create_params": {"input": "Do it."}, "_ng_task_index": 1, "_ng_rollout_index": 0}
    verified = {**asked, "reward": reward, **verdict}
    tool_call = {"id": "c1", "type": "function", "function": {"name": "do", "arguments": "{}"}}
    return diagnose(
        from_case(
            {
                "exchanges": [
                    call("environment->agent", "a:1/run", asked, verified, (0, 100)),
                    call("agent->agent", "a:1/v1/responses", {"input": "Do it."}, {"output": []}, (2, 50)),
                    turn({"content": None, "tool_calls": [tool_call]}, 5),
                    call("agent->resources", "r:1/do", {}, tool_said, (10, 5)),
                    turn({"content": "It failed with a connection error."}, 20),
                    call("agent->resources", "r:1/verify", asked, verified, (60, 5)),
                ]
            }
        )
    )


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("tool_said", WORLD, ids=lambda said: json.dumps(said)[:40])
def test_what_a_world_answers_is_no_failure(tool_said: Any, reward: float) -> None:
    """A tool's `no` is the task, and a zero after it is earned."""
    diagnosis = row(tool_said, {}, reward)
    assert diagnosis.layer is Layer.NONE
    assert [found.rule for found in diagnosis.findings if found.severity is Severity.ERROR] == []


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: next(iter(verdict)))
def test_a_verdict_with_its_reasons_is_no_broken_verifier(verdict: dict[str, Any]) -> None:
    assert row({"ok": True}, verdict, 0.0).layer is Layer.NONE


@pytest.mark.parametrize(
    ("tool_said", "rule"),
    [
        ({"content": [{"type": "text", "text": "Error: connection refused"}], "isError": True}, "infra.tool_backend"),
        ({"error": "HTTP 429 Too Many Requests from https://api.search.example"}, "throughput.rate_limit"),
        ({"error": "Search failed: 401 Unauthorized - invalid API key"}, "config.tool_key"),
        ("Error executing tool do: Request timed out after 30s", "throughput.timeout"),
        ({"code": -500, "message": "open /tmp/1.py: no space left on device", "data": None}, "infra.disk"),
        (
            {"content": [{"type": "text", "text": "McpError: Session terminated"}], "isError": True},
            "infra.mcp_session",
        ),
        ({"observation": "", "error": "the browser has been closed", "done": False}, "infra.sandbox"),
        ({"observation": "", "error": "No active session. Call seed_session first."}, "verifier.session_unknown"),
    ],
)
def test_a_tool_that_tells_of_nothing_but_what_stands_behind_it_is_one(tool_said: Any, rule: str) -> None:
    assert row(tool_said, {}, 0.0).rule == rule
    assert row(tool_said, {}, 1.0).layer is Layer.NONE, "the row was solved all the same"
