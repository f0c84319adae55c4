"""Makes diagnosis material of what people have: lists of recorded exchanges, and case files.

Recordings name boundaries loosely (`judge_model->provider`, `resources->judge`), so the call is told from the
callee first and from the path second.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from gymtap.proxy.diagnose.evidence import Material, Seen, SeenFile, read_json
from gymtap.schemas import Call, TransportErrorKind

_ROLLOUT_PREFIX = re.compile(r"^/ng-rollout/[^/]+")
_PATHS = {
    "run": Call.RUN,
    "seed_session": Call.SEED_SESSION,
    "verify": Call.VERIFY,
    "aggregate_metrics": Call.AGGREGATE,
    "close_session": Call.CLOSE_SESSION,
    "agent_sessions": Call.AGENT_SESSION,
    "global_config_dict_yaml": Call.HEAD,
    "server_instances": Call.HEAD,
    "models": Call.HEALTH,
    "health": Call.HEALTH,
    "": Call.HEALTH,
}
_MODEL_PATHS = ("/v1/responses", "/v1/chat/completions", "/v1/completions", "/v1/messages", "/chat/completions")
_LOG_NAME = re.compile(r"\.(?:log|out|err|stdout|stderr|txt)(?:\.\d+)?$|(?:^|/)slurm-\d+", re.IGNORECASE)
_OPEN_FOR = re.compile(r"(?:open|no (?:response|answer) (?:after|for))\D{0,12}(\d+(?:\.\d+)?)\s*(ms|s)\b")
_ERRORS: tuple[tuple[str, TransportErrorKind], ...] = (
    (r"ssl(?!:\S)|\btls|certificate|handshake", TransportErrorKind.TLS),  # aiohttp says ssl:default of any connection
    (
        r"name or service|gaierror|nodename|getaddrinfo|dns|no route|unreachable|name resolution",
        TransportErrorKind.UNREACHABLE,
    ),
    (r"refused|connect call failed|connectorerror|cannot connect", TransportErrorKind.REFUSED),
    (r"payload|incomplete|mid-?body|not enough data|premature", TransportErrorKind.CLOSED),
    (r"reset|broken pipe", TransportErrorKind.RESET),
    (r"disconnect|closed|eof|aborted|oserror|clienterror", TransportErrorKind.CLOSED),
    (r"cancel|client gone", TransportErrorKind.CLIENT_GONE),
    (r"bad status line|malformed|invalid http|parse", TransportErrorKind.MALFORMED),
)


def call_of(caller: str, callee: str, path: str) -> Call:
    """What a request asks for, told from the two ends and the path."""
    path = _ROLLOUT_PREFIX.sub("", path.partition("?")[0])
    last = path.rstrip("/").rsplit("/", 1)[-1]
    if "/agent_sessions" in path:
        return Call.AGENT_SESSION
    if last in _PATHS:
        return _PATHS[last]
    if "provider" in callee or caller.endswith("model"):
        return Call.PROVIDER
    if "judge" in callee:
        return Call.JUDGE
    if "model" in callee:
        return Call.MODEL
    if path.endswith(_MODEL_PATHS):
        return Call.RESPONSES if caller == callee else Call.MODEL
    return Call.TOOL if callee == "resources" else Call.OTHER


def from_case(case: Mapping[str, Any]) -> Material:
    """A case file's inputs: `exchanges`, `row`, `rows`, `log`, `files`, `collector_result`; nothing else is read."""
    row = case.get("row")
    rows = [*([row] if row is not None else []), *(case.get("rows") or [])]
    results = case.get("collector_result") or []
    files = tuple(_file(name, item) for name, item in (case.get("files") or {}).items())
    return Material(
        exchanges=from_exchanges(case.get("exchanges") or ()),
        rows=tuple(_line(item) for item in rows),
        log=(
            *_log_lines(case.get("log")),
            *(line for file in files if _LOG_NAME.search(file.name) for line in file.lines),
        ),
        files=files,
        results=(*_results(results if isinstance(results, list) else [results]), *_ended_rows(files)),
    )


def from_exchanges(recorded: Iterable[Mapping[str, Any]]) -> tuple[Seen, ...]:
    """Exchanges of a list whose items have `boundary`, `request` and `response` (or `transport_error`)."""
    seen = _in_time([_exchange(number, item) for number, item in enumerate(recorded)])
    return tuple(_on_judge_branch(seen))


def _in_time(seen: list[Seen]) -> list[Seen]:
    """In the order in which they began, where all of them say when; a recorder may write them as they end."""
    begun = [exchange.started_ms for exchange in seen]
    return seen if None in begun else sorted(seen, key=lambda exchange: exchange.started_ms or 0.0)


def _on_judge_branch(seen: list[Seen]) -> list[Seen]:
    """Marks what serves a judge: a judge by name, or a model called by resources or from within a verify."""
    for exchange in seen:
        ends = f"{exchange.boundary} {exchange.server} {exchange.target}"
        called_by_resources = exchange.caller == "resources" and exchange.call in {Call.MODEL, Call.PROVIDER}
        exchange.judge = "judge" in ends or called_by_resources or exchange.call is Call.JUDGE
    return seen


def _exchange(number: int, item: Mapping[str, Any]) -> Seen:
    request, response = item.get("request") or {}, item.get("response")
    url = str(request.get("url") or request.get("path") or request.get("target") or "/")
    parts = urlsplit(url)
    caller, _, callee = str(item.get("boundary") or _boundary(parts.path, parts.hostname or "")).partition("->")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    error, text, timeout = _transport(item.get("transport_error") or item.get("error"))
    note = f"{item.get('note', '')}"
    return Seen(
        id=str(item.get("id") or f"a{number + 1}"),
        caller=caller.strip(),
        callee=callee.strip() or "?",
        call=call_of(caller.strip(), callee.strip(), parts.path),
        method=str(request.get("method", "POST")),
        target=target or "/",
        server=parts.netloc,
        status=response.get("status") if response else None,
        request=_body(request),
        response=_body(response) if response else None,
        request_headers=_headers(request.get("headers")),
        response_headers=_headers((response or {}).get("headers")),
        error=error,
        error_text=text,
        timeout=timeout,
        is_open=response is None and error is None and not timeout,
        started_ms=item.get("t_ms"),
        duration_ms=item.get("duration_ms"),
        open_ms=_open_ms(note),
        parent=item.get("parent"),
    )


_LOCAL = ("127.", "localhost", "0.0.0.0", "::1")  # noqa: S104 - compared with, not bound


def _boundary(path: str, host: str) -> str:
    """The boundary of an exchange whose recording names none, from its path and whether its host is this one."""
    last = _ROLLOUT_PREFIX.sub("", path).rstrip("/").rsplit("/", 1)[-1]
    if last in {"seed_session", "verify", "close_session"}:
        return "agent->resources"
    if last == "run":
        return "environment->agent"
    if last in {"completions", "messages"} or (last == "responses" and host and not host.startswith(_LOCAL)):
        return "model->provider"
    return "agent->model" if last == "responses" else "?->?"


def _body(message: Mapping[str, Any]) -> str | None:
    for key in ("body_text", "body", "text"):
        if key in message and message[key] is not None:
            return _line(message[key])
    return None


def _line(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    return item if isinstance(item, str) else orjson.dumps(item).decode()


def _headers(found: Any) -> dict[str, str]:
    pairs = found.items() if isinstance(found, Mapping) else (found or ())
    return {str(name).lower(): str(item) for name, item in pairs}


def _open_ms(note: str) -> float | None:
    match = _OPEN_FOR.search(note)
    return None if match is None else float(match[1]) * (1_000 if match[2] == "s" else 1)


def _transport(found: Any) -> tuple[TransportErrorKind | None, str, bool]:
    """The kind of a transport error, its words, and whether it was the caller's own time limit."""
    if not found:
        return None, "", False
    fields = found if isinstance(found, Mapping) else {"message": found}
    text = ": ".join(str(fields[key]) for key in ("type", "kind", "message") if fields.get(key))
    kind, timeout = transport_kind(text)
    return kind, text, timeout


def transport_kind(text: str) -> tuple[TransportErrorKind | None, bool]:
    """The kind of a transport error from its words, and whether it was a time limit (then the kind is None)."""
    words = text.lower()
    if "timeout" in words or "timed out" in words or "deadline" in words:
        return None, True
    for pattern, kind in _ERRORS:
        if re.search(pattern, words):
            return TransportErrorKind(kind), False
    return TransportErrorKind.CLOSED, False


def _log_lines(log: Any) -> tuple[str, ...]:
    if log is None:
        return ()
    if isinstance(log, Mapping):
        return tuple(line for item in log.values() for line in _log_lines(item))
    if isinstance(log, list):
        return tuple(line for item in log for line in _log_lines(item))
    return tuple(str(log).splitlines())


def _file(name: str, item: Any) -> SeenFile:
    if not isinstance(item, Mapping):
        text = _line(item)
        return SeenFile(name, tuple(text.splitlines()), ended_whole=not text or text.endswith("\n"))
    lines = item.get("lines")
    text = item.get("text", item.get("content"))
    found = tuple(_line(line) for line in lines) if lines is not None else tuple(str(text or "").splitlines())
    return SeenFile(name, found, item.get("mtime"))


def _ended_rows(files: tuple[SeenFile, ...]) -> Iterator[dict[str, Any]]:
    """The rows of a run's files that tell how they ended: a sidecar's failures, and results with a response."""
    for file in files:
        for row in map(read_json, file.lines if file.name.endswith((".jsonl", ".ndjson")) else ()):
            if isinstance(row, dict) and ("_ng_failure_class" in row or {"reward", "response"} <= row.keys()):
                yield row


def _results(found: list[Any]) -> Iterable[dict[str, Any]]:
    for item in found:
        if not isinstance(item, Mapping):
            continue
        inner = item.get("failure_row", item.get("ok", item))
        yield dict(inner) if isinstance(inner, Mapping) else dict(item)
