"""A capture with everything that an export could lose: binary, coded, empty, missing and unanswered bodies."""

import gzip

import pytest

from gymtap.addons.identity import Identity
from gymtap.addons.redact import Redact
from gymtap.proxy.core.addon import Setup
from gymtap.proxy.core.events import (
    Answered,
    Dropped,
    Ended,
    Event,
    Opened,
    RequestData,
    RequestDone,
    ResponseData,
    Tape,
)
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import Finding, Server, ServerKind, Severity, TransportError, TransportErrorKind

BEGIN_NS = 1_796_000_000_123_456_789
AGENT = Server(name="agent", kind=ServerKind.AGENT, listen="http://127.0.0.1:1", upstream="http://127.0.0.1:2")
PROVIDER = Server(
    name="provider", kind=ServerKind.PROVIDER, listen="http://127.0.0.1:3", upstream="https://llm.example:8443"
)
JSON = ((b"Content-Type", b"application/json"), (b"Set-Cookie", b"a=b; Path=/"))
RUN = b'{"_ng_task_index": 12, "_ng_rollout_index": 3, "agent_ref": {"name": "agent"}}'
BINARY = bytes(range(256))


def life(
    number: int, server: Server, target: str, body: bytes, *after: Event, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> list[Event]:
    at = BEGIN_NS + number * 1_000_000
    opened = Opened(number, server, at, at, "127.0.0.1:9", "POST", target, "1.1", (JSON[0], *headers))
    return [opened, *([RequestData(number, body)] if body else []), RequestDone(number, at + 250_001), *after]


def answer(number: int, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> list[Event]:
    at = BEGIN_NS + number * 1_000_000
    return [
        Answered(number, at + 500_002, status, "Said", (*JSON, *headers)),
        *([ResponseData(number, body)] if body else []),
        Ended(number, at + 900_003),
    ]


def events() -> list[Event]:
    refused = TransportError(kind=TransportErrorKind.REFUSED, message="connection refused")
    secret = (b"Authorization", b"Bearer sk-proj-Abcdefghijklmnop0123456789abcdefghij")
    return [
        *life(1, AGENT, "/run?x=%2F&y", RUN, *answer(1, 200, b'{"reward": 1.0}')),
        *life(
            2,
            PROVIDER,
            "/v1/chat/completions",
            b'{"model": "m", "messages": [{"role": "user", "content": "\xc3\xa9 \'q\'"}]}',
            *answer(2, 429, gzip.compress(b"slow " * 99), (b"Content-Encoding", b"gzip")),
            headers=(secret,),
        ),
        *life(3, PROVIDER, "/v1/files", BINARY, *answer(3, 200, BINARY)),
        *life(4, PROVIDER, "/v1/chat/completions", b"", Ended(4, BEGIN_NS + 4_100_000, refused)),
        *life(
            5,
            PROVIDER,
            "/v1/chat/completions",
            b"{}",
            *answer(5, 200, b"part")[:2],
            Dropped(5, 0, 1_000),
            Ended(5, BEGIN_NS + 9_000_000),
        ),
        *life(6, PROVIDER, "/v1/models", b"@file", *answer(6, 204, b"")),
    ]


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    directory = tmp_path_factory.mktemp("export") / "capture"
    writer = CaptureWriter.create(directory)
    setup, tape = Setup(writer), Tape(2**30)
    recorder = Recorder(tape, writer, [Identity(setup), Redact(setup, writer.redactor)])
    for event in events():
        tape.put(event)
    recorder.drain()
    finding = Finding(rule="provider.rate_limit", severity=Severity.ERROR, message="too fast", exchange="a2")
    writer.finding(finding)
    recorder.close()
    return Capture(directory)
