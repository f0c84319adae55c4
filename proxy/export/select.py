"""Which exchanges are exported, each with its whole bodies, and what was not whole counted.

A body is read when its exchange is written and let go after, so an export of any length needs the memory of one
exchange.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.store import Capture
from gymtap.schemas import Body, Call, Exchange, RowKey, ServerKind

_LOOKED_UP_ROWS = 100


@dataclass(frozen=True)
class Wanted:
    """What is asked for; None, and no `ids`, ask nothing. `rows` are the rows whose exchanges are wanted."""

    ids: tuple[str, ...] = ()
    rows: frozenset[RowKey] | None = None
    call: Call | None = None
    kind: ServerKind | None = None
    server: str | None = None
    failed: bool | None = None


class Chosen:
    """The exchanges of a capture that are wanted, by start time: iterate once.

    `count` is how many there were; `incomplete` names those of which a body is not whole, with how much is missing.
    """

    def __init__(self, capture: Capture, wanted: Wanted) -> None:
        self.count = 0
        self.incomplete: dict[str, str] = {}
        self.capture = capture
        self._wanted = wanted
        self._servers = {server.name: server for server in capture.servers()}

    def exchanges(self) -> Iterator[Exchange]:
        """Without bodies. Raises CaptureError for an id that is not there."""
        wanted = self._wanted
        if wanted.ids:
            yield from (self.capture.exchange(one) for one in wanted.ids)
            return
        yield from self._of_rows(wanted.rows) if wanted.rows is not None else self._where()

    def _of_rows(self, rows: frozenset[RowKey]) -> Iterator[Exchange]:
        """Of a few rows, each row's are looked up; of many, all are gone through."""
        if len(rows) <= _LOOKED_UP_ROWS:
            yield from heapq.merge(*(self._where(row) for row in rows), key=lambda exchange: exchange.started_ns)
        else:
            yield from (one for one in self._where() if one.attribution.row in rows)

    def _where(self, row: RowKey | None = None) -> Iterator[Exchange]:
        wanted = self._wanted
        return self.capture.exchanges(
            row=row, call=wanted.call, kind=wanted.kind, server=wanted.server, failed=wanted.failed
        )

    def __iter__(self) -> Iterator[Kept]:
        for exchange in self.exchanges():
            self.count += 1
            yield self._whole(exchange)

    def _whole(self, exchange: Exchange) -> Kept:
        answer = exchange.response
        return Kept(
            exchange=exchange,
            server=self._servers.get(exchange.server),
            request_body=self._content(exchange.id, exchange.request.body),
            response_body=self._content(exchange.id, answer.body if answer else None),
            findings=tuple(self.capture.findings(exchange=exchange.id)),
        )

    def _content(self, exchange: str, body: Body | None) -> bytes | None:
        if body is None:
            return None
        if body.missing_bytes:
            self.incomplete[exchange] = f"{body.missing_bytes:,} bytes of a body were not captured"
        try:
            return self.capture.body(body)
        except CaptureError as error:
            self.incomplete[exchange] = str(error)
            return None
