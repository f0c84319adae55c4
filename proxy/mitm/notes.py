"""What a capture says of its exchanges, as notes for mitmproxy's screens: row, layer, cause.

A row is diagnosed when it has ended and something in it failed; then all its exchanges are told. It reads the capture,
like every other face, and never the live flows.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.diagnose import diagnose
from gymtap.proxy.diagnose.capture import diagnose_row, material_of
from gymtap.proxy.store import Capture, Cursor
from gymtap.schemas import Diagnosis, Exchange, Layer, RowKey, RowState, State


@dataclass(frozen=True)
class Note:
    """Of one exchange; `failed` ones are marked."""

    exchange: str
    text: str
    failed: bool = False


class Notes:
    """Each `new` looks at what changed since the last; call it from one thread at a time."""

    def __init__(self, capture: Path, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._capture = Capture(capture)
        self._now_ns = now_ns
        self._cursor: Cursor | None = None

    def new(self) -> list[Note]:
        """The notes that are new or have changed."""
        changed, self._cursor = self._capture.changes(self._cursor, from_start=True)
        rows = {exchange.attribution.row for exchange in changed if exchange.attribution.row is not None}
        told = [note for row in rows for note in self._of_row(row)]
        known = {note.exchange for note in told}
        return told + [self._alone(exchange) for exchange in changed if exchange.id not in known]

    def close(self) -> None:
        """Close the capture."""
        self._capture.close()

    def _of_row(self, key: RowKey) -> Iterator[Note]:
        try:
            row = self._capture.row(key)
        except CaptureError:  # it lost its exchanges to another meanwhile
            return
        ended = row.state is not RowState.RUNNING
        said = diagnose_row(self._capture, row, now_ns=self._now_ns()) if ended and row.failed_exchanges else None
        for exchange in self._capture.exchanges(row=row.key):
            yield _note(exchange, said)

    def _alone(self, exchange: Exchange) -> Note:
        """An exchange of no row."""
        if exchange.state is State.OPEN or not exchange.failed:
            return _note(exchange, None)
        return _note(exchange, diagnose(material_of(self._capture, [exchange], now_ns=self._now_ns())))


def _note(exchange: Exchange, said: Diagnosis | None) -> Note:
    row = exchange.attribution.row
    parts = [f"row {row.label}"] if row else []
    parts += [exchange.boundary, str(exchange.call)]
    parts += [f"{said.layer}: {said.cause}"] if said is not None and said.layer is not Layer.NONE else []
    return Note(exchange.id, " · ".join(parts), exchange.failed)
