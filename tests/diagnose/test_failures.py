"""The call tree decides what failed first: parents by time and callee, retries, what was swallowed, what logs tell."""

from typing import Any

from gymtap.proxy.diagnose import from_exchanges
from gymtap.proxy.diagnose.failures import CallTree, failing_exchanges, failing_log_blocks
from gymtap.schemas import Call


def call(boundary: str, path: str, status: int, start: float, took: float) -> dict[str, Any]:
    return {
        "boundary": boundary,
        "request": {"method": "POST", "url": f"http://h:1{path}", "body_text": "{}"},
        "response": {"status": status, "headers": {}, "body_text": "{}"},
        "t_ms": start,
        "duration_ms": took,
    }


def test_a_verify_that_follows_the_agents_own_call_at_once_belongs_to_run() -> None:
    tree = CallTree(
        from_exchanges(
            [
                call("environment->agent", "/run", 200, 0, 100),
                call("agent->agent", "/v1/responses", 200, 5, 40),
                call("agent->resources", "/verify", 200, 45, 20),
                call("agent->model", "/v1/responses", 200, 6, 30),
            ]
        )
    )
    run, own, model, verify = tree.exchanges
    assert tree.parents == {own.id: run, verify.id: run, model.id: own}


def test_the_innermost_failure_is_found_and_its_callers_are_not() -> None:
    tree = CallTree(
        from_exchanges(
            [
                call("environment->agent", "/run", 500, 0, 100),
                call("agent->model", "/v1/responses", 500, 5, 40),
                call("model->provider", "/v1/chat/completions", 400, 6, 3),
            ]
        )
    )
    assert [(f.where, f.swallowed) for f in failing_exchanges(tree)] == [("a3", False)]


def test_a_failure_under_a_good_answer_was_swallowed_and_one_before_a_good_retry_recovered() -> None:
    tree = CallTree(
        from_exchanges(
            [
                call("agent->model", "/v1/responses", 200, 0, 100),
                call("model->provider", "/v1/chat/completions", 429, 1, 3),
                call("model->provider", "/v1/chat/completions", 200, 10, 3),
                call("agent->model", "/v1/responses", 200, 200, 50),
                call("model->provider", "/v1/chat/completions", 400, 201, 3),
            ]
        )
    )
    assert [(f.where, f.recovered, f.swallowed) for f in failing_exchanges(tree)] == [
        ("a2", True, False),
        ("a5", False, True),
    ]


def test_a_log_is_read_in_blocks_whatever_stands_before_its_lines() -> None:
    log = """(policy_model) 🚨 [upstream_request_failed] server=VLLMModel___policy_model method=POST url=http://h:1/v1/chat/completions status=502
(policy_model) Response content: <html>
<head><title>502 Bad Gateway</title></head>
(my_agent) INFO fine
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 1, in f
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "b.py", line 2, in g
    | KeyError: 'missing_key'
    +------------------------------------"""  # noqa: E501 - a log's line is as long as it is
    first, group, error = failing_log_blocks(tuple(log.splitlines()))
    assert (first.call, first.status, first.innermost is not None) == (Call.PROVIDER, 502, True)
    assert "502 Bad Gateway" in first.said
    assert group.said.endswith("unhandled errors in a TaskGroup (1 sub-exception)")
    assert error.said.endswith("KeyError: 'missing_key'")
