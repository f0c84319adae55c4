"""A recorder that the test drives: `play` puts a transcript on the tape and records it at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gymtap.proxy.core.addon import Addon
from gymtap.proxy.core.events import (
    Answered,
    Ended,
    Event,
    Opened,
    RawHeaders,
    RequestData,
    RequestDone,
    ResponseData,
    Tape,
)
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import Exchange, Server, TransportError

SERVER = Server(name="model", listen="http://127.0.0.1:1", upstream="http://127.0.0.1:2")
BEGIN_NS = 1_000_000_000
MS = 1_000_000


def opened(number: int = 1, headers: RawHeaders = (), target: str = "/v1/responses", server: Server = SERVER) -> Opened:
    return Opened(number, server, BEGIN_NS + number, BEGIN_NS, "127.0.0.1:9", "POST", target, "1.1", headers)


def request(number: int = 1, body: Sequence[bytes] = (), headers: RawHeaders = (), target: str = "/x") -> list[Event]:
    pieces = [RequestData(number, piece) for piece in body]
    return [opened(number, headers, target), *pieces, RequestDone(number, BEGIN_NS + MS)]


def response(
    number: int = 1,
    body: Sequence[bytes] = (),
    headers: RawHeaders = (),
    status: int = 200,
    error: TransportError | None = None,
) -> list[Event]:
    pieces = [ResponseData(number, piece) for piece in body]
    head = Answered(number, BEGIN_NS + 2 * MS, status, "OK", headers)
    return [head, *pieces, Ended(number, BEGIN_NS + 3 * MS, error)]


@dataclass
class Desk:
    """A recorder with its tape and its capture; no thread unless the test starts it."""

    directory: Path
    addons: Sequence[Addon] = ()
    limit_bytes: int = 2**30
    writer: CaptureWriter = field(init=False)

    def __post_init__(self) -> None:
        self.tape = Tape(self.limit_bytes)
        self.writer = CaptureWriter.create(self.directory)
        self.recorder = Recorder(self.tape, self.writer, self.addons)

    def play(self, *events: Event) -> Capture:
        for event in events:
            self.tape.put(event)
        self.recorder.drain()
        return Capture(self.directory)

    def bodies(self, exchange: Exchange) -> tuple[bytes | None, bytes | None]:
        capture = Capture(self.directory)
        answer = exchange.response.body if exchange.response else None
        return capture.body(exchange.request.body), capture.body(answer)


@pytest.fixture
def new_desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(*addons: Addon, limit_bytes: int = 2**30) -> Desk:
        desks.append(Desk(tmp_path / f"capture{len(desks)}", addons, limit_bytes))
        return desks[-1]

    yield make
    for desk in desks:
        desk.writer.close()


@pytest.fixture
def desk(new_desk: Callable[..., Desk]) -> Desk:
    return new_desk()
