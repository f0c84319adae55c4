"""What an endpoint's answer to a preflight request means.

vLLM answers 400 to a schema, to a missing flag and to a prompt that is too long alike, and 500 to a schema as well as
to a good one when its engine keeps another backend; so words decide, and where they do not, what else was answered.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

MAX_MESSAGE_CHARS = 300


class Outcome(StrEnum):
    """`accepted` includes answers that end after their one token: that is what was asked for."""

    ACCEPTED = "accepted"
    INCOMPLETE = "incomplete"  # a completion without a message: nothing was generated, though nothing was refused
    NOT_CHAT = "no_chat_completion"  # a 200 that is something else: a login page, a stream, nothing
    SCHEMA = "schema_rejected"
    REQUEST = "request_rejected"  # a 4xx about something else
    CONTEXT = "context_exceeded"
    SERVER = "server_error"  # a 5xx that no word attributes to a schema
    STATE = "server_state"  # refused as everything like it is, for what the server is
    PARSER = "no_tool_parser"
    AUTH = "unauthorized"
    MODEL = "unknown_model"
    PATH = "unknown_path"
    BUSY = "busy"  # 429, 502, 503, 504
    TRANSPORT = "transport"
    NOT_CONVERTED = "not_converted"


FATAL = frozenset({Outcome.AUTH, Outcome.MODEL, Outcome.PATH, Outcome.TRANSPORT, Outcome.NOT_CHAT})
"""Where the first answer is one of these, every other will be."""

_SCHEMA = re.compile(
    r"invalid grammar|invalid structural tag|grammar error|failed to (?:transform|convert|compile)|json ?schema"
    r"|not supported by xgrammar|structured output|guided|nested too deeply|\$defs|unsupported schema"
    r"|function parameters",
    re.IGNORECASE,
)
_VALIDATED = re.compile(r"body\.(?:\w+\.)*(?:tools|response_format|function)\b|loc.*tools")
_PARSER = re.compile(r"--tool-call-parser|--enable-auto-tool-choice")
_CONTEXT = re.compile(r"context length|max_model_len|max_tokens", re.IGNORECASE)
_MODEL = re.compile(r"model.{0,200}(?:does not exist|not found|not exist)|no such model", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """One answer. `status` None is a transport error; `message` is the server's own words, on one line, bounded."""

    outcome: Outcome
    status: int | None = None
    message: str = ""
    finish_reason: str | None = None
    elapsed_ms: float | None = None


def read_answer(status: int, body: bytes, elapsed_ms: float | None = None) -> Answer:
    """What an HTTP answer means."""
    value = _parsed(body)
    message = _message(value, body)
    if 200 <= status < 300 and not (isinstance(value, dict) and value.get("error") and not value.get("choices")):
        finish = _finish(value)
        is_chat = isinstance(value, dict) and isinstance(value.get("choices"), list)
        outcome = Outcome.ACCEPTED if finish else Outcome.INCOMPLETE if is_chat else Outcome.NOT_CHAT
        return Answer(outcome, status, "" if finish else message, finish, elapsed_ms)
    return Answer(_refusal(status, message, value), status, message, None, elapsed_ms)


def _refusal(status: int, message: str, value: Any) -> Outcome:
    code = _code(value)
    status = code if status < 300 and code else status
    if status in (401, 403):
        return Outcome.AUTH
    if status in (404, 400) and _MODEL.search(message):
        return Outcome.MODEL
    if status in (404, 405) or 300 <= status < 400:
        return Outcome.PATH
    if status in (429, 502, 503, 504):
        return Outcome.BUSY
    if _PARSER.search(message):
        return Outcome.PARSER
    if status >= 500:
        return Outcome.SCHEMA if _SCHEMA.search(message) else Outcome.SERVER
    if _SCHEMA.search(message) or _VALIDATED.search(message):
        return Outcome.SCHEMA
    return Outcome.CONTEXT if _CONTEXT.search(message) else Outcome.REQUEST


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _message(value: Any, body: bytes) -> str:
    error = value.get("error", value.get("detail", value.get("message"))) if isinstance(value, dict) else value
    text = error.get("message") if isinstance(error, dict) else error
    if not isinstance(text, str):
        text = orjson.dumps(error).decode() if error is not None else body.decode(errors="replace")
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"


def _code(value: Any) -> int | None:
    error = value.get("error") if isinstance(value, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else None


def _finish(value: Any) -> str | None:
    """The reason why the generation ended; None where there is no choice with a message."""
    choices = value.get("choices") if isinstance(value, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not isinstance(first.get("message"), dict):
        return None
    return str(first.get("finish_reason") or "unknown")
