"""A capture made by hand, and the command line in this process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import (
    Attribution,
    Call,
    Confidence,
    Finding,
    Gap,
    GapKind,
    RowKey,
    Server,
    ServerKind,
    Severity,
)

type Make = Callable[..., Any]

NESTED = json.dumps(
    "Hit an exception in SimpleAgent___agent calling an inner server: " + repr(b'{"detail":"no such tool"}')
).encode()


def _fill(writer: CaptureWriter, exchange: Make, attributed: Make, start_ns: int) -> None:
    """Row 5.0 failed with a nested error, 6.0 is running, 7.0 was sent to two agents, 8.0 went well."""
    listen = {"listen": "http://127.0.0.1:1", "upstream": "http://127.0.0.1:2"}
    for kind in (ServerKind.AGENT, ServerKind.MODEL, ServerKind.PROVIDER, ServerKind.RESOURCES):
        writer.listening(Server(name=str(kind), kind=kind, **listen))
    row = b'{"_ng_task_index": 5, "responses_create_params": {"input": "Oslo?"}}'
    writer.add(exchange(1, Call.RUN, status=500), row, NESTED)
    writer.add(exchange(2, Call.MODEL, 1, 500), b'{"input": "Oslo?"}', NESTED)
    for attempt in range(3):
        writer.add(
            exchange(3 + attempt, Call.PROVIDER, 2, 429, attempt=attempt),
            b"{}",
            b'{"error": {"message": "slow down"}}',
        )
    writer.add(
        exchange(6, Call.TOOL, attribution=attributed(confidence=Confidence.HIGH)),
        b"\x00\xff\x1b[31m",
        b"\xfe\xff" * 300,
    )
    writer.add(exchange(7, Call.RUN, status=None, attribution=attributed(6)), row)
    for number, agent in ((8, "alpha"), (9, "beta")):
        key = RowKey(task=7, rollout=0, agent=agent)
        writer.add(exchange(number, Call.RUN, attribution=attributed(row=key)), row, b'{"reward": 0.5}')
    writer.add(exchange(10, Call.RUN, attribution=attributed(8)), row, b'{"reward": 1.0}')
    writer.add(exchange(11, Call.HEALTH, attribution=Attribution()))
    writer.finding(
        Finding(
            rule="tool-schema",
            severity=Severity.ERROR,
            message="no such tool",
            pointer="/detail",
            fix="Offer it.",
            exchange="a2",
        )
    )
    writer.gap(Gap(kind=GapKind.QUEUE_FULL, at_ns=start_ns, detail="the tape had no room", count=3, size_bytes=1200))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for captures, which the command line looks into."""
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path / "captures"))
    return tmp_path / "captures"


@pytest.fixture
def capture(home: Path, exchange: Make, attributed: Make, start_ns: int) -> Path:
    """A finished capture; see `_fill`."""
    writer = CaptureWriter.create(home / "made-by-hand", command=("gym", "eval", "run"), now_ns=lambda: start_ns)
    _fill(writer, exchange, attributed, start_ns)
    writer.close()
    return home / "made-by-hand"


@pytest.fixture
def gymtap(home: Path, command_line: Callable[..., Any]) -> Callable[..., Any]:
    """`gymtap("rows", "--json")` in this process, with captures in `home`."""
    return command_line


@pytest.fixture
def live_writer(tmp_path: Path, exchange: Make, attributed: Make, start_ns: int) -> Iterator[CaptureWriter]:
    """Writes a capture that is not finished: what `_fill` says so far."""
    writer = CaptureWriter.create(tmp_path / "live")
    _fill(writer, exchange, attributed, start_ns)
    writer.commit()
    yield writer
    writer.close()
