"""Peels a failed response: from the body that a caller saw, through every wrapper, to the innermost body.

Gym's servers put an inner server's body into their own as a JSON string that holds a Python bytes repr, so
quotes double at each hop. Because they double, nested bodies grow geometrically and peeling all of them is
linear in the size of the input. What is inside a provider's message string (LiteLLM, the OpenAI client) is
peeled too. Input is never trusted: nothing raises, nothing is evaluated, every search is bounded.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gymtap.proxy.core.literals import NotALiteral, bytes_repr, json_string, value
from gymtap.schemas import Leaf, LeafKind, Unwrapped, Wrapper

LEAF_MAX_CHARS = 8_000
"""How much of a leaf is kept for display."""
MAX_WRAPPERS = 64
"""A chain longer than this is not peeled further; Gym's deepest is about eight."""

_MARKER = "Hit an exception in "
_CALLING = " calling an inner server: "
_CUT = re.compile(r"(?:\u2026|\.\.\.[ ]?[\[(<]?truncated[^\n]{0,40})\s*\Z")
_LOG_PREFIX = re.compile(r"\s*(?:\([\w.-]+\)\s+)?Response content:\s*")
_EMBEDDED = re.compile(r"(?<!\w)b[\"'](?=[\\\"{<\w])|\{\s*[\"']|Hit an exception in ")
_EMBEDDED_TRIES = 6
_VALUE_OF_KEY = re.compile(r"['\"]\s*:\s*\Z")
"""What stands behind a key is a part of a quoted value (a validation error's `ctx`), not a body of its own."""
_HTML = re.compile(r"\s*(?:<!doctype\s+html|<html|<head|<body|<title|<center|<h1|<\?xml)", re.IGNORECASE)
_HTML_TITLE = re.compile(r"<(title|h1|Message|p)[^>]{0,200}>\s*([^<]{1,300})", re.IGNORECASE)
_SSE = re.compile(r"(?:\A|\n)(?:event|data|id|retry):", re.IGNORECASE)
_SSE_DATA = re.compile(r"^data:[ ]?(.*)$", re.MULTILINE)
_SSE_ERROR = re.compile(r"^event:\s*(?:error|response\.failed)\s*$", re.MULTILINE | re.IGNORECASE)
_REPR = re.compile(r"\s*([A-Za-z_][\w.]{0,120})\(", re.ASCII)
_RAISED = re.compile(
    r"\s*((?:[A-Za-z_]\w*\.)*[A-Z]\w{2,80}(?:Error|Exception|Timeout|Warning|Exit|Interrupt))(?::\s|\Z)"
)
_PYDANTIC = re.compile(r"\s*(\d+ validation errors? for ([\w.\[\], ]{1,200}))\n")
_TRACEBACK = "Traceback (most recent call last):"
_SIDECAR = "_ng_failure_response_body"


@dataclass
class _Peeling:
    """The chain so far. `truncated` once any literal ended before its closing quote."""

    wrappers: list[Wrapper] = field(default_factory=list)
    truncated: bool = False

    def wrap(self, kind: str, server: str | None = None) -> None:
        self.wrappers.append(Wrapper(kind=kind, server=server))

    @property
    def full(self) -> bool:
        return len(self.wrappers) >= MAX_WRAPPERS


def unwrap(body: bytes | str) -> Unwrapped:
    """The chain of wrappers around `body`'s innermost body, and that body. Never raises.

    Takes a response body, a sidecar's `_ng_failure_response_body`, or what follows `Response content:` in a log.
    """
    state = _Peeling()
    text = _peel_gym(_text(body), state)
    leaf = _leaf(text, state)
    return Unwrapped(wrappers=tuple(state.wrappers), leaf=leaf, truncated=state.truncated)


def innermost_bytes(body: bytes | str) -> tuple[bytes, bool]:
    """What the innermost server of Gym's chain was answered, byte for byte, and whether it was cut.

    Only Gym's own wrapping is peeled, not what a provider put inside its message.
    """
    state = _Peeling()
    return _peel_gym(_text(body), state).encode("utf-8", "surrogateescape"), state.truncated


def _text(body: bytes | str) -> str:
    # surrogateescape keeps bytes that are not UTF-8, so that they come back as they were
    return body.decode("utf-8", "surrogateescape") if isinstance(body, bytes) else body


def shown(text: str) -> str:
    """Text that any terminal and any JSON can carry: lone surrogates and escaped bytes replaced, length bounded."""
    return text[:LEAF_MAX_CHARS].encode("utf-8", "replace").decode("utf-8")


# --- Gym's own wrapping -------------------------------------------------------------------------------------


def _peel_gym(text: str, state: _Peeling) -> str:
    text = _peel_log(text, state)
    while not state.full:
        peeled = _peel_once(text, state)
        if peeled is None:
            return text
        text = peeled
    return text


def _peel_log(text: str, state: _Peeling) -> str:
    if cut := _CUT.search(text, max(0, len(text) - 80)):
        text, state.truncated = text[: cut.start()], True
    prefix = _LOG_PREFIX.match(text)
    if prefix:
        state.wrap("log")
        text = text[prefix.end() :]
    literal = bytes_repr(text)
    if literal is None or (literal.closed and text[literal.end :].strip()):
        return text
    if not (literal.closed or prefix or literal.value.startswith((b'"Hit', b"{", b"["))):
        return text
    state.wrap("bytes_repr")
    state.truncated = state.truncated or not literal.closed
    return literal.value.decode("utf-8", "surrogateescape")


def _peel_once(text: str, state: _Peeling) -> str | None:
    """One wrapper off; None when what stands here is not Gym's wrapping."""
    if text.startswith(_MARKER):
        return _peel_marker(text, state)
    literal = json_string(text)
    if literal is None or (literal.closed and text[literal.end :].strip()):
        return None
    inner = literal.value
    if literal.closed:
        return _peel_marker(inner, state) if inner.startswith(_MARKER) else None
    outermost = not state.wrappers
    if not (outermost or state.truncated):
        return None  # the enclosing literal was whole: this quote is the body's own
    state.truncated = True
    if inner.startswith(_MARKER):
        return _peel_marker(inner, state)
    # A lone quote begins Gym's wrapping only where something was peeled already.
    return _cut_marker(state) if _MARKER.startswith(inner) and (inner or not outermost) else None


def _cut_marker(state: _Peeling) -> str:
    state.wrap("gym")
    return ""


def _peel_marker(text: str, state: _Peeling) -> str:
    server, calling, rest = text[len(_MARKER) :].partition(_CALLING)
    if not calling:
        return _cut_marker(state)
    state.wrap("gym", server[:200])
    literal = bytes_repr(rest)
    if literal is None:
        cut = state.truncated and rest in {"", "b"}
        return "" if cut else rest
    state.truncated = state.truncated or not literal.closed
    return literal.value.decode("utf-8", "surrogateescape")


# --- the leaf, and what is wrapped inside its message ----------------------------------------------------------


def _leaf(text: str, state: _Peeling) -> Leaf:
    for read in _READERS:
        leaf = read(text, state)
        if leaf is not None:
            return leaf
    return _plain(text, state)


def _empty(text: str, _: _Peeling) -> Leaf | None:
    return None if text.strip() else Leaf(kind=LeafKind.EMPTY, text=shown(text))


def _html(text: str, _: _Peeling) -> Leaf | None:
    if not _HTML.match(text):
        return None
    title = _HTML_TITLE.search(text[:LEAF_MAX_CHARS])
    message = title[2].strip() if title else ""
    return Leaf(kind=LeafKind.HTML, text=shown(text), message=shown(message))


def _sse(text: str, state: _Peeling) -> Leaf | None:
    if not _SSE.match(text):
        return None
    events = [data for data in _SSE_DATA.findall(text) if data.strip() not in {"", "[DONE]"}]
    failed = [data for data in events if _is_error_event(data)]
    chosen = failed or (events[-1:] if _SSE_ERROR.search(text) else [])
    if not chosen or state.full:
        return None
    state.wrap("sse")
    return _leaf(chosen[0].strip(), state)


def _is_error_event(data: str) -> bool:
    head = data[:400]
    if '"error"' not in head and '"response.failed"' not in head:
        return False
    found = _read_value(data)
    if not isinstance(found, dict):
        return False
    return bool(found.get("error")) or found.get("type") in {"error", "response.failed"}


def _read_value(text: str) -> Any:
    try:
        return value(text).value
    except NotALiteral:
        return None


def _structured(text: str, state: _Peeling) -> Leaf | None:
    """A JSON (or Python) object, list or string that is the whole text."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return None
    try:
        found = value(text)
    except NotALiteral:
        return None
    if found.closed and text[found.end :].strip():
        return None
    state.truncated = state.truncated or not found.closed
    if isinstance(found.value, str):
        return _json_text(found.value, state)
    alone = _only_envelope(found.value)
    if alone is not None and not state.full:
        return _object(alone, text, state)
    return Leaf(kind=LeafKind.JSON, text=shown(text), value=_clean(found.value))


def _only_envelope(found: Any) -> dict[str, Any] | None:
    """An object, or the one error in a list (Google's OpenAI-compatible endpoint); None for anything else."""
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict):
        return found[0] if _error_of(found[0]) else None
    return found if isinstance(found, dict) else None


def _json_text(text: str, state: _Peeling) -> Leaf:
    if state.full:
        return Leaf(kind=LeafKind.TEXT, text=shown(text), message=shown(_first_line(text)))
    state.wrap("json_string")
    return _leaf(text, state)


def _exception(text: str, state: _Peeling) -> Leaf | None:
    """An exception: its repr, `Name: text`, a traceback, or pydantic's report."""
    pydantic = _PYDANTIC.match(text)
    if pydantic:
        return _failed_validation(text, pydantic[2])
    if text.lstrip().startswith(_TRACEBACK):
        return _raised(_last_raised(text), text, state)
    name = _REPR.match(text)
    if name and text.rstrip().endswith(")") and _looks_raised(name[1]):
        return _raised_repr(text, name, state)
    raised = _RAISED.match(text)
    return _raised(text, text, state) if raised else None


def _failed_validation(text: str, model: str) -> Leaf:
    lines = text.splitlines()[1:3]
    message = f"{model}: " + ": ".join(line.strip() for line in lines)
    return Leaf(kind=LeafKind.EXCEPTION, text=shown(text), message=shown(message[:500]), code="ValidationError")


def _looks_raised(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return last[:1].isupper() and any(char.islower() for char in last)


def _raised_repr(text: str, name: re.Match[str], state: _Peeling) -> Leaf:
    try:
        argument = value(text, name.end())
    except NotALiteral:
        argument = None
    message = argument.value if argument is not None and isinstance(argument.value, str) else text[name.end() :]
    if (inner := _inside(message, state, "exception")) is not None:
        return inner
    if _PYDANTIC.match(message):
        return _failed_validation(message, (_PYDANTIC.match(message) or name)[2])
    return Leaf(kind=LeafKind.EXCEPTION, text=shown(text), message=shown(_first_line(text)), code=shown(name[1]))


def _last_raised(text: str) -> str:
    at = 0
    for match in re.finditer(r"^[A-Za-z_][\w.]*(?::|\(|$)", text, re.MULTILINE):
        at = match.start()
    return text[at:]


def _raised(raised: str, whole: str, state: _Peeling) -> Leaf:
    if (inner := _inside(raised, state, "exception")) is not None:
        return inner
    name = re.match(r"\s*([\w.]+)", raised)
    code = name[1] if name else None
    return Leaf(kind=LeafKind.EXCEPTION, text=shown(whole), message=shown(_first_line(raised)), code=code)


_READERS: tuple[Callable[[str, _Peeling], Leaf | None], ...] = (_empty, _html, _sse, _structured, _exception)


def _plain(text: str, state: _Peeling) -> Leaf:
    if (inner := _inside(text, state, "text")) is not None:
        return inner
    escaped = sum(1 for char in text[:200] if "\udc80" <= char <= "\udcff" or char == "\0")
    if escaped > len(text[:200]) // 10 or (escaped and len(text) < 10):
        return Leaf(kind=LeafKind.UNDECODABLE, text=shown(text))
    if text.lstrip()[:1] in {"{", "["} and _open_ended(text):
        state.truncated = True
    return Leaf(kind=LeafKind.TEXT, text=shown(text), message=shown(_first_line(text)))


def _open_ended(text: str) -> bool:
    """Whether it begins like JSON and holds fewer closing brackets than opening ones."""
    return text.count("{") > text.count("}") or text.count("[") > text.count("]")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text[:2_000].splitlines() if line.strip()), "")[:500]


# --- envelopes ---------------------------------------------------------------------------------------------------


def _object(found: dict[str, Any], text: str, state: _Peeling) -> Leaf:
    if isinstance(found.get(_SIDECAR), str):
        state.wrap("sidecar")
        return _leaf(_peel_gym(found[_SIDECAR], state), state)
    for kind, read in _ENVELOPES:
        message = read(found)
        if message is None:
            continue
        return _envelope(kind, message, found, text, state)
    return Leaf(kind=LeafKind.JSON, text=shown(text), message=shown(_bare_message(found)[:1_000]), value=_clean(found))


def _bare_message(found: dict[str, Any]) -> str:
    """What an object says that is no known envelope: its message alone (AWS), or an MCP tool's error text."""
    message = found.get("message", found.get("Message"))
    if isinstance(message, str) and not {"choices", "output", "role"} & found.keys():
        return message
    parts = found.get("content") if found.get("isError") is True else None
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return next((text for text in texts if isinstance(text, str)), "")


def _envelope(kind: LeafKind, message: Any, found: dict[str, Any], text: str, state: _Peeling) -> Leaf:
    said = _said(message)
    if (inner := _inside(said, state, str(kind))) is not None:
        return inner
    return Leaf(kind=kind, text=shown(text), message=shown(said[:1_000]), value=_clean(found), code=_code(found))


def _error_of(found: dict[str, Any]) -> Any:
    """What OpenAI and its likes (`error`), older vLLM (`object: error`) or a gateway (`message`, `fault`) say."""
    error = found.get("error") or (found["fault"] if isinstance(found.get("fault"), dict) else None)
    if error:
        return error
    if found.get("type") == "response.failed" or found.get("status") == "failed":
        response = found.get("response")
        return response.get("error") if isinstance(response, dict) else None
    if found.get("object") == "error":
        return found.get("message", "")
    return _gateway_message(found)


def _gateway_message(found: dict[str, Any]) -> Any:
    coded = {"code", "status", "statusCode", "status_code", "error_code", "type", "errorCode"} & found.keys()
    message = found.get("message", found.get("errorMessage"))
    if isinstance(message, str) and coded and not {"choices", "output", "role"} & found.keys():
        return message
    problem = found.get("title")  # RFC 9457, as NVIDIA NIM answers
    return found.get("detail", problem) if isinstance(problem, str) and "status" in found else None


def _failure_of(found: dict[str, Any]) -> Any:
    """A typed environment's 200 (`failure`, Gym 0.7), or a row that carries `failure_reason`."""
    failure = found.get("failure")
    if isinstance(failure, dict | str) and failure:
        return failure
    reason = found.get("failure_reason")
    return reason if isinstance(reason, str) and reason else None


_ENVELOPES: tuple[tuple[LeafKind, Callable[[dict[str, Any]], Any]], ...] = (
    (LeafKind.PROVIDER_ERROR, _error_of),
    (LeafKind.DETAIL, lambda found: found.get("detail")),
    (LeafKind.FAILURE, _failure_of),
)


def _said(message: Any) -> str:
    """One line for what an envelope says: its message, or its validation errors, first one first."""
    if isinstance(message, str):
        return message
    if isinstance(message, list):
        return "; ".join(_validation_error(item) for item in message[:20])
    if isinstance(message, dict):
        metadata = message.get("metadata")
        raw = metadata.get("raw") if isinstance(metadata, dict) else None
        if isinstance(raw, str) and raw:  # OpenRouter: what its upstream said; its own message is always the same
            return raw
        return _said(next((message[key] for key in _MESSAGE_KEYS if message.get(key)), "")) or _terse(message)
    return str(message)[:1_000]


_MESSAGE_KEYS = ("message", "faultstring", "failure_reason", "msg", "detail", "error", "reason", "code", "type")


def _validation_error(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)[:300]
    place = item.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
    message = str(item.get("msg", item.get("message", _terse(item))))
    return f"{where}: {message}" if where else message


def _terse(found: dict[str, Any]) -> str:
    return ", ".join(f"{key}={str(item)[:80]}" for key, item in list(found.items())[:6])


def _code(found: dict[str, Any]) -> str | None:
    """The envelope's own code, else its type; None where it has neither."""
    places = [found.get("error"), found.get("detail"), found.get("failure"), found]
    for place in places:
        if isinstance(place, list) and place:
            place = place[0]  # noqa: PLW2901 - the first validation error speaks for the list
        if not isinstance(place, dict):
            continue
        for key in ("code", "failure_kind", "type", "status"):
            if isinstance(place.get(key), str | int) and place.get(key) != "":
                return shown(str(place[key]))[:100]
    return None


def _clean(found: Any) -> Any:
    """Without lone surrogates, which neither JSON nor a terminal can carry."""
    if isinstance(found, str):
        return found.encode("utf-8", "replace").decode("utf-8")
    if isinstance(found, list):
        return [_clean(item) for item in found]
    if isinstance(found, dict):
        return {_clean(key): _clean(item) for key, item in found.items()}
    return found


# --- a body inside a message ------------------------------------------------------------------------------------------


def _inside(message: str, state: _Peeling, kind: str) -> Leaf | None:
    """The error body that stands inside a message string; None when there is none. `kind` is the wrapper it adds."""
    if state.full:
        return None
    for tried, match in enumerate(_EMBEDDED.finditer(message)):
        if tried == _EMBEDDED_TRIES:
            return None
        within = _VALUE_OF_KEY.search(message, max(0, match.start() - 8), match.start())
        found = None if within else _embedded(message, match.start())
        if found is None:
            continue
        text, truncated = found
        state.wrap(kind)
        state.truncated = state.truncated or truncated
        return _leaf(_peel_gym(text, state), state)
    return None


def _embedded(message: str, start: int) -> tuple[str, bool] | None:
    """An embedded body and whether it was cut: Gym's wrapping, a bytes repr, or an object that is an error envelope."""
    if message.startswith(_MARKER, start):
        quoted = start > 0 and message[start - 1] == '"'
        return message[start - quoted :], False
    if (raw := bytes_repr(message, start)) is not None:
        return raw.value.decode("utf-8", "surrogateescape"), not raw.closed
    try:
        found = value(message, start)
    except NotALiteral:
        return None
    if not isinstance(found.value, dict) or not any(read(found.value) for _, read in _ENVELOPES):
        return None
    return message[start : found.end], not found.closed
