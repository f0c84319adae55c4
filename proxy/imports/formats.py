"""Which format a file is in, told from its beginning and never from its name, and reading it.

JSON lines are told from a document by their first line being a whole value; which lines, by the fields of the first.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Recording
from gymtap.proxy.imports.boundary_flows import is_line, read_flows
from gymtap.proxy.imports.exchange_lists import is_item, read_document, read_lines
from gymtap.proxy.imports.fields import document, parse_json
from gymtap.proxy.imports.har import is_har, read_har
from gymtap.proxy.imports.model_calls import is_model_call, read_model_calls
from gymtap.proxy.imports.own_lines import is_own, read_own

type Read = Callable[[Path], list[Recording]]

_SQLITE = b"SQLite format 3"
_TNETSTRING = re.compile(rb"\d{1,9}:")
_HINT = "docs/exports.md says what can be read"
_LINES: tuple[tuple[Callable[[Any], bool], Read], ...] = (
    (is_own, read_own),
    (is_line, read_flows),
    (is_model_call, read_model_calls),
    (is_har, read_har),
    (is_item, read_lines),
)


def read(file: Path) -> list[Recording]:
    """The recordings in a file. Raises UsageError, with the file and the line, for what cannot be read."""
    try:
        return _reader(file)(file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}", "name files, not folders") from None


def _reader(file: Path) -> Read:
    with file.open("rb") as content:
        start = content.read(64)
        if _TNETSTRING.match(start):
            return _read_flow_file
        if start.startswith(_SQLITE):
            raise UsageError(f"{file}: a capture already", f"look at it as it is: gymtap rows {file.parent}")
        if not start.strip():
            content.seek(0)
            start = content.read().strip()
        content.seek(0)
        first = next((line for line in content if line.strip()), b"")
    if not start.strip():
        raise UsageError(f"{file}: empty", _HINT)
    return _by_first_line(file, first)


def _read_flow_file(file: Path) -> list[Recording]:
    """mitmproxy's, which is slow to load."""
    from gymtap.proxy.mitm.flow_file import read_flow_file  # noqa: PLC0415 - the same

    return read_flow_file(file)


def _by_first_line(file: Path, first: bytes) -> Read:
    try:
        value = parse_json(first)
    except (json.JSONDecodeError, RecursionError):
        return _read_document
    for is_kind, reader in _LINES:
        if is_kind(value):
            return reader
    if isinstance(value, dict) and "exchanges" in value:
        return read_lines
    if isinstance(value, list):
        return read_document
    raise UsageError(f"{file}:1: no format that is known", _HINT)


def _read_document(file: Path) -> list[Recording]:
    """A document over several lines, or one that is cut off: reading it says where."""
    return read_har(file) if is_har(document(file)) else read_document(file)
