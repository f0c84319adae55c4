"""A body brought to the screen: in memory while it is small, as a mapped file with no name when it is large."""

import mmap
import tempfile
from dataclasses import dataclass
from typing import Any

import orjson

from gymtap.proxy.store import Capture
from gymtap.proxy.tui.byte_lines import Bytes
from gymtap.proxy.views.event_stream import read_stream
from gymtap.schemas import Body, Exchange

IN_MEMORY_BYTES = 8 * 2**20
"""A larger body is neither parsed nor held: it is read where it lies."""

NOT_JSON = object()
"""The value of a body that is no JSON."""


@dataclass(frozen=True)
class Content:
    """A body. `value` is its JSON (of a stream: the answer put together), NOT_JSON where it is none or too large."""

    body: Body | None
    data: Bytes
    value: Any = NOT_JSON
    streamed: bool = False

    @property
    def large(self) -> bool:
        """Whether it is read where it lies."""
        return not isinstance(self.data, bytes)


@dataclass(frozen=True)
class Loaded:
    """An exchange with both its bodies; the response is None where there is none."""

    exchange: Exchange
    request: Content
    response: Content | None


def load(capture: Capture, exchange: Exchange) -> Loaded:
    """Read both bodies. Raises CaptureError when one was lost."""
    response = exchange.response
    return Loaded(
        exchange,
        content(capture, exchange.request.body),
        None if response is None else content(capture, response.body),
    )


def content(capture: Capture, body: Body | None) -> Content:
    """Read one body. Raises CaptureError when it was lost."""
    data = _read(capture, body)
    if not isinstance(data, bytes):
        return Content(body, data)
    streamed = read_stream(data)
    if streamed is not None:
        return Content(body, data, streamed, streamed=True)
    try:
        return Content(body, data, orjson.loads(data))
    except orjson.JSONDecodeError:
        return Content(body, data)


def _read(capture: Capture, body: Body | None) -> Bytes:
    if body is None:
        return b""
    gathered = bytearray()
    chunks = capture.body_chunks(body)
    for chunk in chunks:
        gathered += chunk
        if len(gathered) > IN_MEMORY_BYTES:
            break
    else:
        return bytes(gathered)
    with tempfile.TemporaryFile() as file:
        file.write(gathered)
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
