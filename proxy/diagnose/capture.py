"""Diagnoses a row of a capture: reads its exchanges and bodies into material, and finds a row to compare it with.

Bodies are read only up to what rules look at, and only of the row in question, so that a capture of a hundred
thousand exchanges answers as fast as a small one.
"""

from collections.abc import Iterable

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.diagnose.classify import diagnose
from gymtap.proxy.diagnose.evidence import Material, Seen
from gymtap.proxy.diagnose.siblings import first_difference
from gymtap.proxy.diagnose.sources import transport_kind
from gymtap.proxy.store import Capture
from gymtap.schemas import (
    ROWLESS_CALLS,
    Body,
    Diagnosis,
    Exchange,
    Headers,
    Row,
    RowState,
    ServerKind,
    State,
    TransportErrorKind,
)

MAX_BODY_BYTES = 4 * 2**20
"""Longer bodies are read no further than this."""
MAX_EXCHANGES = 2_000
"""A row with more exchanges (an endless retry) is diagnosed from its first and last ones."""
_PARTED = "\N{HORIZONTAL ELLIPSIS}"


def row_material(capture: Capture, row: Row, *, now_ns: int) -> Material:
    """What a capture holds of one row; `now_ns` (UTC since the epoch) gives open exchanges their age."""
    return material_of(capture, capture.exchanges(row=row.key), now_ns=now_ns, row=row.key.label)


def material_of(capture: Capture, exchanges: Iterable[Exchange], *, now_ns: int, row: str | None = None) -> Material:
    """Exchanges of a capture, with their bodies, as material. A body that was lost is None."""
    kept = _bounded([exchange for exchange in exchanges if exchange.call not in ROWLESS_CALLS])
    if not kept:
        return Material()
    began = kept[0].started_ns
    return Material(exchanges=tuple(_seen(capture, exchange, began, now_ns, row) for exchange in kept))


def _bounded(exchanges: list[Exchange]) -> list[Exchange]:
    half = MAX_EXCHANGES // 2
    return exchanges if len(exchanges) <= MAX_EXCHANGES else exchanges[:half] + exchanges[-half:]


def _seen(capture: Capture, exchange: Exchange, began_ns: int, now_ns: int, row: str | None) -> Seen:
    response, error = exchange.response, exchange.error
    stopped = error is not None and error.kind is TransportErrorKind.TAP_STOPPED
    is_open = exchange.state is State.OPEN or stopped
    limit = error is not None and error.kind is TransportErrorKind.CLIENT_GONE and transport_kind(error.message)[1]
    open_ms = (exchange.duration_ms or 0.0) if stopped else (now_ns - exchange.started_ns) / 1e6
    return Seen(
        id=exchange.id,
        caller=exchange.caller or ("collector" if exchange.kind is ServerKind.ENVIRONMENT else "?"),
        callee=str(exchange.kind),
        call=exchange.call,
        method=exchange.request.method,
        target=exchange.request.target,
        judge=exchange.kind is ServerKind.JUDGE or "judge" in f"{exchange.server} {exchange.caller}".lower(),
        status=response.status if response else None,
        request=_text(capture, exchange.request.body),
        response=_text(capture, response.body) if response else None,
        request_headers=_headers(exchange.request.headers),
        response_headers=_headers(response.headers) if response else {},
        error=error.kind if error and not stopped and not limit else None,
        timeout=limit,
        error_text=error.message if error else "",
        is_open=is_open,
        started_ms=(exchange.started_ns - began_ns) / 1e6,
        duration_ms=None if stopped else exchange.duration_ms,
        open_ms=open_ms if is_open else None,
        parent=exchange.parent,
        row=row or (exchange.attribution.row.label if exchange.attribution.row else None),
        server=exchange.server,
    )


def _text(capture: Capture, body: Body | None) -> str | None:
    if body is None:
        return ""
    data = bytearray()
    try:
        for chunk in capture.body_chunks(body):
            data += chunk
            if len(data) > MAX_BODY_BYTES:
                break
    except GymtapError:  # a gap says that it was lost
        return None
    text = bytes(data[:MAX_BODY_BYTES]).decode("utf-8", "replace")
    return text + _PARTED if len(data) > MAX_BODY_BYTES or body.missing_bytes else text


def _headers(headers: Headers) -> dict[str, str]:
    """By lower-case name; repeated ones joined (RFC 9110; of Set-Cookie only names and first values are read)."""
    found: dict[str, str] = {}
    for name, item in headers:
        key = name.lower()
        found[key] = f"{found[key]}, {item}" if key in found else item
    return found


def diagnose_row(capture: Capture, row: Row, *, now_ns: int) -> Diagnosis:
    """The diagnosis of one row."""
    return _diagnosis(row, row_material(capture, row, now_ns=now_ns))


def _diagnosis(row: Row, material: Material) -> Diagnosis:
    return diagnose(material).model_copy(update={"row": row.key.label})


def diagnose_beside(capture: Capture, row: Row, *, now_ns: int) -> tuple[Diagnosis, str | None]:
    """The diagnosis of one row; beside it, where a sibling passed, where that one first went another way."""
    material = row_material(capture, row, now_ns=now_ns)
    diagnosis = _diagnosis(row, material)
    other = sibling(capture, row) if diagnosis.rule is not None else None
    if other is None:
        return diagnosis, None
    found = first_difference(material, row_material(capture, other, now_ns=now_ns))
    return diagnosis, f"row {other.key.label} passed: {found or 'no difference before the failure'}"


def sibling(capture: Capture, row: Row) -> Row | None:
    """Another rollout of the row's task and agent that passed: the one with the best reward; None when none did."""
    key = row.key
    others = [
        other
        for other in capture.rows(task=key.task, agent=key.agent, run=key.run)
        if other.key != key and other.state is RowState.DONE and key.task is not None
    ]
    return max(others, key=lambda other: other.reward or 0.0, default=None)
