"""Which format a file is in, told from its beginning and never from its name.

Of JSON it is the names in the first value that tell; if that cannot be read (a file whose head was cut off), the first
line that can.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Recording
from gymtap.proxy.imports.boundary_flows import read_flows
from gymtap.proxy.imports.exchange_lists import read_document, read_lines, read_reports
from gymtap.proxy.imports.fields import not_whole, parse_json
from gymtap.proxy.imports.har import read_har
from gymtap.proxy.imports.json_stream import Scanner, StreamError
from gymtap.proxy.imports.model_calls import read_model_calls
from gymtap.proxy.imports.own_lines import read_own

type Read = Callable[[Path], Iterator[Recording]]

_SQLITE = b"SQLite format 3"
_TNETSTRING = re.compile(rb"\d{1,9}:")
_HINT = "docs/exports.md says what can be read"
_LINES: tuple[tuple[frozenset[str], Read], ...] = (
    (frozenset({"hop", "path"}), read_flows),
    (frozenset({"model_call_id"}), read_model_calls),
    (frozenset({"boundary", "request"}), read_lines),
    (frozenset({"schema"}), read_own),
)
_LINES_TRIED = 100
_LISTS = (b"[", b"n")
"""How a list begins, or null in its place."""


def read(file: Path) -> Iterator[Recording]:
    """The recordings in a file. Raises UsageError, with the file and the line, for what is in no format we know."""
    try:
        reader = _reader(file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}", "name files that can be read, not folders") from None
    return reader(file)


def _reader(file: Path) -> Read:
    with file.open("rb") as content:
        start = content.read(64)
        if _TNETSTRING.match(start):
            return _read_flow_file
        if start.startswith(_SQLITE):
            raise UsageError(f"{file}: a capture already", f"look at it as it is: gymtap rows {file.parent}")
        content.seek(0)
        scanner = Scanner(content)
        if not scanner.peek():
            raise UsageError(f"{file}: empty", _HINT)
        try:
            found = _by_first_value(scanner)
        except StreamError as error:
            found = _by_any_line(file)
            if found is None:
                raise UsageError(not_whole(file, error), _HINT) from None
    if found is None:
        raise UsageError(f"{file}:1: no format that is known", _HINT)
    return found


def _read_flow_file(file: Path) -> Iterator[Recording]:
    """mitmproxy's, which is slow to load."""
    from gymtap.proxy.mitm.flow_file import read_flow_file  # noqa: PLC0415 - the same

    return read_flow_file(file)


def _by_first_value(scanner: Scanner) -> Read | None:
    if scanner.peek() == b"[":
        return read_document
    begins, names = scanner.line, set[str]()
    try:
        for name in scanner.members():
            names |= {name} if name != "exchanges" or scanner.peek() in _LISTS else set()
            if name != "log" or scanner.peek() != b"{":
                scanner.skip()
            elif scanner.find("entries"):
                return read_har
    except StreamError:
        if "exchanges" in names:
            return read_document
        raise
    if "exchanges" in names:
        return read_reports if scanner.line == begins else read_document
    return _by_names(names)


def _by_names(names: set[str]) -> Read | None:
    return next((read for wanted, read in _LINES if wanted <= names), None)


def _by_any_line(file: Path) -> Read | None:
    with file.open("rb") as content:
        for line in islice(content, _LINES_TRIED):
            try:
                value = parse_json(line)
            except (json.JSONDecodeError, RecursionError):
                continue
            found = _by_names(set(value)) if isinstance(value, dict) else None
            if found is not None:
                return found
    return None
