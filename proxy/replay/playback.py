"""A server that stands where a recorded one stood and answers from the capture.

A request that was not recorded is answered with 422: Gym's clients retry 404, 408, 429 and 5xx and take a
400 that speaks of `max_tokens` for a context overflow, but they pass a 422 on (nemo-gym 0.7.0,
openai_utils.py). What the recorded server did to the connection (a reset, a body cut short) is done again.
"""

import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError, web

from gymtap.proxy.engine.bind import bind
from gymtap.proxy.replay.match import Hit, Matcher, Miss
from gymtap.proxy.replay.recorded import Recorded, header
from gymtap.proxy.replay.send import open_client
from gymtap.proxy.replay.targets import joined
from gymtap.schemas import Headers, TransportErrorKind

MISS_STATUS = 422
_NOT_SENT = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "date", "server", "trailer"}
)
_NOT_PASSED = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length"})
_EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)")
_READY_PATHS = frozenset({"/", "/health", "/healthz", "/ping"})


@dataclass(frozen=True)
class Asked:
    """A request that reached the playback, and what answered it.

    `status` and `reply` are what was sent; None and b"" where the connection was ended without an answer.
    """

    method: str
    target: str
    headers: Headers
    body: bytes
    started_ns: int
    duration_ms: float
    answer: Hit | Miss
    status: int | None
    reply: bytes


@dataclass
class Tally:
    """What a playback has done so far. `misses` holds the first hundred, in words."""

    answered: int = 0
    repeated: int = 0
    loose: int = 0
    missed: int = 0
    passed: int = 0
    misses: list[str] = field(default_factory=list)

    def count(self, answer: Hit | Miss, *, passed: bool) -> None:
        """Count one answer."""
        if isinstance(answer, Miss):
            self.missed += 1
            self.passed += passed
            if len(self.misses) < 100:
                self.misses.append(str(answer))
            return
        self.answered += 1
        self.repeated += answer.repeats > 0
        self.loose += answer.loose is not None


class Playback:
    """Answers requests from a matcher, which may be exchanged between two of them.

    `reads` are the recorded GETs (/v1/models), answered as often as they are asked. `passing` is the base URL
    to which misses go; None fails them. `heard` is called on the event loop, before the reply is
    whole.
    """

    def __init__(
        self,
        matcher: Matcher,
        reads: Iterable[Recorded] = (),
        *,
        passing: str | None = None,
        heard: Callable[[Asked], None] | None = None,
    ) -> None:
        self.matcher = matcher
        self.tally = Tally()
        self._reads = {one.path: one for one in reads if one.exchange.response is not None}
        self._passing = passing
        self._heard = heard

    @asynccontextmanager
    async def listening(self, addresses: Sequence[tuple[str, int]]) -> AsyncIterator[list[str]]:
        """Serve on some addresses (port 0: any free one); yields their `http://host:port`. Raises ListenError."""
        application = web.Application(client_max_size=2**40)
        application.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
        await runner.setup()
        try:
            urls = []
            for host, port in addresses:
                bound = bind(host, port)
                for sock in bound:
                    await web.SockSite(runner, sock).start()
                urls.append(f"http://{host}:{bound[0].getsockname()[1]}")
            yield urls
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.method in {"GET", "HEAD", "OPTIONS"}:
            return self._read(request)
        started_ns, started = time.time_ns(), time.monotonic()
        answer = self.matcher.find(request.method, request.raw_path, body)
        passed = isinstance(answer, Miss) and self._passing is not None
        self.tally.count(answer, passed=passed)

        def tell(status: int | None, reply: bytes) -> None:
            """Before the reply is whole: once it is, whoever waits for it may look at what was asked."""
            if self._heard is not None:
                taken_ms = (time.monotonic() - started) * 1000
                headers = tuple((_latin(name), _latin(value)) for name, value in request.raw_headers)
                target = request.raw_path
                self._heard(Asked(request.method, target, headers, body, started_ns, taken_ms, answer, status, reply))

        return await self._answer(request, body, answer, tell)

    async def _answer(
        self, request: web.Request, body: bytes, answer: Hit | Miss, tell: Callable[[int | None, bytes], None]
    ) -> web.StreamResponse:
        if isinstance(answer, Hit):
            response = answer.entry.exchange.response
            tell(response.status if response else None, answer.entry.response_body or b"")
            return await play(request, answer.entry)
        if self._passing is not None:
            reply, content = await _pass_on(request, body, self._passing)
            tell(None if content is None else reply.status, content or b"")
            return reply
        refusal = _refusal(answer)
        tell(refusal.status, refusal.text.encode() if refusal.text else b"")
        return refusal

    def _read(self, request: web.Request) -> web.StreamResponse:
        recorded = self._reads.get(request.path)
        if recorded is not None and recorded.exchange.response is not None:
            response = recorded.exchange.response
            return web.Response(status=response.status, headers=_headers(response.headers), body=recorded.response_body)
        if request.path.endswith("/models"):
            return web.json_response(models(self.matcher.models()))
        if request.path in _READY_PATHS:
            return web.json_response({"status": "ok"})
        return _refusal(Miss(f"no GET {request.path} was recorded"))


async def play(request: web.Request, entry: Recorded) -> web.StreamResponse:
    """Answer as it was recorded: status, headers, body (a stream event by event), and how the connection ended."""
    response, ended = entry.exchange.response, entry.exchange.error
    if response is None:
        return _break(request, web.Response(), ended.kind if ended else TransportErrorKind.CLOSED)
    body, streams = entry.response_body or b"", _streams(response.headers)
    broken = ended is not None and ended.kind is not TransportErrorKind.CLIENT_GONE
    reply = web.StreamResponse(status=response.status, reason=response.reason, headers=_headers(response.headers))
    if not streams:
        reply.content_length = _promised(response.headers, body, broken=broken)
    await reply.prepare(request)
    for piece in pieces(body) if streams else [body]:
        await reply.write(piece)
    if ended is not None and broken:
        return _break(request, reply, ended.kind)
    return reply


def _promised(headers: Headers, body: bytes, *, broken: bool) -> int | None:
    """The length to announce: the true one, or, of a body that was cut, what its server had announced."""
    if not broken:
        return len(body)
    announced = header(headers, "content-length")
    return int(announced) if announced is not None and announced.isdigit() else None


def pieces(body: bytes) -> list[bytes]:
    """A server-sent event stream cut after each event; joined they are the body."""
    return [event for event in _EVENT_END.split(body) if event]


def models(names: Sequence[str]) -> dict[str, Any]:
    """What /v1/models says when nobody recorded it: the models that the recorded requests named."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "owned_by": "gymtap-playback"} for name in names],
    }


def _refusal(miss: Miss) -> web.Response:
    error = {
        "message": f"gymtap playback: {miss}",
        "type": "gymtap_playback_miss",
        "param": miss.difference.pointer if miss.difference else None,
        "code": MISS_STATUS,
    }
    return web.json_response({"error": error}, status=MISS_STATUS)


def _break(request: web.Request, reply: web.StreamResponse, kind: TransportErrorKind) -> web.StreamResponse:
    """End the connection as the recorded server did: a reset, or a close after what was sent."""
    transport = request.transport
    if transport is None:
        return reply
    if kind is TransportErrorKind.RESET:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()
    return reply


def _streams(headers: Headers) -> bool:
    return (header(headers, "content-type") or "").lower().startswith("text/event-stream")


def _latin(raw: bytes) -> str:
    return raw.decode("latin-1")


async def _pass_on(request: web.Request, body: bytes, endpoint: str) -> tuple[web.StreamResponse, bytes | None]:
    """Send a miss to the real server, once, and relay what it says as it says it; all but the end."""
    headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _NOT_PASSED]
    received = bytearray()
    try:
        async with (
            open_client() as client,
            client.request(request.method, joined(endpoint, request.raw_path), data=body, headers=headers) as upstream,
        ):
            reply = web.StreamResponse(status=upstream.status, reason=upstream.reason)
            reply.headers.extend(_headers(tuple(upstream.headers.items())))
            await reply.prepare(request)
            async for piece in upstream.content.iter_any():
                received += piece
                await reply.write(piece)
            return reply, bytes(received)
    except (ClientError, OSError):
        return _break(request, web.Response(), TransportErrorKind.CLOSED), None


def _headers(headers: Headers) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _NOT_SENT]
