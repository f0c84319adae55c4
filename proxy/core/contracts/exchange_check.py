"""One exchange against its server's contract, and against what Gym itself asks of a verifier's answer.

Who refused is told by the status. A 422 is the server's own verdict: its detail is the finding, and the contract adds
its words. What was accepted although the contract says otherwise is a warning at most, since pydantic mends much.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from gymtap.proxy.core.calls import route as split
from gymtap.proxy.core.contracts.finding import clip, finding, short
from gymtap.proxy.core.contracts.openapi import Contract, Model, Violation
from gymtap.proxy.core.contracts.pydantic_errors import findings_of
from gymtap.proxy.core.flow import Flow
from gymtap.proxy.core.pointer import Path, has, pointer, unescaped
from gymtap.proxy.core.redaction import PLACEHOLDER
from gymtap.schemas import Call, Finding, Severity

REQUEST = "contract.request"
RESPONSE = "contract.response"
REWARD = "contract.reward"
RESPONSE_MODEL = "contract.response_model"
REJECTED = "contract.rejected_answer"

CHECKED_CALLS = frozenset(
    {
        Call.RUN, Call.SEED_SESSION, Call.TOOL, Call.VERIFY, Call.CLOSE_SESSION, Call.AGGREGATE, Call.AGENT_SESSION,
        Call.RESPONSES, Call.MODEL,
    }
)  # fmt: skip
"""Calls to Gym's own servers; what leaves Gym is checked by what Gym can parse."""

_ROW_CALLS = frozenset({Call.RUN, Call.SEED_SESSION, Call.VERIFY})
_NAN = re.compile(rb"Out of range float values are not JSON compliant")
_REFUSED_MODEL = re.compile(r"(\d+) validation errors? for (\w+)\n", re.ASCII)
_PLACE = re.compile(r"(?P<place>\S.*)\n  (?P<message>.+?) \[type=\w+")
_DETAIL_MAX_ERRORS = 100


class Callee(NamedTuple):
    """A verifier's exchange, as a later finding about its caller names it."""

    exchange: str
    server: str


def check_request(flow: Flow, contract: Contract | None) -> list[Finding]:
    """What the server refused in a request, or took although its model does not."""
    if flow.method != "POST" or flow.call not in CHECKED_CALLS:
        return []
    model = _request_model(flow, contract)
    if flow.status == 422 and (told := list(_detail(flow, model))):
        return told
    if model is None or not flow.request_body or flow.request_json is None:
        return []
    severity = Severity.ERROR if flow.status == 422 else Severity.WARNING
    verb = "answers 422 to" if flow.status == 422 else "accepted" if _accepted(flow) else "was sent"
    found = [one for one in model.violations(flow.request_json) if not (_accepted(flow) and one.kind == "Format")]
    return [_request(flow, one, severity, verb) for one in found if not _hidden(one)]


def check_response(flow: Flow, contract: Contract | None, caller: Contract | None = None) -> list[Finding]:
    """What in a 2xx answer its own model, the caller's, or Gym refuses; what a 500 says of the answer behind it.

    `caller` is the contract of the agent that asked a verifier, where both are known.
    """
    if flow.method != "POST" or flow.call not in CHECKED_CALLS or flow.status is None:
        return []
    if flow.status >= 500:
        return list(_behind_500(flow, contract))
    if not 200 <= flow.status < 300 or flow.error is not None or flow.response_body is None:
        return []
    found: dict[str | None, Finding] = {}
    for said in (_reward(flow), _callers(flow, caller), _declared(flow, contract)):
        for one in said:
            if "" not in found:  # what is said of the whole body says all
                found.setdefault(one.pointer, one)
    return list(found.values())


def rejected(flow: Flow, verifier: Callee | None) -> list[Finding]:
    """What an agent's /run says with a 500 whose text is pydantic's: it could not take an inner answer.

    `verifier` is the /verify below it that ended last: the one whose answer becomes the answer to /run.
    """
    if flow.call is not Call.RUN or flow.status != 500 or not isinstance(flow.response_json, str):
        return []
    head = _REFUSED_MODEL.match(flow.response_json)
    if head is None:
        return []
    who = f"the answer of {verifier.server} to /verify ({verifier.exchange})" if verifier else "an inner answer"
    fix = f"Repair {verifier.server}: the agent only passes its answer on." if verifier else None
    found = []
    for place in _PLACE.finditer(flow.response_json, head.end()):
        path = tuple(int(part) if part.isdecimal() else part for part in place["place"].split("."))
        message = f"{flow.server.name} ends /run with a 500, because {who} is no {head[2]}: {place['place']}: "
        found.append(finding(REJECTED, Severity.ERROR, clip_message(message + place["message"]), path, fix=fix))
    return found


# Requests


def _request_model(flow: Flow, contract: Contract | None) -> Model | None:
    route = contract.route(split(flow.target).path) if contract is not None else None
    return route.request if route is not None else None


def _accepted(flow: Flow) -> bool:
    return flow.status is not None and flow.status < 300


def _detail(flow: Flow, model: Model | None) -> Iterator[Finding]:
    """FastAPI's own list of what it refused."""
    answer = flow.response_json
    errors = answer.get("detail") if isinstance(answer, dict) else None
    if not isinstance(errors, list):
        return
    asked = flow.request_json
    whole = [one for one in errors[:_DETAIL_MAX_ERRORS] if _is_error(one)]
    body = [{**one, "loc": one["loc"][1:]} for one in whole if one["loc"][:1] == ["body"]]
    source = f"{flow.server.name} answers 422 to POST {split(flow.target).path}"
    for one in findings_of(body, asked, REQUEST, source):
        path = _path(one.pointer or "", asked)
        says = model.says(path) if model is not None and path else None
        missing = one.expected == "a value"
        expected = says if says and says != "anything" else one.expected
        message = one.message.replace(": Field required", f": {path[-1] if path else 'the body'} is missing")
        fix = _fix(flow, path, expected, missing=missing)
        if "Extra inputs are not permitted" in message:
            message = message.replace("Extra inputs are not permitted", f"{path[-1]} is no field of its model")
            fix = f"Remove {place_name(path)}, or write it as the model does."
        elif path and not missing:
            message = message.replace(f"{source}: ", f"{source}: {place_name(path)}: ", 1)
        yield one.model_copy(update={"message": clip_message(message), "expected": expected, "fix": fix})
    for error in whole:
        if error["loc"][:1] != ["body"]:
            place = ".".join(str(part) for part in error["loc"])
            yield Finding(rule=REQUEST, severity=Severity.ERROR, message=f"{source}: {place}: {error['msg']}")


def _is_error(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("loc"), list) and {"type", "msg"} <= one.keys()


def clip_message(message: str) -> str:
    """A message on one line, bounded."""
    line = " ".join(message.split())
    return line if len(line) <= 400 else line[:399] + "…"


def _path(text: str, value: Any) -> Path:
    path: list[str | int] = []
    for part in text.split("/")[1:]:
        key: str | int = unescaped(part)
        if isinstance(value, list) and part.isdecimal():
            key = int(part)
        value = value[key] if has(value, key) else None
        path.append(key)
    return tuple(path)


def _request(flow: Flow, one: Violation, severity: Severity, verb: str) -> Finding:
    if severity is Severity.WARNING and mends(one):
        severity = Severity.NOTE
    what = f"{one.path[-1]} is missing" if one.missing else f"{place_name(one.path)}: {one.message}"
    tail = "" if severity is Severity.ERROR else ", though its own model refuses it"
    message = f"{flow.server.name} {verb} POST {split(flow.target).path}{tail}: {what}"
    return finding(
        REQUEST,
        severity,
        clip_message(message),
        one.path,
        found=one.value,
        expected=one.says or " or ".join(one.wanted) or None,
        fix=_fix(flow, one.path, one.says, missing=one.missing) if severity is Severity.ERROR else None,
    )


def place_name(path: Path) -> str:
    """`options[0].A`; `the body` for the whole of it."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the body"


def mends(one: Violation) -> bool:
    """Whether pydantic, which is lax with FastAPI, turns the value into what is wanted."""
    wanted, value = set(one.wanted), one.value
    if isinstance(value, str):
        if "integer" in wanted and re.fullmatch(r"\s*[-+]?\d+(\.0*)?\s*", value):
            return True
        if "number" in wanted and re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", value):
            return True
        return "boolean" in wanted and value.lower() in {"true", "false", "yes", "no", "on", "off", "0", "1", "t", "f"}
    if isinstance(value, bool):
        return bool(wanted & {"integer", "number"})
    return "boolean" in wanted and isinstance(value, int | float) and value in (0, 1)


def _hidden(one: Violation) -> bool:
    """Whether what we hold is a placeholder for what the server saw."""
    return bool(one.value == PLACEHOLDER)


def _fix(flow: Flow, path: Path, expected: str | None, *, missing: bool) -> str | None:
    place = place_name(path)
    if flow.call is Call.TOOL:
        return f"Declare {place} in the tool's parameters as the route's model has it; the arguments are the model's."
    if flow.call is Call.VERIFY and path[:1] == ("response",):
        return f"Look at the agent's answer: {place} is of its making, not of the row's."
    if flow.call in _ROW_CALLS and missing:
        return f"Add {place} to the dataset's row, or give it a default in the server's model."
    if flow.call in _ROW_CALLS:
        return f"Make {place} in the dataset's row {_article(expected)}." if expected else f"Repair {place} in the row."
    return f"Send {place} as {expected}." if expected else None


def _article(expected: str) -> str:
    plain = expected.partition(" (")[0]
    return plain if plain.startswith(("one of", '"', "a ", "an ", "no ")) else f"a {plain}"


# Responses


def _reward(flow: Flow) -> Iterator[Finding]:
    """Gym 0.4 to 0.7: the answer to /verify is an object with a finite number `reward`; the agent fails without."""
    if flow.call is not Call.VERIFY:
        return
    server, fix = flow.server.name, f"Return a finite number as reward from {flow.server.name}'s verify."
    answer = flow.response_json
    if answer is None:
        answer = _lenient(flow.response_body or b"")
    if not isinstance(answer, dict):
        text = f"{server} answers /verify with a 200 that is no object; the agent will fail, the verifier is at fault"
        shown = answer if answer is not None else clip((flow.response_body or b"").decode(errors="replace"))
        yield finding(REWARD, Severity.ERROR, text, (), found=shown, expected="an object with a reward", fix=fix)
        return
    reward = answer.get("reward")
    if reward == PLACEHOLDER:
        return
    if isinstance(reward, float) and not math.isfinite(reward):
        text = f"{server} answers /verify with a reward of {reward}, which is no JSON and no score"
        yield _reward_finding(text, str(reward), fix)
    elif reward is None or isinstance(reward, bool) or not isinstance(reward, int | float):
        mended = isinstance(reward, bool) or (isinstance(reward, str) and _is_number(reward))
        severity = Severity.WARNING if mended else Severity.ERROR
        what = "without a reward" if "reward" not in answer else f"with a reward of {short(reward)}"
        after = "; pydantic reads it as a number" if mended else "; the agent will fail, the verifier is at fault"
        near = [key for key in answer if key != "reward" and "reward" in key.lower()] or [
            key for key in ("score", "value", "result") if key in answer
        ]
        hint = f" (there is {near[0]})" if "reward" not in answer and near else ""
        text = f"{server} answers /verify with a 200 {what}{hint}{after}"
        shown = None if "reward" not in answer else short(reward)
        yield _reward_finding(text, shown, fix).model_copy(update={"severity": severity})


def _reward_finding(text: str, shown: str | None, fix: str) -> Finding:
    return Finding(
        rule=REWARD, severity=Severity.ERROR, message=text, pointer="/reward", expected="a finite number", found=shown,
        fix=fix,
    )  # fmt: skip


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _lenient(body: bytes) -> Any:
    """What Python's own reader makes of it, NaN and Infinity included; None when it is not JSON at all."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _declared(flow: Flow, contract: Contract | None) -> Iterator[Finding]:
    """An answer against its route's own model. FastAPI checks it too, unless the handler returned a Response."""
    route = contract.route(split(flow.target).path) if contract is not None else None
    model = route.response(flow.status or 0) if route is not None else None
    if model is None or flow.response_json is None:
        return
    for one in model.violations(flow.response_json):
        if not _hidden(one):
            yield _response(flow, one, f"its own model {model.name} refuses it", Severity.WARNING)


def _callers(flow: Flow, caller: Contract | None) -> Iterator[Finding]:
    """A verifier's answer against the model of its agent's answer to /run, which is made of it."""
    route = caller.route("/run") if caller is not None and flow.call is Call.VERIFY else None
    model = route.response(200) if route is not None else None
    if caller is None or model is None or not isinstance(flow.response_json, dict):
        return
    for one in model.violations(flow.response_json):
        if not _hidden(one) and not mends(one):
            yield _response(flow, one, f"{caller.server} will refuse it as {model.name}", Severity.ERROR)


def _response(flow: Flow, one: Violation, why: str, severity: Severity) -> Finding:
    what = f"{one.path[-1]} is missing" if one.missing else f"{place_name(one.path)}: {one.message}"
    message = f"{flow.server.name} answers POST {split(flow.target).path} with {flow.status}, though {why}: {what}"
    fix = f"Repair what {flow.server.name} returns: {place_name(one.path)} should be {one.says or 'there'}."
    return finding(
        RESPONSE,
        Severity.NOTE if mends(one) else severity,
        clip_message(message),
        one.path,
        found=one.value,
        expected=one.says or " or ".join(one.wanted) or None,
        fix=fix,
    )


def _behind_500(flow: Flow, contract: Contract | None) -> Iterator[Finding]:
    """The two 500s by which FastAPI says that the handler's own answer is at fault, naming no field."""
    server, path = flow.server.name, split(flow.target).path
    if isinstance(flow.response_json, str) and flow.response_json.startswith("ResponseValidationError("):
        route = contract.route(path) if contract is not None else None
        model = route.response(200) if route is not None else None
        expected = f"{model.name} with {', '.join(model.required)}" if model is not None else None
        text = f"what {server} returned for POST {path} does not fit its own response model, and the answer hides where"
        fix = f"Look at the end of {server}'s log for the ResponseValidationError, which names the field."
        yield finding(RESPONSE_MODEL, Severity.ERROR, text, (), expected=expected, fix=fix)
    elif flow.response_body and _NAN.search(flow.response_body[:4096]):
        at = ("reward",) if flow.call is Call.VERIFY else ()
        text = f"what {server} returned for POST {path} holds NaN or Infinity, which JSON has not"
        fix = f"Make {server} return finite numbers; look for a division by zero, or a mean of nothing."
        yield finding(RESPONSE_MODEL, Severity.ERROR, text, (), fix=fix).model_copy(update={"pointer": pointer(at)})
