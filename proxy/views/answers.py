"""What failing exchanges answered, in one line each: the innermost message, read from the capture."""

from gymtap.proxy.core.unwrap import unwrap
from gymtap.proxy.store import Capture
from gymtap.proxy.views.plain import one_line
from gymtap.schemas import Body, Exchange, LeafKind, Row, RowState

_READ_MAX_BYTES = 4 * 2**20
_START_BYTES = 64 * 2**10


def body_start(capture: Capture, body: Body | None) -> tuple[bytes | None, bool]:
    """As `Capture.body`, but of a very large body only the beginning; and whether it is whole."""
    if body is None or body.digest is None:
        return None, True
    read = bytearray()
    for chunk in capture.body_chunks(body):
        read += chunk
        if len(read) > _READ_MAX_BYTES:
            return bytes(read[:_START_BYTES]), False
    return bytes(read), True


def message_of(capture: Capture, exchange: Exchange) -> str:
    """One line: the transport's error, or the innermost message of the response's body."""
    if exchange.error is not None:
        return one_line(exchange.error.message)
    if exchange.response is None:
        return ""
    leaf = unwrap(body_start(capture, exchange.response.body)[0] or b"").leaf
    return "an empty body" if leaf.kind is LeafKind.EMPTY else one_line(leaf.message or leaf.text)


def row_message(capture: Capture, row: Row) -> str | None:
    """Why a row failed, in one line; None for a row that did not fail, or does not say."""
    if row.state is not RowState.FAILED or row.root is None:
        return None
    return message_of(capture, capture.exchange(row.root)) or (row.error and one_line(row.error))
