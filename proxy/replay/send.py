"""The client that sends a plan's steps: one request each, no retry, no redirect, no time-out, no jar.

Cookies move only where the plan says so, from the answer of an earlier step into the request of a later one.
A request is marked as a replay only where a tap is known to take the mark off again: no server sees it.
"""

import errno
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientOSError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
)
from yarl import URL

from gymtap.proxy.core.redaction import PLACEHOLDER
from gymtap.proxy.engine import CAUSALITY_HEADER
from gymtap.proxy.replay.plan import Plan, Step
from gymtap.proxy.replay.recorded import cookies_set
from gymtap.proxy.replay.verdict import Answer, fault
from gymtap.schemas import Call, Headers, TransportError, TransportErrorKind

_HEX = re.compile(r"[0-9a-f]{32}\Z")
_CODINGS = frozenset({"gzip", "deflate", "identity"})


@dataclass
class Sent:
    """A step as it was sent and what came back. Durations are ms from `started_ns` (UTC)."""

    step: Step
    judged: bool
    url: str
    headers: Headers
    body: bytes | None
    started_ns: int = 0
    duration_ms: float = 0.0
    first_byte_ms: float | None = None
    status: int | None = None
    reason: str = ""
    response_headers: Headers = ()
    response_body: bytes = b""
    error: TransportError | None = None

    @property
    def answer(self) -> Answer:
        """For the verdict."""
        return Answer(self.status, self.response_body, self.error.kind if self.error else None)


@dataclass(frozen=True)
class Route:
    """Where a server's steps go and what they carry.

    `headers` replace those of the same name (credentials). `prefix` is what of a recorded target `base` stands
    for already, as `/v1` does. `marked`: a tap listens there that takes the causality header off.
    """

    base: str
    headers: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    marked: bool = False

    def url(self, target: str) -> str:
        """The URL of a recorded request target."""
        return self.base.rstrip("/") + target.removeprefix(self.prefix)


def open_client() -> ClientSession:
    """A client that adds nothing of its own: no limits, no time-outs, no cookies, no proxies, no User-Agent.

    Each request gets a new connection, without saying so in a header: a kept one might just be closed by its server.
    """
    return ClientSession(
        connector=TCPConnector(limit=0, keepalive_timeout=0),
        timeout=ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
        cookie_jar=DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        trust_env=False,
    )


async def send_plan(client: ClientSession, plan: Plan, routes: Mapping[str, Route], mark: str = "") -> list[Sent]:
    """Send the steps in order. `routes` is by server name and has every server of the plan.

    `mark` is what a tap on the way records as the parent of what it sees. When a session cannot be opened, what
    needs it is not sent, so the judged step may be missing from the result.
    """
    renewals = {old: _renewed(old) for old in plan.renewed}
    sent: list[Sent] = []
    for step in plan.steps:
        route = routes[step.server]
        prepared = _prepare(step, sent, route, renewals, judged=step is plan.target)
        sent.append(await _send(client, prepared, ((CAUSALITY_HEADER, mark),) if route.marked and mark else ()))
        if step is not plan.target and step.call is Call.SEED_SESSION and fault(step.call, sent[-1].answer):
            break
    return sent


async def _send(client: ClientSession, sent: Sent, mark: Headers) -> Sent:
    method = sent.step.original.exchange.request.method
    sent.started_ns, started = time.time_ns(), time.monotonic()
    try:
        async with client.request(
            method, URL(sent.url, encoded=True), data=sent.body, headers=(*sent.headers, *mark), allow_redirects=False
        ) as response:
            sent.first_byte_ms = (time.monotonic() - started) * 1000
            await _receive(response, sent)
    except (ClientError, OSError) as error:
        sent.error = transport_error(error)
    sent.duration_ms = (time.monotonic() - started) * 1000
    return sent


async def _receive(response: ClientResponse, sent: Sent) -> None:
    sent.status, sent.reason = response.status, response.reason or ""
    sent.response_headers = tuple((_latin(name), _latin(value)) for name, value in response.raw_headers)
    received = bytearray()
    try:
        async for piece in response.content.iter_any():
            received += piece
    finally:
        sent.response_body = bytes(received)


def transport_error(error: Exception) -> TransportError:
    """What ended an exchange, in the words of the system."""
    message = " ".join(str(error).split()) or type(error).__name__
    return TransportError(kind=_error_kind(error), message=message)


def _error_kind(error: Exception) -> TransportErrorKind:
    if isinstance(error, ClientSSLError):
        return TransportErrorKind.TLS
    if isinstance(error, ClientConnectorError):
        refused = error.os_error.errno == errno.ECONNREFUSED
        return TransportErrorKind.REFUSED if refused else TransportErrorKind.UNREACHABLE
    if isinstance(error, ServerDisconnectedError | ClientPayloadError):
        reset = isinstance(error.__cause__, ConnectionResetError)
        return TransportErrorKind.RESET if reset else TransportErrorKind.CLOSED
    if isinstance(error, ClientOSError | OSError):
        return TransportErrorKind.RESET
    return TransportErrorKind.MALFORMED


def _prepare(step: Step, earlier: Sequence[Sent], route: Route, renewals: Mapping[str, str], *, judged: bool) -> Sent:
    replaced = {name.lower() for name in route.headers}
    headers = [_acceptable(name, value) for name, value in step.headers if name.lower() not in replaced]
    present = {name.lower() for name, _ in step.headers}
    headers += [(name, value) for name, value in route.headers.items() if name.lower() in present]
    cookies = _cookies(step, earlier)
    if cookies:
        headers.append(("Cookie", "; ".join(f"{name}={value}" for name, value in cookies.items())))
    return Sent(
        step, judged, route.url(step.original.exchange.request.target), tuple(headers), _body(step.body, renewals)
    )


def _cookies(step: Step, earlier: Sequence[Sent]) -> dict[str, str]:
    """The cookies to send; one that was redacted, or that an earlier step should have got and did not, is left out."""
    chosen: dict[str, str] = {}
    for cookie in step.cookies:
        if cookie.source is None and PLACEHOLDER not in cookie.recorded:
            chosen[cookie.name] = cookie.recorded
        elif cookie.source is None:
            continue
        elif (fresh := cookies_set(earlier[cookie.source].response_headers).get(cookie.name)) is not None:
            chosen[cookie.name] = fresh
    return chosen


def _acceptable(name: str, value: str) -> tuple[str, str]:
    """Ask only for content codings that this client can undo."""
    if name.lower() != "accept-encoding":
        return name, value
    kept = [coding for coding in value.split(",") if coding.partition(";")[0].strip().lower() in _CODINGS]
    return name, ",".join(kept).strip() or "identity"


def _body(body: bytes | None, renewals: Mapping[str, str]) -> bytes | None:
    for old, new in renewals.items():
        body = body.replace(old.encode(), new.encode()) if body else body
    return body


def _renewed(session_id: str) -> str:
    """A new id in the style of the old one (`resources-session-<32 hex digits>`, nemo-gym 0.7.0)."""
    fresh = uuid.uuid4().hex
    return _HEX.sub(fresh, session_id) if _HEX.search(session_id) else str(uuid.UUID(fresh))


def _latin(raw: bytes) -> str:
    return raw.decode("latin-1")
