"""Makes tests/data/capture-format-1: run it once for each new format, with a new name, and never again.

A capture of each format stays beside the tests for ever, so that every later gymtap is known to read it.
"""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from gymtap.proxy.core.addon import Addon
from gymtap.proxy.core.events import Answered, Ended, Event, Opened, RequestData, RequestDone, ResponseData, Tape
from gymtap.proxy.core.flow import Flow
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import (
    FORMAT_VERSION,
    Attribution,
    Call,
    Confidence,
    Finding,
    Gap,
    GapKind,
    Method,
    RowKey,
    Server,
    ServerKind,
    Severity,
    TransportError,
    TransportErrorKind,
)

AGENT = Server(name="agent", kind=ServerKind.AGENT, listen="http://127.0.0.1:5001", upstream="http://127.0.0.1:6001")
MODEL = Server(name="model", kind=ServerKind.MODEL, listen="http://127.0.0.1:5002", upstream="http://127.0.0.1:6002")
BEGIN_NS = 1_790_000_000_000_000_000
MS = 1_000_000
REFUSED = TransportError(kind=TransportErrorKind.REFUSED, message="connection refused")


class Identity(Addon):
    """Knows the rows of this transcript."""

    def requested(self, flow: Flow) -> None:
        flow.call = Call.RUN if flow.path == "/run" else Call.MODEL
        flow.parent = None if flow.call is Call.RUN else "a1"
        row = RowKey(task=int(flow.header("x-task") or 0), rollout=0, agent="agent")
        flow.attribution = Attribution(
            row=row, method=Method.BODY, confidence=Confidence.CERTAIN, evidence="in the body"
        )


def exchange(
    number: int, server: Server, request: bytes, answer: tuple[int, bytes] | TransportError, *, task: int = 3
) -> list[Event]:
    target = "/run" if server is AGENT else "/v1/responses"
    began = BEGIN_NS + number * MS
    headers = ((b"Authorization", b"Bearer not-kept"), (b"X-Task", str(task).encode()))
    events: list[Event] = [
        Opened(number, server, began, began, "127.0.0.1:9", "POST", target, "1.1", headers),
        RequestData(number, request),
        RequestDone(number, began + MS),
    ]
    if isinstance(answer, TransportError):
        events.append(Ended(number, began + 2 * MS, answer))
    else:
        status, body = answer
        events.append(Answered(number, began + 2 * MS, status, "OK", ((b"content-type", b"application/json"),)))
        events += [ResponseData(number, body), Ended(number, began + 3 * MS)]
    return events


def make(directory: Path) -> None:
    """Two rows, four exchanges, one of each thing a capture can hold."""
    tape = Tape(2**20)
    writer = CaptureWriter.create(directory, command=("gym", "eval", "run"), now_ns=lambda: BEGIN_NS)
    recorder = Recorder(tape, writer, [Identity()])
    history = b'{"input": ["' + b"once upon a time " * 100 + b'"'
    for event in (
        *exchange(1, AGENT, b'{"_ng_task_index": 3}', (200, b'{"reward": 0.5}')),
        *exchange(2, MODEL, history + b'], "api_key": "not-kept"}', (500, b'"KeyError(1)"')),
        *exchange(3, MODEL, history + b', "two"]}', REFUSED),
        *exchange(4, AGENT, b"{}", (500, b'"Hit an exception"'), task=4),
    ):
        tape.put(event)
    recorder.drain()
    writer.finding(Finding(rule="golden.rule", severity=Severity.WARNING, message="a finding", exchange="a2"))
    writer.gap(Gap(kind=GapKind.UNPARSED, at_ns=BEGIN_NS, detail="a gap", count=1))
    recorder.close()
    shrink(directory / "a.sqlite")


def shrink(file: Path) -> None:
    """Small pages for a small file, and nothing of the machine that made it."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE meta SET value = 'elsewhere' WHERE key = 'place'")
        connection.commit()
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")


if __name__ == "__main__":
    make(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / f"capture-format-{FORMAT_VERSION}"))
