"""The border: JSON of unknown origin into checked values, and errors that name the file and the line.

What strict parsers refuse and Python writes (NaN, lone surrogates) is read all the same: recordings of failures
are full of it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.events import RawHeaders

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000


class Fields(BaseModel):
    """Fields of another tool's record; those that are not ours to read are let be."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def parse_json(text: bytes) -> Any:
    """A JSON document, with NaN and lone surrogates. Raises json.JSONDecodeError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text.decode("utf-8", "surrogateescape"))


def refuse(place: str, why: str, hint: str = "") -> UsageError:
    """The error for what cannot be read; `place` is `FILE:LINE`."""
    return UsageError(f"{place}: {why}", hint)


def checked[T: Fields](model: type[T], value: Any, place: str) -> T:
    """The value as that model. Raises UsageError, naming the first field that is wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise refuse(place, f"{where}: {first['msg']}" if where else first["msg"]) from None


def json_lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Every line that is not blank, with its number from 1. Raises UsageError for one that is not JSON."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _parsed(file, number, line)


def _parsed(file: Path, number: int, line: bytes) -> Any:
    try:
        return parse_json(line)
    except (json.JSONDecodeError, RecursionError) as error:
        cut = "" if line.endswith(b"\n") else "; the file may have been cut off there"
        raise refuse(f"{file}:{number}", f"not JSON: {_why(error)}{cut}") from None


def document(file: Path) -> Any:
    """The whole file as one JSON document. Raises UsageError with its line and column where it is none."""
    try:
        return parse_json(file.read_bytes())
    except json.JSONDecodeError as error:
        raise refuse(f"{file}:{error.lineno}", f"not JSON: {_why(error)} at column {error.colno}") from None
    except RecursionError:
        raise refuse(f"{file}:1", "not JSON that can be read: it is nested too deeply") from None


def _why(error: Exception) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"


def raw_headers(given: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> RawHeaders:
    """Header fields of a mapping (a list is a repeated field) or of pairs, in their order."""
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    found: list[tuple[bytes, bytes]] = []
    for name, value in pairs:
        found += [(as_bytes(name), as_bytes(one)) for one in (value if isinstance(value, list) else [value])]
    return tuple(found)


def as_bytes(text: object) -> bytes:
    """Text as it may have stood in a header: latin-1 where that can say it, else UTF-8."""
    try:
        return str(text).encode("latin-1")
    except UnicodeEncodeError:
        return str(text).encode("utf-8", "surrogatepass")


def body_bytes(value: Any) -> bytes:
    """A body that is recorded as text, or as the JSON value that it was; None is an empty one."""
    if value is None:
        return b""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()
