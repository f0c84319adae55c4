"""Reads from a capture what a replay needs: exchanges with their bodies, by row or by id."""

from collections.abc import Callable, Iterator

from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.store import Capture
from gymtap.schemas import Call, Exchange, RowKey


def recorded(capture: Capture, exchange: Exchange) -> Recorded:
    """An exchange with its bodies. Raises CaptureError when the capture lost one."""
    answered = exchange.response.body if exchange.response else None
    return Recorded(exchange, capture.body(exchange.request.body), capture.body(answered))


def row(capture: Capture, key: RowKey) -> list[Recorded]:
    """A row's exchanges in order. Raises CaptureError when there is no such row, or more than one.

    The row itself is asked for only then: finding it costs a look at all of them.
    """
    found = list(capture.exchanges(row=key))
    if len({one.attribution.row for one in found}) != 1:
        found = list(capture.exchanges(row=capture.row(key).key))
    return [recorded(capture, one) for one in found]


def row_of(capture: Capture, exchange: Exchange) -> list[Recorded]:
    """The exchanges of an exchange's row, or it alone where its row is not known."""
    key = exchange.attribution.row
    if key is None:
        return [recorded(capture, exchange)]
    return [recorded(capture, one) for one in capture.exchanges(row=key)]


def requests(capture: Capture, wanted: Callable[[Exchange], bool]) -> Iterator[Recorded]:
    """Exchanges in order, with their requests' bodies only: there may be too many to read all of them."""
    for exchange in capture.exchanges():
        if wanted(exchange):
            yield Recorded(exchange, capture.body(exchange.request.body))


def reads(capture: Capture) -> Iterator[Recorded]:
    """The recorded GETs that belong to no row: a provider's /v1/models, say."""
    return (recorded(capture, one) for one in capture.exchanges(call=Call.HEALTH))
