"""JSON lines of a boundary recorder: one exchange a line, named by the server that answered (`hop`).

Fields: `hop`, `method`, `path`, `t0` and `t1` (seconds since the epoch), `req_headers` and `resp_headers` (pairs),
`req_body` and `resp_body` (text), `status`, `error` (words), and where they are known `seq` (a number of its own),
`parent` (the `seq` of the exchange that caused it) and `peer` (the caller's host and port).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymtap.proxy.core.recorded import Foreign, Recording
from gymtap.proxy.imports.fields import (
    SECOND_NS,
    Fields,
    Seconds,
    Status,
    Text,
    body_bytes,
    checked,
    json_lines,
    raw_headers,
)
from gymtap.proxy.imports.transport import transport_error
from gymtap.schemas import Server


class _Line(Fields):
    hop: Text
    method: Text
    path: Text
    t0: Seconds
    t1: Seconds | None = None
    req_headers: tuple[tuple[str, str], ...] = ()
    req_body: Any = None
    status: Status | None = None
    resp_headers: tuple[tuple[str, str], ...] = ()
    resp_body: Any = None
    error: Any = None
    seq: int | str | None = None
    parent: int | str | None = None
    peer: tuple[Text, int] | None = None


def read_flows(file: Path) -> Iterator[Recording]:
    """The file as one recording."""
    yield Recording(file, json_lines(file, _recorded))


def _recorded(value: Any, place: str) -> Foreign:
    line = checked(_Line, value, place)
    started_ns = round(line.t0 * SECOND_NS)
    ended_ns = None if line.t1 is None else max(started_ns, round(line.t1 * SECOND_NS))
    return Foreign(
        server=Server(name=line.hop, listen="", upstream=""),
        method=line.method,
        target=line.path,
        started_ns=started_ns,
        request_headers=raw_headers(line.req_headers),
        request_body=body_bytes(line.req_body),
        status=line.status,
        response_headers=raw_headers(line.resp_headers),
        response_body=body_bytes(line.resp_body),
        ended_ns=ended_ns,
        error=transport_error(line.error),
        client="" if line.peer is None else f"{line.peer[0]}:{line.peer[1]}",
        key=None if line.seq is None else str(line.seq),
        parent=None if line.parent is None else str(line.parent),
    )
