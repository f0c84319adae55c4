"""The server: loopback only, a token for everything but the document, read only.

Captures are read on threads, so a large one delays nobody. Live events are looked for as `gymtap tail` does. No header
lets another origin's page read an answer, and a request for another host's name, which is how a page reaches loopback
by a name of its own (DNS rebinding), is refused.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
from aiohttp import web

from gymtap.proxy.core.errors import GymtapError, ListenError, UsageError
from gymtap.proxy.serve import reading
from gymtap.proxy.serve.document import document, reference
from gymtap.proxy.serve.reading import Shelf
from gymtap.proxy.serve.route import Handler, Parameter, Route, Schema
from gymtap.proxy.store import Capture
from gymtap.schemas import Call, CaptureInfo, Diagnosis, Exchange, Finding, Row, RowState, ServerKind

_CAPTURE = "/v1/captures/{capture}"
_BEGUN = web.RequestKey("begun", bool)
_NONE: Mapping[str, str] = MappingProxyType({})
_PIECE_EXCHANGES = 200
_LOOK_S = 0.2
_HEARTBEAT_LOOKS = 75
_TEXT: Schema = {"type": "string"}
_BOOLEAN: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_PAGE = (
    Parameter(
        "limit",
        {"type": "integer", "minimum": 1},
        f"At most so many, {reading.LIMIT} by default, {reading.LIMIT_MAX} at most.",
    ),
    Parameter("offset", _NUMBER, "After so many."),
)
_FILTER = Parameter("filter", _TEXT, "Only of rows that pass this filter, as in `layer:model_serving dur>2s`.")
_HOSTS = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?", re.IGNORECASE)
"""By what names loopback is asked for; the port may be that of a tunnel."""
_FAILED = Parameter("failed", _BOOLEAN, "Only what failed, or only what did not.")


@dataclass(frozen=True)
class Serving:
    """What to serve: captures under `root`, and those `named` besides. `port` 0 is any free one."""

    root: Path
    named: tuple[Path, ...] = ()
    port: int = 0
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))


@asynccontextmanager
async def serve(serving: Serving) -> AsyncIterator[str]:
    """Serve until the block ends; gives the URL. Raises ListenError."""
    app = application(Shelf(serving.root, serving.named), serving.token)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "127.0.0.1", serving.port).start()
        except OSError as error:
            raise ListenError(f"cannot listen on port {serving.port}: {error.strerror}", "name another") from None
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def application(shelf: Shelf, token: str) -> web.Application:
    """The API over a shelf of captures."""
    routes = _routes(shelf)
    public = frozenset(route.path for route in routes if route.open)
    app = web.Application(middlewares=[_told, _guard(token, public)])
    for route in routes:
        app.router.add_get(route.path, _with_known_parameters(route))
    return app


def _with_known_parameters(route: Route) -> Handler:
    known = [parameter.name for parameter in route.parameters]

    async def handle(request: web.Request) -> web.StreamResponse:
        for name in request.query:
            if name not in known:
                raise UsageError(f"{name} is no parameter of this", f"there are: {', '.join(known) or 'none'}")
            if len(request.query.getall(name)) > 1:
                raise UsageError(f"{name} is given twice")
        return await route.handler(request)

    return handle


# --- who may, and what goes wrong ------------------------------------------------------------------------------


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as JSON, with its way out; of an answer that has begun, only its end can tell."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return _error(error.status, error.reason, "/openapi.json says what there is", allow)
    except Exception as error:  # whatever it is, the answer is JSON
        if _BEGUN in request or isinstance(error, ConnectionError):
            raise
        return _of(error)


def _of(error: Exception) -> web.Response:
    if isinstance(error, GymtapError):
        return _error(400 if isinstance(error, UsageError) else 404, str(error), error.hint)
    if isinstance(error, ValueError):
        return _error(400, " ".join(str(error).split()), "/openapi.json says what a parameter may be")
    return _error(500, f"{type(error).__name__}: {error}", "the capture may be damaged, or gone: `gymtap captures`")


def _error(status: int, message: str, hint: str, headers: Mapping[str, str] = _NONE) -> web.Response:
    body = orjson.dumps({"error": message, "hint": hint})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _guard(token: str, public: frozenset[str]) -> Any:
    wanted = token.encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _HOSTS.fullmatch(request.headers.get("Host", "")):
            return _error(403, "this server is loopback's, and has no other name", "ask for 127.0.0.1 or localhost")
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        known = secrets.compare_digest(given.strip().encode("utf-8", "surrogateescape"), wanted)
        if request.path not in public and not (known and scheme.lower() == "bearer"):
            challenge = {"WWW-Authenticate": "Bearer"}
            return _error(401, "the token is missing or wrong", "send it as Authorization: Bearer TOKEN", challenge)
        return await handler(request)

    return guard


# --- what there is ---------------------------------------------------------------------------------------------


def _routes(shelf: Shelf) -> list[Route]:
    routes: list[Route] = []

    async def openapi(_: web.Request) -> web.Response:
        return _json(document(routes, version("gymtap")))

    routes += [
        Route("/openapi.json", "This document.", openapi, {"type": "object"}, open=True),
        *_of_captures(shelf),
        *_of_rows(shelf, f"{_CAPTURE}/rows"),
        *_of_exchanges(shelf, f"{_CAPTURE}/exchanges"),
    ]
    return routes


def _of_captures(shelf: Shelf) -> Iterator[Route]:
    async def captures(_: web.Request) -> web.Response:
        return _json({"captures": await asyncio.to_thread(shelf.infos)})

    yield Route("/v1/captures", "All captures, newest first.", captures, _listed("captures", _named(CaptureInfo)))
    yield Route(_CAPTURE, "What a capture says of itself.", _read(shelf, reading.info, "capture"), _named(CaptureInfo))
    yield Route(
        f"{_CAPTURE}/causes",
        "Failed rows grouped by cause, the most frequent first.",
        _read(shelf, reading.all_causes, query=True),
        _listed("causes", _cause()),
        (_FILTER,),
    )
    yield Route(
        f"{_CAPTURE}/events",
        "Exchanges as they open, change and end (server-sent events `exchange`), until the capture ends (`end`).",
        _events(shelf),
        _TEXT,
        (Parameter("from_start", _BOOLEAN, "Begin with all that there is."),),
        media_type="text/event-stream",
    )


def _of_rows(shelf: Shelf, path: str) -> Iterator[Route]:
    wanted = (
        _FAILED,
        Parameter("state", {"enum": [str(state) for state in RowState]}, "Only rows in this state."),
        Parameter("agent", _TEXT, "Only rows of this agent."),
        Parameter("task", _NUMBER, "Only rollouts of this task index."),
        _FILTER,
    )
    listed = _paged("rows", _labelled())
    yield Route(path, "Rows, by start time.", _read(shelf, reading.rows, query=True), listed, (*wanted, *_PAGE))
    yield Route(
        f"{path}/{{row}}",
        f"A row with its exchanges, the first {reading.LIMIT_MAX:,} of them.",
        _read(shelf, reading.row, "row"),
        _object({"row": _labelled(), "exchanges": _array(reference(Exchange)), "more": _BOOLEAN}),
    )
    diagnosis = _read(shelf, reading.diagnosis, "row")
    yield Route(f"{path}/{{row}}/diagnosis", "Why a row went as it did.", diagnosis, reference(Diagnosis))


def _of_exchanges(shelf: Shelf, path: str) -> Iterator[Route]:
    wanted = (
        Parameter("row", _TEXT, "Only this row's, by its label."),
        Parameter("call", {"enum": [str(call) for call in Call]}, "Only such calls."),
        Parameter("kind", {"enum": [str(kind) for kind in ServerKind]}, "Only what such servers answered."),
        Parameter("server", _TEXT, "Only what this server answered."),
        _FAILED,
        _FILTER,
        Parameter("after", _TEXT, "After this exchange, by its id: the way through many, page by page."),
    )
    listed, read = _paged("exchanges", reference(Exchange)), _read(shelf, reading.exchanges, query=True)
    yield Route(path, "Exchanges, by start time.", read, listed, (*wanted, *_PAGE))
    yield Route(
        f"{path}/{{exchange}}",
        "An exchange, with what checks said of it.",
        _read(shelf, reading.exchange, "exchange"),
        _object({"exchange": reference(Exchange), "findings": _array(reference(Finding))}),
    )
    yield Route(
        f"{path}/{{exchange}}/{{side}}/body",
        "A recorded body, as bytes; `X-Content-Type` is what its headers call it.",
        _body(shelf),
        {"type": "string", "format": "binary"},
        media_type="application/octet-stream",
    )


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _listed(name: str, items: Schema) -> Schema:
    return _object({name: _array(items)})


def _paged(name: str, items: Schema) -> Schema:
    return _object({name: _array(items), "more": _BOOLEAN})


def _named(model: type[CaptureInfo]) -> Schema:
    return _object({"name": _TEXT} | {field: {} for field in model.model_fields})


def _labelled() -> Schema:
    return _object({"label": _TEXT} | {field: {} for field in Row.model_fields})


def _cause() -> Schema:
    times: dict[str, Schema] = {"first_ns": {"type": "integer"}, "last_ns": {"type": "integer"}}
    return _object({"fingerprint": _TEXT, "example": reference(Diagnosis), "rows": _array(_TEXT), **times})


# --- answering -------------------------------------------------------------------------------------------------


def _json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


def _read(shelf: Shelf, read: Callable[..., object], *names: str, query: bool = False) -> Handler:
    """A handler that opens the capture on a thread and answers what `read` says."""

    def answer(request: web.Request) -> object:
        given: list[object] = [request.match_info[name] for name in names]
        with shelf.opened(request.match_info["capture"]) as capture:
            return read(capture, *given, *([dict(request.query)] if query else []))

    async def handle(request: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(answer, request))

    return handle


def _body(shelf: Shelf) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        named = request.match_info
        with shelf.opened(named["capture"]) as capture:
            record, media = await asyncio.to_thread(reading.body, capture, named["exchange"], named["side"])
            answer = web.StreamResponse(headers={"X-Content-Type": media, "X-Content-Type-Options": "nosniff"})
            answer.content_type = "application/octet-stream"
            chunks = capture.body_chunks(record) if record is not None else iter(())
            # A body that was lost is an error before anything is sent.
            chunk = await asyncio.to_thread(next, chunks, b"")
            await _begin(request, answer)
            while chunk and request.method != "HEAD":
                await answer.write(chunk)
                chunk = await asyncio.to_thread(next, chunks, b"")
        return answer

    return handle


async def _begin(request: web.Request, answer: web.StreamResponse) -> None:
    request[_BEGUN] = True
    await answer.prepare(request)


def _events(shelf: Shelf) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        from_start = bool(reading.flag(request.query, "from_start"))
        with shelf.opened(request.match_info["capture"]) as capture:
            answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
            await _begin(request, answer)
            if request.method != "HEAD":
                async for piece in _changes(capture, from_start):
                    await answer.write(piece)
        return answer

    return handle


async def _changes(capture: Capture, from_start: bool) -> AsyncIterator[bytes]:
    """Every change as one event, and a comment now and then, so that a client that has gone is noticed.

    What changes while all that there is is being told, is told again after it.
    """
    _, cursor = await asyncio.to_thread(capture.changes, None)
    if from_start:
        found = capture.exchanges()
        while piece := await asyncio.to_thread(_some, found):
            yield piece
    looks = 0
    yield b": live\n\n"
    while True:
        live = await asyncio.to_thread(capture.live)
        changed, cursor = await asyncio.to_thread(capture.changes, cursor)
        for exchange in changed:
            yield _event(exchange)
        if not live:
            yield b"event: end\ndata: {}\n\n"
            return
        looks += 1
        if looks % _HEARTBEAT_LOOKS == 0:
            yield b": still here\n\n"
        await asyncio.sleep(_LOOK_S)


def _some(found: Iterator[Exchange]) -> bytes:
    return b"".join(_event(exchange) for exchange in islice(found, _PIECE_EXCHANGES))


def _event(exchange: Exchange) -> bytes:
    return b"event: exchange\ndata: " + exchange.model_dump_json().encode() + b"\n\n"
