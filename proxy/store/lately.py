"""What a capture was doing last: now, while a tap writes it, or when its tap ended. Alarms are raised from it."""

from typing import NamedTuple

from gymtap.proxy.store.reader import Capture
from gymtap.schemas import Exchange, TransportErrorKind

LATEST = 3_000
"""How many of the latest exchanges are looked at for retries and for what does not answer."""


class Lately(NamedTuple):
    """`opened` is in flight, or was when the tap ended; `recent` by start time; `at_ns` is the moment of it, UTC."""

    live: bool
    opened: list[Exchange]
    recent: list[Exchange]
    at_ns: int


def lately(capture: Capture, now_ns: int) -> Lately:
    """Look at the capture once."""
    live, recent = capture.live(), capture.latest(LATEST)
    if live:
        return Lately(live, capture.open_exchanges(), recent, now_ns)
    left = [one for one in recent if one.error is not None and one.error.kind is TransportErrorKind.TAP_STOPPED]
    return Lately(live, left, recent, max((one.started_ns for one in recent), default=now_ns))
