"""What a file of another tool holds: exchanges to be recorded anew, or ones that a tap recorded already.

The first kind goes over the tape like live traffic, so the same addons see it. The second was attributed and
redacted by the tap that saw it, and is kept as it is. A recording is read piece by piece: it may be longer than
any memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gymtap.proxy.core.events import RawHeaders
from gymtap.schemas import Exchange, Finding, Gap, Server, TransportError


@dataclass(frozen=True)
class Foreign:
    """An exchange as another tool wrote it down; its bodies have their content coding undone, unless `coded`.

    Times are UTC nanoseconds since the epoch, or since the recording's beginning where it has no dates; None is
    unknown. `ended_ns` None: it was open when the recording ended. `key` names it within its recording, for `parent`.
    """

    server: Server
    method: str
    target: str
    started_ns: int
    http_version: str = "1.1"
    request_headers: RawHeaders = ()
    request_body: bytes = b""
    request_done_ns: int | None = None
    status: int | None = None
    reason: str = ""
    response_headers: RawHeaders = ()
    response_body: bytes = b""
    first_byte_ns: int | None = None
    ended_ns: int | None = None
    error: TransportError | None = None
    client: str = ""
    key: str | None = None
    parent: str | None = None
    coded: bool = False


@dataclass(frozen=True)
class Kept:
    """An exchange that a tap recorded, as its export holds it; None is a body that was not kept."""

    exchange: Exchange
    server: Server | None = None
    request_body: bytes | None = None
    response_body: bytes | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """What was not taken, in one line that names the place. `count` exchanges are missing for it; None is unknown."""

    text: str
    hint: str = ""
    count: int | None = 1


type Item = Foreign | Kept | Gap | LeftOut


@dataclass(frozen=True)
class Recording:
    """One recording; `items` can be read once. `dated`: its times are of the clock on the wall."""

    file: Path
    items: Iterable[Item] = field(default=())
    dated: bool = True
