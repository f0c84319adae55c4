"""Causes and next steps: what is named is what was seen, and nothing is advised that this hop cannot do."""

import json
from typing import Any

import pytest

from gymtap.proxy.diagnose import Material, diagnose
from gymtap.proxy.diagnose.evidence import Seen
from gymtap.proxy.diagnose.raised import frame_of, raised_at, rows_without
from gymtap.schemas import Call, Diagnosis, TransportErrorKind


def provider(said: str, status: int = 400, *, request: Any = None, path: str = "/v1/chat/completions") -> Seen:
    return Seen(
        "p", "model", "provider", Call.PROVIDER, target=path, status=status, server="llm.example:8000",
        request=json.dumps(request or {"model": "m", "messages": []}),
        response=json.dumps({"error": {"message": said}}),
    )  # fmt: skip


def unanswered(number: int, said: str, kind: TransportErrorKind, *, judge: bool = False) -> Seen:
    return Seen(
        f"p{number}", "judge_model" if judge else "model", "provider", Call.PROVIDER, target="/v1/chat/completions",
        judge=judge, error=kind, error_text=said, server="llm.example", request="{}", started_ms=number * 10.0,
    )  # fmt: skip


def answered() -> Seen:
    body = json.dumps({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]})
    return Seen(
        "p0", "model", "provider", Call.PROVIDER, target="/v1/chat/completions", status=200, server="llm.example",
        request='{"messages": []}', response=body, started_ms=0.0,
    )  # fmt: skip


def resources(path: str, call: Call, status: int, body: str, request: Any = None, **more: Any) -> Seen:
    return Seen(
        path.strip("/"), "agent", "resources", call, target=path, status=status, response=body,
        request=json.dumps(request or {}), server="resources", **more,
    )  # fmt: skip


def told(*exchanges: Seen, log: tuple[str, ...] = (), rows: tuple[str, ...] = ()) -> Diagnosis:
    return diagnose(Material(exchanges=exchanges, log=log, rows=rows))


UNRESOLVED = "ClientConnectorDNSError: Cannot connect to host llm.example:443 ssl:default [Name or service not known]"
EXPIRED = (
    "ClientConnectorCertificateError: Cannot connect to host llm.example:443 ssl:True [SSLCertVerificationError: (1, "
    "'[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1032)')]"
)


def test_a_name_that_does_not_resolve_is_no_silent_server() -> None:
    found = told(answered(), unanswered(1, UNRESOLVED, TransportErrorKind.UNREACHABLE))
    assert found.rule == "infra.unresolved"
    assert "the same host answered earlier" in found.cause
    assert "`getent hosts llm.example`" in found.next_action


@pytest.mark.parametrize("judge", [False, True])
def test_a_bad_certificate_is_told_with_its_reason_and_mended_where_it_is(judge: bool) -> None:
    found = told(unanswered(1, EXPIRED, TransportErrorKind.TLS, judge=judge))
    assert "certificate has expired" in found.cause
    assert found.next_action.startswith("Renew the certificate of llm.example:443")
    assert not {finding.rule for finding in found.findings} & {"infra.refused", "infra.refused_told"}


DETAIL = json.dumps({"detail": [{"type": "int_from_float", "loc": ["body", "boxes"], "msg": "a fraction"}]})
OF_ANSWER = DETAIL.replace('"boxes"', '"response", "output", 0')


@pytest.mark.parametrize(
    ("path", "call", "detail", "says", "never"),
    [
        ("/seed_session", Call.SEED_SESSION, DETAIL, "--from seed", "generated again"),
        ("/verify", Call.VERIFY, DETAIL, "--from verify", "in the answer"),
        ("/verify", Call.VERIFY, OF_ANSWER, "in the answer and not in the data", "where the row is made"),
    ],
)
def test_a_refused_row_is_tried_again_from_the_call_that_refused_it(
    path: str, call: Call, detail: str, says: str, never: str
) -> None:
    found = told(resources(path, call, 422, detail))
    assert found.rule == "data.verify_422"
    assert says in found.next_action
    assert never not in found.next_action


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("Invalid type for 'input[0].content[1].image_url': expected an image URL, but got an object", "media_shape"),
        ("Failed to fetch media from URL: HTTP 404 error (value=https://a.example/x.png)", "media_gone"),
        ("Invalid image: incorrect padding", "content"),
        ("The response was filtered due to our content management policy", "content_policy"),
    ],
)
def test_a_mediums_shape_its_address_and_a_filter_are_told_apart(said: str, rule: str) -> None:
    request = {"model": "m", "input": [{"type": "input_image", "image_url": {"url": "data:image/png;base64,AA"}}]}
    found = told(provider(said, request=request))
    assert found.rule == f"data.{rule}"
    assert "data.media_unreachable" not in {finding.rule for finding in found.findings}


def test_a_deployment_is_named_as_its_url_has_it() -> None:
    said = "The API deployment for this resource does not exist."
    found = told(provider(said, 404, path="/openai/deployments/gpt-x/chat/completions"))
    assert "`gpt-x`" in found.next_action
    assert "/models" not in found.next_action


def test_a_refused_configuration_is_told_with_its_fields() -> None:
    log = (
        "(judge) Traceback (most recent call last):",
        '(judge)   File "/opt/x/app.py", line 5, in <module>',
        "(judge) pydantic_core._pydantic_core.ValidationError: 2 validation errors for JudgeConfig",
        "(judge) judge_model_server",
        "(judge)   Field required [type=missing, input_value={}, input_type=dict]",
        "(judge) port",
        "(judge)   Input should be a valid integer [type=int_parsing, input_value='x', input_type=str]",
    )
    found = told(log=log)
    assert found.rule == "config.value"
    assert "judge_model_server: Field required; port: Input should be a valid integer" in found.cause
    assert "judge's line" in found.cause


def test_tools_that_are_all_not_served_point_at_the_server_and_not_at_one_of_them() -> None:
    offered = [{"type": "function", "name": name} for name in ("search", "lookup")]
    run = Seen(
        "r", "collector", "environment", Call.RUN, target="/run", status=200, response='{"reward": 0.0}',
        request=json.dumps({"responses_create_params": {"input": "?", "tools": offered}}),
    )  # fmt: skip
    cookie = {"set-cookie": "OtherServer___other=abc; path=/"}
    calls = [
        resources(f"/{name}", Call.TOOL, 404, '{"detail":"Not Found"}', {"id": 1}, response_headers=cookie)
        for name in ("search", "lookup")
    ]
    found = told(run, answered(), *calls)
    assert "search, lookup" in found.cause
    assert "OtherServer___other" in found.cause
    assert "tries alike" not in found.cause
    assert "another resources server" in found.next_action
    assert "the tool search" in told(run, answered(), calls[0]).cause


def test_a_row_flaw_is_named_where_the_provider_is_vague() -> None:
    parameters = {"type": "object", "properties": {"when": {"type": "str"}}}
    row = {"responses_create_params": {"input": "?", "tools": [{"name": "book", "parameters": parameters}]}}
    row["responses_create_params"]["tools"][0]["type"] = "function"  # type: ignore[index]  # a literal dict
    found = told(provider("Invalid grammar specification: 'triggers'"), rows=(json.dumps(row),))
    assert found.rule == "data.grammar"
    assert "/responses_create_params/tools/0/parameters/properties/when/type" in found.cause
    assert "(tool book)" in found.cause


def test_who_refused_is_shown_beside_a_rows_flaw() -> None:
    tools = [{"type": "function", "name": "submit", "parameters": {"type": "object"}}]
    params = {"input": "?", "tools": tools, "tool_choice": {"type": "function", "name": "finish"}}
    found = told(provider("no such choice is known"), rows=(json.dumps({"responses_create_params": params}),))
    assert found.rule == "data.tool_schema"
    assert any("400: no such choice is known" in evidence.text for evidence in found.evidence)
    assert "row 1" not in found.cause


def test_outer_errors_are_not_said_to_be_all_where_the_inner_one_is_known() -> None:
    line = "[rollout_collection] /run failed status=500 row={}"
    assert told(log=(line,)).rule == "verifier.run_failed"
    found = told(provider("context_length_exceeded: maximum context length is 10 tokens"), log=(line,))
    assert "verifier.run_failed" not in {finding.rule for finding in found.findings}


@pytest.mark.parametrize(
    ("exception", "says"),
    [
        ("AttributeError(\"'NoneType' object has no attribute 'group'\")", "A pattern found nothing"),
        ("IndexError('list index out of range')", "empty here"),
        ("KeyError('answer')", "has `answer`"),
        ("KeyError('unit_tests')", "fill or drop it in the row"),
    ],
)
def test_what_code_stumbled_over_decides_the_next_step(exception: str, says: str) -> None:
    found = told(resources("/verify", Call.VERIFY, 500, json.dumps(exception), {"answer": "4"}))
    assert found.rule == "verifier.stumbled"
    assert says in found.next_action
    assert "gymtap replay verify" in found.next_action


def test_metrics_that_raise_name_the_rows_and_leave_the_rollouts() -> None:
    rows = [{"_ng_task_index": n, "_ng_rollout_index": 0, **({"result": 1} if n != 1 else {})} for n in range(3)]
    request = {"verify_responses": rows}
    found = told(resources("/aggregate_metrics", Call.AGGREGATE, 500, "\"KeyError('result')\"", request))
    assert "1 of 3 rows has no `result` (1.0)" in found.cause
    assert "safe" in found.next_action
    assert rows_without(request, "_ng_task_index") == ""


LOG = (
    '(squad)   File "/opt/gym/squad/app.py", line 74, in f1',
    "(squad)     precision = same / len(found)",
    "(squad) ZeroDivisionError: division by zero",
)


def test_a_raised_exception_is_placed_by_the_frame_before_its_own_line() -> None:
    """The log may lack the traceback's head, and quotes what the server answers otherwise."""
    place = "squad/app.py:74 (`precision = same / len(found)`)"
    assert raised_at(LOG, "ZeroDivisionError('division by zero')") == place
    assert raised_at(LOG, "ZeroDivisionError('modulo by zero')") == ""
    assert frame_of("no frames here") == ""
    found = told(resources("/verify", Call.VERIFY, 500, "\"ZeroDivisionError('division by zero')\""), log=LOG)
    assert place in found.cause


def test_an_engine_that_says_it_is_full_is_named_in_a_timeouts_cause() -> None:
    late = Seen("p", "model", "provider", Call.PROVIDER, timeout=True, error_text="TimeoutError", duration_ms=6e5)
    full = "(vllm) INFO Running: 256 reqs, Waiting: 812 reqs, GPU KV cache usage: 99.7%, Prefix cache hit rate: 0.0%"
    found = told(late, log=(full,))
    assert "Waiting: 812 reqs, GPU KV cache usage: 99.7%" in found.cause
    assert "longer limit" in found.next_action
    assert "Waiting" not in told(late, log=(full.replace("812", "0").replace("99.7", "31.0"),)).cause


KILLED = (
    "Memory on the node where the task (actor ID: 5c, name=Gym.run, pid=91, memory used=131.20GB) was running "
    "was 242.10GB / 251.70GB (0.96), which exceeds the memory usage threshold of 0.95."
)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            KILLED,
            "Gym.run (pid 91) with 131.20GB, the node at 242.10GB / 251.70GB",
        ),
        ("Out of memory: Killed process 77 (python) total-vm:9kB, anon-rss:812kB", "python (pid 77) with 812kB"),
    ],
)
def test_who_was_killed_for_memory_is_said(line: str, says: str) -> None:
    assert says in told(log=(line,)).cause


def test_a_taken_port_is_told_with_its_server_and_the_command_that_shows_who_has_it() -> None:
    found = told(log=("(mcqa) ERROR: [Errno 98] error while binding ('127.0.0.1', 1287): address already in use",))
    assert "mcqa's line" in found.cause
    assert "ss -ltnp" in found.next_action
    found = told(log=("(mcqa) ERROR: [Errno 98] bind on address ('127.0.0.1', 1287): address already in use",))
    assert "`ss -ltnp 'sport = :1287'`" in found.next_action


def test_an_aborted_generation_is_no_score() -> None:
    choice = {"message": {"content": ""}, "finish_reason": "abort"}
    answer = Seen("p", "model", "provider", Call.PROVIDER, status=200, response=json.dumps({"choices": [choice]}))
    found = told(answer)
    assert "finish_reason abort" in found.cause
    assert "weights" in found.next_action
    assert "no score" in found.next_action


def test_a_sentence_that_ends_in_a_colon_is_told_with_what_follows_it() -> None:
    log = (
        "Traceback (most recent call last):",
        '  File "ray/worker.py", line 1, in connect',
        "RuntimeError: Version mismatch: The cluster was started with:",
        "    Ray: 2.52.0",
        "    Python: 3.12.4",
    )
    assert "Ray: 2.52.0 Python: 3.12.4" in told(log=log).cause


def test_what_a_tool_answered_stands_in_the_cause_that_names_it() -> None:
    found = told(resources("/lookup", Call.TOOL, 500, "\"KeyError('results')\""))
    assert "lookup (KeyError('results'))" in found.cause
    assert "gymtap replay lookup" in found.next_action
