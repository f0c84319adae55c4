"""Exchanges for tests, with as few words as possible, as session fixtures that give functions."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.cli.program import execute
from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import (
    Attribution,
    Body,
    Call,
    Confidence,
    Exchange,
    Finding,
    Gap,
    GapKind,
    Method,
    Request,
    Response,
    RowKey,
    Server,
    ServerKind,
    Severity,
    State,
)

START_NS = 1_796_000_000_000_000_000
_KINDS = {
    Call.RUN: ServerKind.AGENT,
    Call.RESPONSES: ServerKind.AGENT,
    Call.MODEL: ServerKind.MODEL,
    Call.PROVIDER: ServerKind.PROVIDER,
}


def _attributed(task: int = 5, **said: Any) -> Attribution:
    row = RowKey(task=task, rollout=0)
    return Attribution(**{"row": row, "method": Method.BODY, "confidence": Confidence.CERTAIN} | said)


def _exchange(
    number: int,
    call: Call,
    parent: int | None = None,
    status: int | None = 200,
    at_ms: float | None = None,
    **said: Any,
) -> Exchange:
    """Exchange `a<number>`; `status` None leaves it open; it begins `at_ms` (else its number) after START_NS."""
    kind = _KINDS.get(call, ServerKind.RESOURCES)
    started_ns = START_NS + int((number if at_ms is None else at_ms) * 1e6)
    headers = (("Content-Type", "application/json"),)
    response = None
    if status is not None:
        body = Body(digest=None, size_bytes=number * 100)
        response = Response(status=status, reason="", headers=headers, body=body, first_byte_ms=1.0, ended_ms=2.0)
    values: dict[str, Any] = {
        "id": f"a{number}",
        "server": str(kind),
        "kind": kind,
        "call": call,
        "state": State.OPEN if status is None else State.DONE,
        "started_ns": started_ns,
        "request": Request(method="POST", target=f"/{call}", headers=headers, body=Body(digest=None, size_bytes=12)),
        "response": response,
        "duration_ms": None if status is None else 2.0,
        "parent": None if parent is None else f"a{parent}",
        "attribution": _attributed(),
    }
    return Exchange(**values | said)


@pytest.fixture(scope="session")
def attributed() -> Any:
    """`attributed(task, **fields)`: an attribution that is certain, unless it says otherwise."""
    return _attributed


@pytest.fixture(scope="session")
def exchange() -> Any:
    """`exchange(number, call, parent, status, at_ms, **fields)`: see `_exchange`."""
    return _exchange


@pytest.fixture(scope="session")
def start_ns() -> int:
    """When exchange 0 would have begun."""
    return START_NS


NESTED = json.dumps(
    "Hit an exception in SimpleAgent___agent calling an inner server: " + repr(b'{"detail":"no such tool"}')
).encode()


def _fill(writer: CaptureWriter) -> None:
    """Row 5.0 failed with a nested error, 6.0 is running, 7.0 was sent to two agents, 8.0 went well."""
    listen = {"listen": "http://127.0.0.1:1", "upstream": "http://127.0.0.1:2"}
    for kind in (ServerKind.AGENT, ServerKind.MODEL, ServerKind.PROVIDER, ServerKind.RESOURCES):
        writer.listening(Server(name=str(kind), kind=kind, **listen))
    row = b'{"_ng_task_index": 5, "responses_create_params": {"input": "Oslo?"}}'
    writer.add(_exchange(1, Call.RUN, status=500), row, NESTED)
    writer.add(_exchange(2, Call.MODEL, 1, 500), b'{"input": "Oslo?"}', NESTED)
    for attempt in range(3):
        writer.add(
            _exchange(3 + attempt, Call.PROVIDER, 2, 429, attempt=attempt),
            b"{}",
            b'{"error": {"message": "slow down"}}',
        )
    writer.add(
        _exchange(6, Call.TOOL, attribution=_attributed(confidence=Confidence.HIGH)),
        b"\x00\xff\x1b[31m",
        b"\xfe\xff" * 300,
    )
    writer.add(_exchange(7, Call.RUN, status=None, attribution=_attributed(6)), row)
    for number, agent in ((8, "alpha"), (9, "beta")):
        key = RowKey(task=7, rollout=0, agent=agent)
        writer.add(_exchange(number, Call.RUN, attribution=_attributed(row=key)), row, b'{"reward": 0.5}')
    writer.add(_exchange(10, Call.RUN, attribution=_attributed(8)), row, b'{"reward": 1.0}')
    writer.add(_exchange(11, Call.HEALTH, attribution=Attribution()))
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
    writer.gap(Gap(kind=GapKind.QUEUE_FULL, at_ns=START_NS, detail="the tape had no room", count=3, size_bytes=1200))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for captures, which the command line looks into."""
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path / "captures"))
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "captures"


@pytest.fixture
def capture(home: Path) -> Path:
    """A finished capture; see `_fill`."""
    writer = CaptureWriter.create(home / "made-by-hand", command=("gym", "eval", "run"), now_ns=lambda: START_NS)
    _fill(writer)
    writer.close()
    return home / "made-by-hand"


@dataclass(frozen=True)
class Said:
    """What a command line did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def gymtap(home: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Said]:
    """`gymtap("rows", "--json")` in this process."""

    def call(*arguments: str) -> Said:
        code = execute(arguments)
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(errors="surrogateescape"), err.decode())

    return call


@pytest.fixture
def live_writer(tmp_path: Path) -> Iterator[CaptureWriter]:
    """Writes a capture that is not finished: what `_fill` says so far."""
    writer = CaptureWriter.create(tmp_path / "live")
    _fill(writer)
    writer.commit()
    yield writer
    writer.close()
