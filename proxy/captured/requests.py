"""The requests that may carry tools, in a capture as in a file; in a capture, the place of one is its exchange's id."""

from collections.abc import Iterator
from pathlib import Path

from gymtap.proxy.check.requests import Carrier, carriers, carriers_in
from gymtap.proxy.store import Capture, is_capture
from gymtap.schemas import Call

_CALLS = (Call.RUN, Call.MODEL, Call.PROVIDER)


def requests_of(source: Path) -> Iterator[Carrier | str]:
    """What a capture, a file or a folder holds. Raises CaptureError, UsageError."""
    return _captured(source) if is_capture(source) else carriers(source)


def _captured(path: Path) -> Iterator[Carrier | str]:
    with Capture(path) as capture:
        for call in _CALLS:
            for exchange in capture.exchanges(call=call):
                if exchange.request.body is not None:
                    yield from carriers_in(exchange.id, capture.body(exchange.request.body) or b"")
