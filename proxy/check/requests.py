"""The requests that carry tools, in files: rows of a dataset, request bodies, tool lists.

A place is said the way people look it up: `file:line`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from gymtap.proxy.core.errors import UsageError


class Carrier(NamedTuple):
    """A row or request body, and where it was found."""

    where: str
    row: dict[str, Any]


def carriers(source: Path) -> Iterator[Carrier | str]:
    """Every row or request of a file, or a folder of them; a string says what could not be read.

    Raises UsageError when the source is not there.
    """
    if source.is_dir():
        yield from _folder(source)
    elif source.is_file():
        yield from _file(source)
    else:
        raise UsageError(f"{source}: no such file or directory", "name a .jsonl or .json file, a folder, or a capture")


def _folder(folder: Path) -> Iterator[Carrier | str]:
    for file in sorted(folder.rglob("*.jsonl")):
        yield from _file(file)


def _file(file: Path) -> Iterator[Carrier | str]:
    if file.suffix == ".json":
        yield from _document(file)
        return
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield from carriers_in(f"{file}:{number}", line)


def _document(file: Path) -> Iterator[Carrier | str]:
    for index, part in enumerate(_parts(file.read_bytes())):
        yield from _shaped(f"{file}[{index}]", part)


def _parts(data: bytes) -> list[Any]:
    """The members of a JSON document: itself, or its elements when it is a list of rows or requests."""
    try:
        document = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        return [error]
    if isinstance(document, list) and any(_is_carrier(part) for part in document):
        return document
    return [document]


def _is_carrier(part: Any) -> bool:
    return isinstance(part, dict) and ("tools" in part or "responses_create_params" in part)


def carriers_in(where: str, line: bytes) -> Iterator[Carrier | str]:
    """The row or request in one line of JSON, or one body."""
    try:
        row = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        yield f"{where}: not JSON ({error}); `gymtap check rows` says more"
        return
    yield from _shaped(where, row)


def _shaped(where: str, part: Any) -> Iterator[Carrier | str]:
    if isinstance(part, orjson.JSONDecodeError):
        yield f"{where}: not JSON ({part})"
    elif isinstance(part, list):
        yield Carrier(where, {"tools": part})
    elif isinstance(part, dict) and "parameters" in part and not _is_carrier(part):
        yield Carrier(where, {"tools": [{"type": "function", "strict": True, **part}]})
    elif isinstance(part, dict):
        yield Carrier(where, part)
