"""Time `why` and `causes` on a big capture: python benchmarks/diagnose_capture.py [--rows 12500] [--keep DIR].

Writes a capture of eight exchanges a row, of which every tenth row failed at its provider, then runs both
commands as a person would, start-up included, and prints their seconds as one JSON line.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import (
    Attribution,
    Body,
    Call,
    Confidence,
    Exchange,
    Method,
    Request,
    Response,
    RowKey,
    ServerKind,
    State,
)

STARTED_NS = 1_796_000_000_000_000_000
ERROR = b'{"error":{"message":"This model\'s maximum context length is 8192 tokens.","code":400}}'
NESTED = json.dumps(f"Hit an exception in SimpleAgent___a calling an inner server: {ERROR!r}").encode()
CHAT = b'{"choices":[{"message":{"content":"4"},"finish_reason":"stop"}]}'
KINDS = {
    Call.RUN: ServerKind.AGENT,
    Call.RESPONSES: ServerKind.AGENT,
    Call.MODEL: ServerKind.MODEL,
    Call.PROVIDER: ServerKind.PROVIDER,
}


def exchange(number: int, call: Call, parent: int | None, status: int, row: RowKey) -> Exchange:
    """One finished exchange of a row."""
    kind = KINDS.get(call, ServerKind.RESOURCES)
    body = Body(digest=None, size_bytes=0)
    return Exchange(
        id=f"a{number}",
        server=str(kind),
        kind=kind,
        call=call,
        state=State.DONE,
        started_ns=STARTED_NS + number * 1_000_000,
        request=Request(method="POST", target=f"/{call}", headers=(), body=body),
        response=Response(status=status, reason="", headers=(), body=body, first_byte_ms=1.0, ended_ms=2.0),
        duration_ms=2.0,
        parent=None if parent is None else f"a{parent}",
        attribution=Attribution(row=row, method=Method.BODY, confidence=Confidence.CERTAIN),
    )


def write_row(writer: CaptureWriter, task: int, number: int) -> int:
    """Eight exchanges of one row; the number of the last."""
    failed = task % 10 == 3
    key = RowKey(task=task, rollout=0, agent="a")
    ended, outer = (500, NESTED) if failed else (200, b'{"reward": 1.0}')
    inner = (400, ERROR) if failed else (200, CHAT)
    root = number + 1
    plan = [
        (Call.RUN, None, ended, outer),
        (Call.RUN, root, ended, outer),
        (Call.SEED_SESSION, root + 1, 200, b"{}"),
        (Call.RESPONSES, root + 1, ended, outer),
        (Call.MODEL, root + 3, ended, outer),
        (Call.PROVIDER, root + 4, *inner),
        *([(Call.PROVIDER, root + 4, *inner)] * 2 if failed else [(Call.TOOL, root + 3, 200, b"{}")]),
        *([] if failed else [(Call.VERIFY, root + 1, 200, b'{"reward": 1.0}')]),
    ]
    sent = b'{"_ng_task_index": %d, "responses_create_params": {"input": "x"}}' % task
    for place, (call, parent, status, body) in enumerate(plan):
        writer.add(exchange(root + place, call, parent, status, key), sent, body)
    return number + len(plan)


def write_capture(path: Path, rows: int) -> int:
    """A capture of that many rows; how many exchanges it holds."""
    writer, number = CaptureWriter.create(path), 0
    for task in range(rows):
        number = write_row(writer, task, number)
        if task % 500 == 0:
            writer.commit()
    writer.close()
    return number


def seconds(*arguments: str) -> float:
    """How long a command takes, from its start to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "gymtap", *arguments], check=True, capture_output=True)
    return round(time.perf_counter() - started, 2)


def main() -> None:
    """Write, time, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=12_500)
    parser.add_argument("--keep", type=Path, help="keep the capture there, and use it if it is there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.keep or Path(folder) / "capture"
        count = None if path.exists() else write_capture(path, arguments.rows)
        timed = {"why_s": seconds("why", "-c", str(path)), "causes_s": seconds("causes", str(path))}
        print(json.dumps({"exchanges": count, **timed}))


if __name__ == "__main__":
    main()
