"""What all connections of one listener share."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from gymtap.proxy.core.events import Tape
from gymtap.proxy.engine.heads import HeadReader
from gymtap.proxy.engine.paths import Paths
from gymtap.schemas import Server

if TYPE_CHECKING:
    from gymtap.proxy.engine.connection import Link

CAUSALITY_HEADER = "x-gymtap-parent"
"""Names, in a request, the exchange that caused it."""


class Causality(Enum):
    """What becomes of the causality header.

    OFF: it is a header like any other. INJECT: it is read, and replaced by the exchange's own id towards
    the upstream. STRIP: it is read and removed, because the upstream is not a Gym server.
    """

    OFF = "off"
    INJECT = "inject"
    STRIP = "strip"


@dataclass(frozen=True, slots=True)
class Clock:
    """`wall_ns` is UTC since the epoch, `mono_ns` monotonic."""

    wall_ns: Callable[[], int]
    mono_ns: Callable[[], int]


@dataclass(slots=True)
class Boundary:
    """What all connections of one listener share. `tls` is None for a plain upstream."""

    server: Server
    causality: Causality
    host: str
    port: int
    tls: ssl.SSLContext | None
    tape: Tape
    clock: Clock
    reader: HeadReader
    next_number: Callable[[], int]
    prefix: str
    paths: Paths
    links: set["Link"] = field(default_factory=set)
    closed: bool = False
