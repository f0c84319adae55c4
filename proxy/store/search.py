"""Looks for text in recorded bodies, piece by piece, so that a body of any size is searched in little memory."""

from collections.abc import Iterator

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.store import Capture
from gymtap.schemas import Body, Exchange, RowKey


def row_hits(capture: Capture, key: RowKey, text: str) -> list[str]:
    """The ids of the row's exchanges in whose bodies the text occurs, in any case of ASCII letters."""
    wanted = text.encode().lower()
    return [exchange.id for exchange in capture.exchanges(row=key) if occurs_in(capture, exchange, wanted)]


def occurs_in(capture: Capture, exchange: Exchange, wanted: bytes) -> bool:
    """Whether it occurs in either body of an exchange; `wanted` is in lower case."""
    return any(occurs(body, capture, wanted) for body in _bodies(exchange))


def _bodies(exchange: Exchange) -> Iterator[Body]:
    if exchange.request.body is not None:
        yield exchange.request.body
    if exchange.response is not None and exchange.response.body is not None:
        yield exchange.response.body


def occurs(body: Body, capture: Capture, wanted: bytes) -> bool:
    """Whether it occurs in a body, also across two pieces of it. A body that was lost has nothing in it."""
    kept = b""
    try:
        for chunk in capture.body_chunks(body):
            piece = kept + chunk.lower()
            if wanted in piece:
                return True
            kept = piece[-(len(wanted) - 1) :] if len(wanted) > 1 else b""
    except CaptureError:
        return False
    return False
