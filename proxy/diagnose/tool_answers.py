"""Reads tools' good answers that tell of nothing but an error: MCP's `isError`, `{"error": …}`, a plain error sentence.

Such an answer is mostly what the model asked for (a file that is not there, code that raises), so it counts as a
failure only where every answer of that tool in a row without reward was one, and the error is not of the tool's doing.
"""

import re
from collections.abc import Iterator
from typing import Any

from gymtap.proxy.diagnose.evidence import Seen, listed
from gymtap.schemas import Call

_ERROR_KEYS = frozenset(
    {"error", "success", "ok", "status", "message", "detail", "code", "error_code", "error_type"}
) | {
    "exit_code",
    "returncode",
    "return_code",
}
_RAN_KEYS = frozenset({"process_status", "stderr"})
"""What a sandbox answers beside the output; an error there without a traceback is its own and no program's."""
_SENTENCE = re.compile(
    r"^\W{0,3}(?:\[?error\b|exception\b|failed\b|failure\b|fatal\b|tool (?:call )?failed)", re.IGNORECASE
)
_STATUS = re.compile(
    r"\b(?:status(?:_code)?|code|error|HTTP(?:/\d\.\d)?|returned|responded with|answered)\b[^\w\n]{0,4}([45]\d\d)\b",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(
    r"(?:unknown|no such|unrecognized|unsupported) tool\b|\btool\b[^\n]{0,60}(?:not (?:found|registered|"
    r"available)|does not exist|unknown)|-32601\b",
    re.IGNORECASE,
)
_LONGEST_SENTENCE = 2_000


def told_error(exchange: Seen) -> str:
    """What an answer that is nothing but an error says; empty where it is more than that, or none."""
    body = exchange.response_json
    if isinstance(body, dict) and body.get("isError") is True:
        return _text(body.get("content"))
    if isinstance(body, dict) and body.keys() & _RAN_KEYS:
        return _not_run(body)
    if isinstance(body, dict) and _only_error(body):
        refused = body.get("error") or body.get("success") is False or body.get("ok") is False
        refused = refused or str(body.get("status")).lower() in {"error", "failed", "failure"}
        refused = refused or _error_code(body.get("code"))
        return _text(body.get("error") or body.get("message") or body.get("detail")) if refused else ""
    return _sentence(body if isinstance(body, str) else exchange.response if body is None else None)


def _error_code(code: Any) -> bool:
    """Whether a `code` is an error's: negative, as services' own are, or from 400 on, as HTTP's; 0 and 200 are not."""
    return isinstance(code, int) and (code < 0 or code >= 400)


def _not_run(body: dict[str, Any]) -> str:
    """What a sandbox says that could not run a program; empty where the program ran, whatever it wrote or raised."""
    status = str(body.get("process_status") or body.get("status")).lower()
    told = _text(body.get("error")) or _text(body.get("stderr"))
    ran = body.get("stdout") or status not in {"error", "failed", "failure", "timeout"}
    return "" if ran or re.search(r"Traceback|File \"|\n.*\n", told) else told


def _only_error(body: dict[str, Any]) -> bool:
    """Whether a body holds nothing beside an error: every other value is empty, zero or false."""
    return bool(body) and all(not found for key, found in body.items() if key not in _ERROR_KEYS)


def hopeless_tools(exchanges: tuple[Seen, ...]) -> Iterator[tuple[Seen, str]]:
    """The first answer of every tool that told nothing but errors in a row without reward, and what it told."""
    if rewarded(exchanges):
        return
    answers: dict[str, list[tuple[Seen, str]]] = {}
    for exchange in exchanges:
        if exchange.call is Call.TOOL and exchange.status is not None and exchange.status < 400:
            answers.setdefault(exchange.path, []).append((exchange, told_error(exchange)))
    for told in answers.values():
        if all(text for _, text in told):
            yield told[0]


def rewarded(exchanges: tuple[Seen, ...]) -> bool:
    """Whether a verifier gave the row more than nothing."""
    return any(_reward(e) > 0 for e in exchanges if e.call in {Call.VERIFY, Call.RUN})


def unknown_tools(exchanges: tuple[Seen, ...]) -> Iterator[tuple[Seen, str, str]]:
    """Answers that say that no such tool is there: the exchange, the tool's name, and what was told."""
    for exchange, text in hopeless_tools(exchanges):
        if _UNKNOWN.search(text):
            yield exchange, exchange.path.rsplit("/", 1)[-1], text


def told_status(text: str) -> int | None:
    """The HTTP status that an error sentence names; None where it names none."""
    match = _STATUS.search(text)
    return int(match[1]) if match else None


def _sentence(text: str | None) -> str:
    said = (text or "").strip()
    return said if len(said) <= _LONGEST_SENTENCE and "\n" not in said and _SENTENCE.search(said) else ""


def _text(found: Any) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, dict):
        return _text(found.get("message") or found.get("text") or found.get("detail"))
    return "\n".join(filter(None, (_text(part) for part in listed(found))))


def _reward(exchange: Seen) -> float:
    body = exchange.response_json
    reward = body.get("reward") if isinstance(body, dict) else None
    return float(reward) if isinstance(reward, int | float) else 0.0
