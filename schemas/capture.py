"""A capture: the directory in which a tap keeps what it saw, and what it says of itself."""

from enum import StrEnum

from gymtap.schemas._model import Model
from gymtap.schemas.exchange import ServerKind
from gymtap.schemas.row import RowKey

FORMAT_VERSION = 1
"""Of the capture format, apart from the release; raised with a migration beside it."""


class Server(Model):
    """One listener: clients use `listen`, the tap calls `upstream` (both `scheme://host:port`)."""

    name: str
    kind: ServerKind = ServerKind.UNKNOWN
    listen: str
    upstream: str


class ServerContract(Model):
    """What is known of a server's OpenAPI document: `digest` names its body, None where `problem` says why not."""

    server: str
    digest: str | None = None
    size_bytes: int = 0
    problem: str | None = None


class GapKind(StrEnum):
    """Why traffic was not captured."""

    QUEUE_FULL = "queue_full"  # the recorder could not keep up within its memory
    WRITE_FAILED = "write_failed"  # the disk refused
    UNPARSED = "unparsed"  # bytes passed that are not HTTP/1.1 (an upgrade, say)
    TAP_DIED = "tap_died"  # the tap ended without closing its capture
    ADDON_FAILED = "addon_failed"  # an addon raised; what it would have said is missing


class Gap(Model):
    """Traffic known not to have been captured. `count` is exchanges, `size_bytes` body bytes; None is unknown."""

    kind: GapKind
    at_ns: int
    detail: str
    count: int | None = None
    size_bytes: int | None = None
    exchange: str | None = None


class RowState(StrEnum):
    """`running`: /run has no answer yet. `failed`: it ended in an error. `done`: it ended with an answer."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Row(Model):
    """A row and how it went. `reward` is None when none was given; `exchanges` counts those attributed to it."""

    key: RowKey
    state: RowState
    root: str | None
    started_ns: int
    duration_ms: float | None = None
    status: int | None = None
    error: str | None = None
    reward: float | None = None
    exchanges: int = 0
    failed_exchanges: int = 0


class CaptureInfo(Model):
    """What a capture says of itself. `ended_ns` is None while a tap writes, or when one died."""

    path: str
    format: int
    gymtap_version: str
    created_ns: int
    ended_ns: int | None = None
    live: bool = False
    command: tuple[str, ...] = ()
    servers: tuple[Server, ...] = ()
    exchanges: int = 0
    open_exchanges: int = 0
    rows: int = 0
    failed_rows: int = 0
    gaps: tuple[Gap, ...] = ()
    size_bytes: int = 0
