"""Packs one row into one file: all that is needed to read, diagnose and replay it on another machine.

The file is a capture like any other, so everything that opens captures opens it. It is redacted once more
while it is written, cookies' signatures included, whatever the tap was told to keep.
"""

import json
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from gymtap.proxy.core.errors import CaptureError, UsageError
from gymtap.proxy.core.redaction import PLACEHOLDER
from gymtap.proxy.replay.load import recorded
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.store import Capture, CaptureWriter, is_capture
from gymtap.schemas import ROWLESS_CALLS, Call, Exchange, Request, Response, Row, RowKey
from gymtap.schemas._model import Model

_META_KEY = "bundle"
_PAGE_BYTES = 1024
"""A dozen tables and indexes of which most are nearly empty: with small pages the file is a fifth of its size."""


class Contents(Model):
    """What a bundle says of itself. `row` is what it was made for, `beside` a row of the same task that went well.

    `redacted` counts secrets that are not in it, `missing_bytes` what the tap had not kept, `left_out` the rows
    and exchanges of the capture that are not in it.
    """

    row: str
    agent: str | None
    beside: str | None
    exchanges: int
    bodies: int
    body_bytes: int
    redacted: int
    missing_bytes: int
    left_out_rows: int
    left_out_exchanges: int


def make(capture: Capture, row: Row, file: Path, *, beside: Row | None = None, overwrite: bool = False) -> Contents:
    """Write a bundle of one row, and of `beside`, which a diagnosis compares it with.

    Raises UsageError for a file that is there, CaptureError for one that cannot be written.
    """
    if file.exists() and not overwrite:
        raise UsageError(f"{file} exists", "name another file, or add --force")
    if is_capture(file.absolute().parent):
        raise UsageError(f"{file} would lie in a capture", "name a place outside of it")
    found = _chosen(capture, row, beside)
    contents = _contents(capture, row, beside, found)
    try:
        with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=".gymtap-bundle-") as directory:
            written = _write(capture, Path(directory) / "capture", found, contents)
            written.replace(file)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CaptureError(f"{file}: cannot be written: {reason}", "name another place") from error
    return contents


def contents(file: Path) -> Contents | None:
    """What a file says of itself; None when it is no bundle."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT value FROM meta WHERE key = ?", (_META_KEY,)).fetchone()
    except sqlite3.Error:
        return None
    return Contents.model_validate_json(found[0]) if found else None


def row_of(said: Contents) -> RowKey:
    """The row that a bundle was made for."""
    return RowKey(**{**RowKey.parse(said.row).model_dump(), "agent": said.agent})


def _chosen(capture: Capture, row: Row, beside: Row | None) -> list[Recorded]:
    """The rows' exchanges, and of what belongs to no row the last of each kind (configuration, /v1/models)."""
    chosen = [one for key in (row, beside) if key is not None for one in capture.exchanges(row=key.key)]
    about: dict[tuple[str, str, str], Exchange] = {}
    for call in ROWLESS_CALLS - {Call.AGGREGATE}:
        for one in capture.exchanges(call=call):
            about[one.server, one.request.method, one.request.target] = one
    return [recorded(capture, one) for one in [*about.values(), *chosen]]


def _contents(capture: Capture, row: Row, beside: Row | None, found: Sequence[Recorded]) -> Contents:
    exchanges = [one.exchange for one in found]
    answers = [one.response for one in exchanges if one.response is not None]
    sides: list[Request | Response] = [*(one.request for one in exchanges), *answers]
    bodies = [side.body for side in sides if side.body is not None]
    secrets = [value for side in sides for _, value in side.headers if PLACEHOLDER in value]
    info = capture.info()
    return Contents(
        row=row.key.label,
        agent=row.key.agent,
        beside=beside.key.label if beside else None,
        exchanges=len(exchanges),
        bodies=len({body.digest for body in bodies if body.digest}),
        body_bytes=sum(body.size_bytes - body.missing_bytes for body in bodies),
        redacted=sum(body.redacted for body in bodies) + len(secrets),
        missing_bytes=sum(body.missing_bytes for body in bodies),
        left_out_rows=info.rows - 1 - (beside is not None),
        left_out_exchanges=info.exchanges - len(exchanges),
    )


def _write(capture: Capture, directory: Path, found: Sequence[Recorded], said: Contents) -> Path:
    info = capture.info()
    writer = CaptureWriter.create(directory, command=info.command)
    for server in info.servers:
        writer.listening(server)
    for one in found:
        writer.add(one.exchange, one.request_body, one.response_body)
        for finding in capture.findings(exchange=one.exchange.id):
            writer.finding(finding)
    names = {one.exchange.server for one in found}
    for contract in capture.contracts():
        if contract.server in names:
            writer.contract(contract.server, capture.document(contract), contract.problem or "")
    for gap in info.gaps:
        writer.gap(gap)
    writer.close()
    with closing(sqlite3.connect(writer.file, isolation_level=None)) as connection:
        connection.execute("INSERT INTO meta VALUES (?, ?)", (_META_KEY, json.dumps(said.model_dump(mode="json"))))
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("VACUUM")
    return writer.file
