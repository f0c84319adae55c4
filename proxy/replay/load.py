"""Reads from a capture what a replay needs: exchanges with their bodies, by row or by id."""

from collections.abc import Iterator

from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.store import Capture
from gymtap.schemas import Body, Call, Exchange, RowKey


def recorded(capture: Capture, exchange: Exchange) -> Recorded:
    """An exchange with its bodies. Raises CaptureError when the capture lost one."""
    answered = exchange.response.body if exchange.response else None
    return Recorded(exchange, _content(capture, exchange.request.body), _content(capture, answered))


def row(capture: Capture, key: RowKey) -> list[Recorded]:
    """A row's exchanges in order. Raises CaptureError when there is no such row."""
    found = capture.row(key)
    return [recorded(capture, one) for one in capture.exchanges(row=found.key)]


def row_of(capture: Capture, exchange: Exchange) -> list[Recorded]:
    """The exchanges of an exchange's row, or it alone where its row is not known."""
    key = exchange.attribution.row
    if key is None:
        return [recorded(capture, exchange)]
    return [recorded(capture, one) for one in capture.exchanges(row=key)]


def everything(capture: Capture) -> Iterator[Recorded]:
    """All exchanges with their bodies, in order."""
    for exchange in capture.exchanges():
        yield recorded(capture, exchange)


def reads(capture: Capture) -> Iterator[Recorded]:
    """The recorded GETs that belong to no row: a provider's /v1/models, say."""
    return (recorded(capture, one) for one in capture.exchanges(call=Call.HEALTH))


def _content(capture: Capture, body: Body | None) -> bytes | None:
    return None if body is None or body.digest is None else capture.body(body)
