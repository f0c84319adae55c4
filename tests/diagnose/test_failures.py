"""The call tree decides what failed first: parents by time and callee, retries, what was swallowed, what logs tell."""

import json
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


def test_a_retry_of_another_model_with_the_same_messages_recovers_what_failed() -> None:
    asked = [
        call("agent->model", "/v1/responses", 200, 0, 100),
        call("model->provider", "/v1/chat/completions", 429, 1, 3),
        call("model->provider", "/v1/chat/completions", 200, 10, 3),
    ]
    for exchange, model, question in ((asked[1], "a", "q"), (asked[2], "b", "q")):
        exchange["request"]["body_text"] = f'{{"model": "{model}", "messages": ["{question}"]}}'
    assert [f.recovered for f in failing_exchanges(CallTree(from_exchanges(asked)))] == [True]
    asked[2]["request"]["body_text"] = '{"model": "b", "messages": ["another"]}'
    assert [f.recovered for f in failing_exchanges(CallTree(from_exchanges(asked)))] == [False]


def test_what_a_server_wraps_is_judged_as_what_the_hop_beyond_it_said() -> None:
    failing = call("agent->model", "/v1/responses", 500, 0, 100)
    failing["response"]["body_text"] = json.dumps(
        "Hit an exception in VLLMModel___m calling an inner server: " + repr(b'{"error":{"message":"no","code":429}}')
    )
    (failure,) = failing_exchanges(CallTree(from_exchanges([failing])))
    assert (failure.call, failure.status, failure.judge) == (Call.PROVIDER, 429, False)


def test_an_exception_that_a_server_wraps_stays_with_the_server_that_told_it() -> None:
    failing = call("environment->agent", "/run", 500, 0, 100)
    failing["response"]["body_text"] = json.dumps(
        "Hit an exception in SimpleAgent___a calling an inner server: " + repr(b"\"KeyError('x')\"")
    )
    (failure,) = failing_exchanges(CallTree(from_exchanges([failing])))
    assert (failure.call, failure.status) == (Call.RUN, 500)


def test_retries_before_a_good_end_and_lost_connections_after_an_ordered_stop_are_noise() -> None:
    retry = "[model_retry url=http://h:1/v1/chat/completions status=503 try=1 max_tries=3 error_msg=loading]"
    end = "Collecting rollouts: 100%|██████████| 8/8 [00:05<00:00]"
    noise = ["INFO:     Shutting down", "ConnectionRefusedError: [Errno 111] Connect call failed ('h', 1)"]
    assert [f.recovered for f in failing_log_blocks((retry, end, *noise)) if "Shutting" not in f.said] == [True, True]
    underway = (end.replace("100%", " 50%").replace("8/8", "4/8"), retry, *noise)
    assert not any(f.recovered for f in failing_log_blocks(underway))
