"""Lists of exchanges as reports of failures hold them: `boundary`, `request`, and `response` or `transport_error`.

Times are milliseconds from a common start, or missing. Where one is missing, the order of the list and the ends of
the boundaries tell which exchange lies within which (`agent->model` within the last open one that `agent` answers),
and times are made so that they nest. No date is known: each list is put after what was imported before it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Foreign, LeftOut, Recording
from gymtap.proxy.imports.fields import (
    MS_NS,
    Fields,
    Milliseconds,
    Status,
    Text,
    body_bytes,
    checked,
    elements,
    json_lines,
    not_whole,
    raw_headers,
    refuse,
)
from gymtap.proxy.imports.json_stream import Scanner, StreamError
from gymtap.proxy.imports.transport import transport_error
from gymtap.schemas import Server, ServerKind

_OPEN_FOR = re.compile(r"\b(?:open|after|for)\s+(\d+(?:\.\d+)?)\s*(ms|s)\b")
_ENDS_A_TURN = ("/verify", "/seed_session", "/close_session", "/aggregate_metrics")
_OUTER = frozenset({"collector", "environment", "client", "?", ""})
_UNITS_NS = {"ms": MS_NS, "s": 1000 * MS_NS}


class _Request(Fields):
    method: Text = "POST"
    url: Text | None = None
    path: Text | None = None
    target: Text | None = None
    headers: dict[str, Any] | list[tuple[str, Any]] | None = None
    body_text: Any = None
    body: Any = None

    @property
    def address(self) -> str:
        """The URL, or what there is of it."""
        return self.url or self.target or self.path or "/"

    def outline(self) -> "_Request":
        """Without headers and body."""
        return self.model_copy(update={"headers": None, "body_text": None, "body": None})


class _Response(Fields):
    status: Status
    reason: Text = ""
    headers: dict[str, Any] | list[tuple[str, Any]] | None = None
    body_text: Any = None
    body: Any = None


class _Item(Fields):
    boundary: Text
    request: _Request
    response: _Response | None = None
    transport_error: Any = None
    error: Any = None
    note: Text = ""
    t_ms: Milliseconds | None = None
    duration_ms: Milliseconds | None = None
    id: int | str | None = None
    parent: int | str | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """Who called, and who answered."""
        caller, _, callee = self.boundary.partition("->")
        return caller.strip(), callee.strip() or caller.strip()

    def outline(self) -> "_Item":
        """Without headers and bodies."""
        return self.model_copy(update={"request": self.request.outline(), "response": None})


def read_lines(file: Path) -> Iterator[Recording]:
    """JSON lines of exchanges: all of them one recording."""
    yield Recording(file, _recorded(lambda: json_lines(file, _item)), dated=False)


def read_reports(file: Path) -> Iterator[Recording]:
    """JSON lines of reports: the `exchanges` of each are one recording."""
    for found in json_lines(file, partial(_report, file)):
        yield found if isinstance(found, Recording) else Recording(file, [found])


def read_document(file: Path) -> Iterator[Recording]:
    """One JSON document: a report, a list of reports, or a list of exchanges."""
    with file.open("rb") as content:
        scanner = Scanner(content)
        listed = scanner.peek() == b"["
        if not listed or _begins_with_an_item(file):
            yield Recording(file, _recorded(partial(_in_document, file)), dated=False)
            return
        for found in elements(scanner, file, "", partial(_report, file)):
            yield found if isinstance(found, Recording) else Recording(file, [found])


def _begins_with_an_item(file: Path) -> bool:
    with file.open("rb") as content:
        first = next(elements(Scanner(content), file, "", lambda value, _: value), None)
    return isinstance(first, dict) and "boundary" in first


def _in_document(file: Path) -> Iterator[_Item | LeftOut]:
    with file.open("rb") as content:
        scanner = Scanner(content)
        path = ""
        try:
            if scanner.peek() == b"{":
                path = "exchanges"
                scanner.find(path)
            if scanner.peek() != b"n":  # null
                yield from elements(scanner, file, path, _item)
        except StreamError as error:
            yield LeftOut(not_whole(file, error), count=None)


def _item(value: Any, place: str) -> _Item:
    return checked(_Item, value, place)


def _report(file: Path, value: Any, place: str) -> Recording:
    if not isinstance(value, dict) or "exchanges" not in value:
        raise refuse(place, "not a list of exchanges: no `exchanges` in it", "docs/exports.md says what can be read")
    exchanges = value["exchanges"] or []
    if not isinstance(exchanges, list):
        raise refuse(place, "`exchanges` is not a list")
    items = [_or_left_out(item, f"{place}: exchanges[{number}]") for number, item in enumerate(exchanges)]
    return Recording(file, _recorded(lambda: iter(items)), dated=False)


def _or_left_out(value: Any, place: str) -> _Item | LeftOut:
    try:
        return _item(value, place)
    except UsageError as error:
        return LeftOut(str(error), error.hint)


def _recorded(read: Callable[[], Iterator[_Item | LeftOut]]) -> Iterator[Foreign | LeftOut]:
    """`read` is called twice: once for what tells times and servers, then for all, so that no body is held."""
    outlines = [item.outline() for item in read() if isinstance(item, _Item)]
    spans = _spans(outlines)
    known = zip(_names(outlines), spans, _links(outlines, spans), strict=True)
    for item in read():
        yield item if isinstance(item, LeftOut) else _one(item, *next(known))


def _one(item: _Item, server: Server, span: "_Span", link: "_Link") -> Foreign:
    parts = urlsplit(item.request.address)
    answer = item.response
    error = transport_error(item.transport_error or item.error)
    open_ns = _open_ns(item.note) if answer is None and error is None else None
    return Foreign(
        server=server,
        method=item.request.method,
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        started_ns=span.begin_ns,
        request_headers=raw_headers(item.request.headers),
        request_body=_body(item.request),
        status=answer.status if answer else None,
        reason=answer.reason if answer else "",
        response_headers=raw_headers(answer.headers) if answer else (),
        response_body=_body(answer) if answer else b"",
        ended_ns=span.begin_ns + open_ns if open_ns is not None else span.end_ns,
        error=error,
        key=link.key,
        parent=link.parent,
    )


def _body(message: _Request | _Response) -> bytes:
    return body_bytes(message.body_text if message.body_text is not None else message.body)


def _open_ns(note: str) -> int | None:
    found = _OPEN_FOR.search(note)
    return None if found is None else round(float(found[1]) * _UNITS_NS[found[2]])


# --- servers ---------------------------------------------------------------------------------------------------


def _names(items: list[_Item]) -> list[Server]:
    """A server for each: by what it is, with its port where one kind has several, and `judge` where a judge calls."""
    roles = [_role(item) for item in items]
    origins = [urlsplit(item.request.address).netloc for item in items]
    several = {role for role in roles if len({o for r, o in zip(roles, origins, strict=True) if r == role}) > 1}
    return [
        Server(
            name=f"{role}-{origin.rpartition(':')[2]}" if role in several and origin else role,
            kind=_kind(item.ends[1]),
            listen="",
            upstream=f"http://{origin}" if origin else "",
        )
        for item, role, origin in zip(items, roles, origins, strict=True)
    ]


def _role(item: _Item) -> str:
    caller, callee = item.ends
    return f"judge_{callee}" if "judge" in caller and "judge" not in callee else callee


def _kind(callee: str) -> ServerKind:
    if callee in ServerKind:
        return ServerKind(callee)
    return next((kind for kind in (ServerKind.PROVIDER, ServerKind.MODEL) if kind in callee), ServerKind.UNKNOWN)


# --- times -----------------------------------------------------------------------------------------------------


@dataclass
class _Span:
    begin_ns: int
    end_ns: int | None = None

    def holds(self, at_ns: int) -> bool:
        """Whether it was open then."""
        return self.begin_ns <= at_ns and (self.end_ns is None or at_ns <= self.end_ns)


def _spans(items: list[_Item]) -> list[_Span]:
    if all(item.t_ms is not None for item in items):
        return [_timed(item) for item in items]
    return _nested(items)


def _timed(item: _Item) -> _Span:
    begin_ns = round((item.t_ms or 0.0) * MS_NS)
    return _Span(begin_ns, None if item.duration_ms is None else begin_ns + round(item.duration_ms * MS_NS))


def _nested(items: list[_Item]) -> list[_Span]:
    clock = 0
    stack: list[tuple[_Item, _Span]] = []
    spans: list[_Span] = []
    for item in items:
        for _, ended in _left(stack, item):
            ended.end_ns = clock = clock + MS_NS
        clock += MS_NS
        span = _Span(clock)
        stack.append((item, span))
        spans.append(span)
        if item.duration_ms is not None:
            clock += round(item.duration_ms * MS_NS)
    for _, ended in reversed(stack):
        ended.end_ns = clock = clock + MS_NS
    return spans


def _left(stack: list[tuple[_Item, _Span]], item: _Item) -> Iterator[tuple[_Item, _Span]]:
    """What has ended before `item` began: all that lies above the exchange which its caller answers."""
    caller = item.ends[0]
    known = any(above.ends[1] == caller for above, _ in stack)
    while stack and not (_causes(stack[-1][0], item) if known else _is_around(stack, caller)):
        yield stack.pop()


def _is_around(stack: list[tuple[_Item, _Span]], caller: str) -> bool:
    """Whether all that is open is the /run within which an inner call lies, although what called it is not there."""
    return len(stack) == 1 and caller not in _OUTER and _path(stack[0][0]).endswith("/run")


def _causes(above: _Item, item: _Item) -> bool:
    """Whether what `above` answers may have made the call: not a turn that the call comes after."""
    own_turn = above.ends[0] == above.ends[1]
    return above.ends[1] == item.ends[0] and not (own_turn and _path(item).endswith(_ENDS_A_TURN))


def _path(item: _Item) -> str:
    return urlsplit(item.request.address).path


# --- what caused which -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Link:
    """An exchange's name within its recording, and that of what caused it."""

    key: str
    parent: str | None


def _links(items: list[_Item], spans: list[_Span]) -> list[_Link]:
    """As the recording says, or else by the boundaries: a call lies within the one that its caller is answering."""
    keys = [f"#{number}" if item.id is None else str(item.id) for number, item in enumerate(items)]
    found = [None if item.parent is None else str(item.parent) for item in items]
    around: list[int] = []
    for number in sorted(range(len(items)), key=lambda one: (spans[one].begin_ns, one)):
        around = [other for other in around if spans[other].holds(spans[number].begin_ns)]
        above = _above(spans, [other for other in around if _causes(items[other], items[number])])
        if found[number] is None and above is not None:
            found[number] = keys[above]
        around.append(number)
    return [_Link(key, parent) for key, parent in zip(keys, found, strict=True)]


def _above(spans: list[_Span], candidates: list[int]) -> int | None:
    """The innermost of those; None where they do not lie within each other, so that it may be any."""
    if not candidates:
        return None
    inner = candidates[-1]
    end_ns = spans[inner].end_ns
    nested = all(spans[other].holds(spans[inner].begin_ns if end_ns is None else end_ns) for other in candidates)
    return inner if nested else None
