"""JSON lines: exchanges (`gymtap.exchange/1`, which `gymtap import` takes back), and rows with their diagnosis."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.diagnose.capture import diagnose_row
from gymtap.proxy.export.encoding import content
from gymtap.proxy.store import Capture
from gymtap.proxy.store.listed import named
from gymtap.proxy.store.notes import Note, Notes
from gymtap.schemas import Row

CAPTURE_SCHEMA = "gymtap.capture/1"
EXCHANGE_SCHEMA = "gymtap.exchange/1"
ROW_SCHEMA = "gymtap.row/1"


def exchange_lines(capture: Capture, chosen: Iterable[Kept]) -> Iterator[bytes]:
    """First the capture itself, with its gaps; then one line for each exchange."""
    info = capture.info()
    yield _line({"schema": CAPTURE_SCHEMA} | info.model_dump(mode="json"))
    for kept in chosen:
        yield _line(exchange_document(kept))


def exchange_document(kept: Kept) -> dict[str, Any]:
    """One exchange with its bodies, its server and what checks said of it."""
    return {
        "schema": EXCHANGE_SCHEMA,
        "server": kept.server.model_dump(mode="json") if kept.server else None,
        "exchange": kept.exchange.model_dump(mode="json"),
        "request_body": content(kept.request_body),
        "response_body": content(kept.response_body),
        "findings": [finding.model_dump(mode="json") for finding in kept.findings],
    }


def row_lines(capture: Capture, rows: Iterable[Row], now_ns: int | None = None) -> Iterator[bytes]:
    """One line for each row, with its diagnosis, and what people noted of it; that reads every body."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    notes = Notes(capture.path)
    for row in rows:
        yield _line(row_document(capture, row, now_ns, notes.of(named(row.key))))


def row_document(capture: Capture, row: Row, now_ns: int, note: Note) -> dict[str, Any]:
    """One row, by its label, with its diagnosis."""
    return {
        "schema": ROW_SCHEMA,
        "label": row.key.label,
        "row": row.model_dump(mode="json"),
        "diagnosis": diagnose_row(capture, row, now_ns=now_ns).model_dump(mode="json"),
        **note.model_dump(mode="json"),
    }


def _line(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
