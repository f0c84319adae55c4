"""An exchange: one HTTP request with its response, its error, or (still open) neither.

Times are integers: `started_ns` is UTC nanoseconds since the epoch, everything after it is a
duration in milliseconds from there, taken from a monotonic clock.
"""

from enum import StrEnum

from gymtap.schemas._model import Model
from gymtap.schemas.attribution import Attribution

type Headers = tuple[tuple[str, str], ...]
"""Header fields as they crossed the wire: names in their own case, in order, repeated ones repeated; latin-1."""


class ServerKind(StrEnum):
    """What answers at a boundary's far end."""

    ENVIRONMENT = "environment"
    AGENT = "agent"
    RESOURCES = "resources"
    MODEL = "model"
    PROVIDER = "provider"
    JUDGE = "judge"
    HEAD = "head"
    UNKNOWN = "unknown"


class Call(StrEnum):
    """What a request asks for, in Gym's terms.

    `responses` is the agent's call to itself; `model` the call to a Gym model server; `provider` the
    call that leaves Gym. `health`, `head` and `aggregate` belong to no single row.
    """

    RUN = "run"
    SEED_SESSION = "seed_session"
    RESPONSES = "responses"
    MODEL = "model"
    PROVIDER = "provider"
    JUDGE = "judge"
    TOOL = "tool"
    VERIFY = "verify"
    CLOSE_SESSION = "close_session"
    AGENT_SESSION = "agent_session"
    AGGREGATE = "aggregate"
    HEAD = "head"
    HEALTH = "health"
    OTHER = "other"


ROWLESS_CALLS = frozenset({Call.HEALTH, Call.HEAD, Call.AGGREGATE})
"""Calls that belong to no single row, and are not rows."""


class State(StrEnum):
    """`open`: no end seen yet. `done`: a whole response. `failed`: the transport ended it (see `error`)."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"


class TransportErrorKind(StrEnum):
    """How a connection ended an exchange."""

    REFUSED = "refused"  # nothing listens at the upstream
    UNREACHABLE = "unreachable"  # no route, or the name does not resolve
    RESET = "reset"  # the upstream reset the connection
    CLOSED = "closed"  # the upstream closed before the response was whole
    TLS = "tls"  # the handshake or the certificate failed
    CLIENT_GONE = "client_gone"  # the caller went away first
    MALFORMED = "malformed"  # bytes that are not HTTP/1.1
    TAP_STOPPED = "tap_stopped"  # the tap ended while it was open


class TransportError(Model):
    """Why an exchange has no whole response; `message` is one line, in the words of the system."""

    kind: TransportErrorKind
    message: str


class Body(Model):
    """A body's place in the capture, as it was after content decoding and redaction.

    `digest` names the stored content (hex SHA-256); None when nothing was kept. `size_bytes` is what
    crossed the wire. `encoding` is the content coding that was undone in the recorded copy
    (`gzip`, …). `missing_bytes` counts what could not be kept; a gap says why. `redacted` counts the
    replacements made.
    """

    digest: str | None
    size_bytes: int
    encoding: str | None = None
    missing_bytes: int = 0
    redacted: int = 0


class Request(Model):
    """`target` is the request target exactly as sent (`/v1/responses?x=%2F`)."""

    method: str
    target: str
    headers: Headers
    body: Body | None = None
    http_version: str = "1.1"


class Response(Model):
    """`first_byte_ms` and `ended_ms` count from the exchange's start; `ended_ms` is None while it streams."""

    status: int
    reason: str
    headers: Headers
    body: Body | None = None
    first_byte_ms: float
    ended_ms: float | None = None


class Exchange(Model):
    """One request at one boundary.

    `id` is short and unique within its capture (`a42`: writer a, number 42). `server` is the callee's
    name in Gym's config; `parent` the exchange that caused this one; `attempt` counts retries of the
    same call under one parent, from 0. `duration_ms` is None while it is open.
    """

    id: str
    server: str
    kind: ServerKind
    call: Call
    state: State
    started_ns: int
    request: Request
    response: Response | None = None
    error: TransportError | None = None
    duration_ms: float | None = None
    request_done_ms: float | None = None
    parent: str | None = None
    caller: str | None = None
    attempt: int = 0
    attribution: Attribution = Attribution()

    @property
    def boundary(self) -> str:
        """`agent->resources`; the caller is `?` where it is not known."""
        return f"{self.caller or '?'}->{self.kind}"

    @property
    def failed(self) -> bool:
        """Whether it ended without a response below 400."""
        return self.state is State.FAILED or (self.response is not None and self.response.status >= 400)
