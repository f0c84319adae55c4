"""The rows that a capture saw, as the collector sent them, in one file for each resources server that they met.

They are written out again as lines, so that what checks a dataset checks them as well; a line's number leads back to
the row's label.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from gymtap.proxy.store import Capture
from gymtap.schemas import Call, RowKey

_MEETS = (Call.VERIFY, Call.SEED_SESSION, Call.TOOL)


@dataclass
class RowsOf:
    """Rows for one server, None where none was seen. Line n of `file` is the row `labels[n - 1]`."""

    server: str | None
    file: Path
    labels: list[str] = field(default_factory=list)


def captured_rows(capture: Capture, folder: Path, *, failed: bool) -> list[RowsOf]:
    """Write the rows into `folder`; `failed` only those that failed. Of a row that was sent again, the first time."""
    found: dict[str | None, RowsOf] = {}
    for row in capture.rows(failed=True if failed else None):
        for line in _sent(capture, row.key):
            server = _server(capture, row.key)
            rows = found.setdefault(server, RowsOf(server, folder / f"{len(found)}.jsonl"))
            rows.labels.append(row.key.label)
            with rows.file.open("ab") as file:
                file.write(line + b"\n")
    return list(found.values())


def _sent(capture: Capture, key: RowKey) -> Iterator[bytes]:
    """The body of the outermost /run; of a row without one, that of its /verify, which has all of the row's fields."""
    for call in (Call.RUN, Call.VERIFY):
        for one in capture.exchanges(row=key, call=call):
            if content := capture.body(one.request.body):
                yield _one_line(content)
                return


def _one_line(content: bytes) -> bytes:
    try:
        return orjson.dumps(orjson.loads(content))
    except orjson.JSONDecodeError:
        return content.replace(b"\n", b" ")


def _server(capture: Capture, key: RowKey) -> str | None:
    met = (next(iter(capture.exchanges(row=key, call=call, limit=1)), None) for call in _MEETS)
    return next((one.server for one in met if one is not None), None)
