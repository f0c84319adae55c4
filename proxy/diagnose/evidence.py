"""What a diagnosis is made from: exchanges with their bodies, rows, log lines, files and the collector's results.

It is independent of where it came from: a capture, a list of recorded exchanges, or nothing but logs. An exchange
here is smaller than the noun of that name: text instead of stored bodies, and fields that older recordings lack
may be None. Nothing in it is a verdict.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from gymtap.proxy.core.unwrap import unwrap
from gymtap.schemas import Call, TransportErrorKind, Unwrapped


def read_json(text: str | None) -> Any:
    """The JSON in `text`, with NaN and its kin, which Python's own writer makes; None when it is not JSON."""
    if not text:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return None


def listed(found: Any) -> list[Any]:
    """`found` where it is a list, else an empty one: what stands in a recorded body may be anything."""
    return found if isinstance(found, list) else []


@dataclass(eq=False)
class Seen:
    """One exchange as it was seen.

    `caller` and `callee` are server kinds (`agent`, `resources`, …); `server` is the callee's name or address.
    `judge` is true on the branch that serves a judge. `timeout` is the caller's own limit having ended it. Times are
    milliseconds from any common start, None where the recording has none. `is_open`: neither answer nor error was seen.
    """

    id: str
    caller: str
    callee: str
    call: Call
    method: str = "POST"
    target: str = "/"
    judge: bool = False
    status: int | None = None
    request: str | None = None
    response: str | None = None
    request_headers: dict[str, str] = field(default_factory=dict)
    response_headers: dict[str, str] = field(default_factory=dict)
    error: TransportErrorKind | None = None
    error_text: str = ""
    timeout: bool = False
    is_open: bool = False
    started_ms: float | None = None
    duration_ms: float | None = None
    open_ms: float | None = None
    parent: str | None = None
    row: str | None = None
    server: str = ""

    @property
    def boundary(self) -> str:
        """`agent->resources`."""
        return f"{self.caller}->{self.callee}"

    @property
    def failed(self) -> bool:
        """Whether it ended without an answer below 400."""
        return self.timeout or self.error is not None or (self.status is not None and self.status >= 400)

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @cached_property
    def request_json(self) -> Any:
        """The request's body as JSON; None when it is not."""
        return read_json(self.request)

    @cached_property
    def response_json(self) -> Any:
        """The response's body as JSON; None when it is not."""
        return read_json(self.response)

    @cached_property
    def unwrapped(self) -> Unwrapped:
        """The response with its wrappers peeled off; for an exchange without one, the transport's words."""
        return unwrap(self.response if self.response is not None else self.error_text)

    @property
    def wraps(self) -> bool:
        """Whether its body carries an inner server's body, as Gym wraps it."""
        return any(wrapper.kind == "gym" for wrapper in self.unwrapped.wrappers)

    @property
    def ended_ms(self) -> float | None:
        """When it ended, on the same clock as `started_ms`."""
        if self.started_ms is None or self.duration_ms is None:
            return None
        return self.started_ms + self.duration_ms


@dataclass(frozen=True)
class SeenFile:
    """A file beside the run; `modified` is as text (ISO 8601) or None; `lines` are its lines without their ends."""

    name: str
    lines: tuple[str, ...]
    modified: str | None = None
    ended_whole: bool = True


@dataclass(frozen=True)
class Material:
    """All that is known about one question. `rows` are dataset lines as text; `results` what the collector kept."""

    exchanges: tuple[Seen, ...] = ()
    rows: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    files: tuple[SeenFile, ...] = ()
    results: tuple[dict[str, Any], ...] = ()

    @cached_property
    def row_values(self) -> tuple[dict[str, Any], ...]:
        """The rows that are JSON objects."""
        found = (read_json(row) for row in self.rows)
        return tuple(row for row in found if isinstance(row, dict))

    def of(self, *calls: Call, judge: bool | None = False) -> tuple[Seen, ...]:
        """The exchanges of these calls; on the judge's branch only where `judge` is true, on both where None."""
        return tuple(e for e in self.exchanges if e.call in calls and (judge is None or e.judge is judge))
