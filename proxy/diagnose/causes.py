"""Groups the rows of a capture by cause: what failed, and what ended well and should not count.

Rows with the same failing bytes at the same boundary share one diagnosis, so that as many are made as there are ways
to fail, and not as there are rows.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from gymtap.proxy.diagnose.capture import row_material
from gymtap.proxy.diagnose.classify import diagnose
from gymtap.proxy.store import Capture
from gymtap.schemas import Diagnosis, Exchange, Layer, Row, RowKey, RowState


@dataclass
class Cause:
    """Rows that failed for one cause. Times are UTC nanoseconds; `example` is the first such row's diagnosis."""

    fingerprint: str
    example: Diagnosis
    first_ns: int
    last_ns: int
    rows: list[str] = field(default_factory=list)


def causes(
    capture: Capture, *, now_ns: int, every_row: bool = False, among: Container[RowKey] | None = None
) -> list[Cause]:
    """Rows that failed, or ended well and should not count, grouped by cause, the most frequent first.

    Of rows that ended well, those are looked into that show it without their bodies: an exchange that failed, a
    finding of an error, or no reward. `every_row` looks into all of them, which reads every body. `among` leaves out
    all other rows.
    """
    found: dict[str, Cause] = {}
    known: dict[object, Diagnosis] = {}
    shapes, faulted = _shapes(capture), capture.error_findings()
    for row in capture.rows():
        if among is not None and row.key not in among:
            continue
        shape = _like(row, shapes, faulted, every_row=every_row)
        if shape is None:
            continue
        if shape not in known:
            known[shape] = diagnose(row_material(capture, row, now_ns=now_ns))
        diagnosis = known[shape]
        if diagnosis.layer is not Layer.NONE and (row.state is not RowState.DONE or diagnosis.rule is not None):
            _count(found, row, diagnosis)
    return sorted(found.values(), key=lambda cause: (-len(cause.rows), cause.first_ns))


def _like(
    row: Row, shapes: Mapping[RowKey, object], faulted: Mapping[RowKey, int], *, every_row: bool
) -> object | None:
    """What rows of one cause have in common, so that one of them is diagnosed; None for a row that is left out."""
    if row.state is RowState.FAILED:
        return shapes.get(row.key, row.key)
    if every_row:
        return row.key
    if row.state is not RowState.DONE:
        return None
    if row.key in faulted:
        return row.key
    if row.key in shapes or row.reward is None:  # a retry that succeeded is one more exchange than one that did not
        return row.state, row.reward, row.exchanges, shapes.get(row.key)
    return None


def _shapes(capture: Capture) -> dict[RowKey, object]:
    """Of every row with failing exchanges, what failed: boundary, call, status and body of each.

    Rows that failed alike byte for byte have one cause, so only the first of them is diagnosed.
    """
    shapes: dict[RowKey, list[object]] = {}
    for exchange in capture.exchanges(failed=True, attributed=True):
        if exchange.attribution.row is not None:
            shapes.setdefault(exchange.attribution.row, []).append(_shape(exchange))
    return {key: tuple(shape) for key, shape in shapes.items()}


def _shape(exchange: Exchange) -> object:
    response = exchange.response
    if response is None:
        return exchange.boundary, exchange.call, exchange.error.kind if exchange.error else None
    return exchange.boundary, exchange.call, response.status, response.body.digest if response.body else None


def _count(found: dict[str, Cause], row: Row, diagnosis: Diagnosis) -> None:
    fingerprint = diagnosis.fingerprint or str(diagnosis.layer)
    cause = found.get(fingerprint)
    if cause is None:
        example = diagnosis.model_copy(update={"row": row.key.label})
        cause = found[fingerprint] = Cause(fingerprint, example, row.started_ns, row.started_ns)
    cause.rows.append(row.key.label)
    cause.first_ns = min(cause.first_ns, row.started_ns)
    cause.last_ns = max(cause.last_ns, row.started_ns)
