"""A row against Gym's wire format: what it is, and whether the servers of every version can read it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from gymtap.proxy.check.tools import PARAMS
from gymtap.proxy.core.contracts.finding import finding
from gymtap.proxy.core.contracts.pydantic_errors import findings_of
from gymtap.schemas import Finding, Severity
from gymtap.schemas.wire import KNOWN_PARAMS, FailureRow, RunRequest, VerifyResponse

_MEANT: Mapping[str, str] = {
    "messages": "input",
    "inputs": "input",
    "prompt_messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text",
    "functions": "tools",
}
"""What people write into `responses_create_params`, and the field they mean."""


_TEMPLATE_FIELDS = ("prompt", "question", "problem", "query", "instruction", "text")
"""Columns from which a `prompt_config` makes the input at rollout time."""


def check_shape(row: Any) -> list[Finding]:
    """Findings about a row of a dataset, a materialized input, a rollout or a failure, told apart by its fields.

    A line of a reward profile is none of these, and passes.
    """
    if not isinstance(row, dict):
        return [
            finding("rows.not_an_object", Severity.ERROR, "a row is a JSON object", (), found=row, expected="{...}")
        ]
    if "_ng_failure_class" in row:
        return _validated(FailureRow, row, "a failure row")
    if "reward" in row and ("response" in row or PARAMS not in row):
        return _validated(VerifyResponse, row, "a rollout")
    if "mean/reward" in row:
        return []
    if PARAMS not in row:
        return [_no_params(row)]
    found = [_about_input(problem, row) for problem in _validated(RunRequest, row, "a row for /run")]
    return [*found, *_params(row[PARAMS]), *_agent(row)]


def is_for_run(row: Any) -> bool:
    """Whether a row is one that will be sent, not what came of one."""
    return isinstance(row, dict) and isinstance(row.get(PARAMS), dict) and "reward" not in row


_MESSAGE_FIELD = re.compile(rf"/{PARAMS}/input/(\d+)/(role|content)")


def _about_input(problem: Finding, row: Mapping[str, Any]) -> Finding:
    """What is known about a fault of the input beyond that it does not fit."""
    if match := _MESSAGE_FIELD.fullmatch(problem.pointer or ""):
        item = row[PARAMS]["input"][int(match[1])]
        if "type" not in item:
            message = (
                f"a message with this {match[2]} passes for another kind of item in Gym 0.7; the model never sees it"
            )
            return problem.model_copy(update={"rule": "rows.message_misread", "message": message})
    column = next((name for name in _TEMPLATE_FIELDS if isinstance(row.get(name), str)), None)
    if problem.pointer == f"/{PARAMS}/input" and column and "input" not in row[PARAMS]:
        message = f"input is missing; fine only where a prompt_config makes it (from {column}, say)"
        return problem.model_copy(update={"severity": Severity.WARNING, "message": message})
    return problem


def _validated(model: type[BaseModel], row: Mapping[str, Any], what: str) -> list[Finding]:
    try:
        model.model_validate(row)
    except ValidationError as error:
        return findings_of(error.errors(include_url=False), row, "rows.shape", what)
    return []


def _no_params(row: Mapping[str, Any]) -> Finding:
    message, severity, fix = f"{PARAMS} is missing, so Gym 0.7 ends before it sends a row", Severity.ERROR, None
    if "messages" in row:
        message += "; the row has messages instead, as for Chat Completions"
        fix = f"Move messages to {PARAMS}.input."
    elif "input" in row:
        fix = f"Put input, and what belongs to it, into {PARAMS}."
    elif "task_id" in row or any(isinstance(row.get(name), str) for name in _TEMPLATE_FIELDS):
        message += ", unless a prompt_config makes it, or the environment server reads rows of its own"
        severity = Severity.WARNING
    return finding("rows.no_params", severity, message, (PARAMS,), expected="an object with input", fix=fix)


def _params(params: Any) -> Iterator[Finding]:
    if not isinstance(params, dict):
        return
    for name in params:
        if name not in KNOWN_PARAMS:
            meant = _MEANT.get(name)
            severity = Severity.ERROR if meant else Severity.WARNING
            fix = f"Write {meant}." if meant else None
            message = f"Gym 0.7 answers 422 to an unknown field in {PARAMS}: {name}"
            yield finding("rows.unknown_param", severity, message, (PARAMS, name), found=params[name], fix=fix)
    if "metadata" in params and params["metadata"] is None:
        message = "metadata: null makes the model server of older Gyms fail (AttributeError: 'NoneType')"
        yield finding("rows.metadata_null", Severity.NOTE, message, (PARAMS, "metadata"), fix="Leave metadata out.")


def _agent(row: Mapping[str, Any]) -> Iterator[Finding]:
    reference = row.get("agent_ref")
    if isinstance(reference, dict) and "type" not in reference:
        message = "agent_ref has no type"
        yield finding(
            "rows.agent_ref", Severity.NOTE, message, ("agent_ref", "type"), expected='"responses_api_agents"'
        )
