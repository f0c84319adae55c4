"""The border: JSON of unknown origin into checked values, and errors that name the file and the line.

What strict parsers refuse and Python writes (NaN, lone surrogates) is read all the same: recordings of failures
are full of it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.events import RawHeaders
from gymtap.proxy.core.recorded import LeftOut
from gymtap.proxy.imports.json_stream import Scanner, StreamError

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000

_BOM = b"\xef\xbb\xbf"


def _without_surrogates(value: Any) -> Any:
    """Halves of characters, which no file of text can hold, are written as they would be in source."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_without_surrogates)]
Seconds = Annotated[float, Field(ge=0, le=9e9)]
"""Since the epoch, or a recording's beginning: what nanoseconds in 64 bits can say."""
Milliseconds = Annotated[float, Field(ge=-1e11, le=1e11)]
"""Three years at most."""
Status = Annotated[int, Field(ge=0, le=999)]


class Fields(BaseModel):
    """Fields of another tool's record; those that are not ours to read are let be."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


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


def json_lines[T](
    file: Path, take: Callable[[Any, str], T], parse: Callable[[bytes], Any] = parse_json
) -> Iterator[T | LeftOut]:
    """What `take` makes of each line that is not blank, given its value and its `FILE:LINE`.

    A line that is no JSON to `parse`, or that `take` refuses with a UsageError, is left out, with the reason.
    """
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                place = f"{file}:{number}"
                yield _taken(take, partial(_parsed, parse, place, line), place)


def _parsed(parse: Callable[[bytes], Any], place: str, line: bytes) -> Any:
    try:
        return parse(line.removeprefix(_BOM))
    except (json.JSONDecodeError, RecursionError) as error:
        cut = "" if line.endswith(b"\n") else "; the file may have been cut off there"
        raise refuse(place, f"not JSON: {_why(error)}{cut}") from None


def elements[T](scanner: Scanner, file: Path, path: str, take: Callable[[Any, str], T]) -> Iterator[T | LeftOut]:
    """What `take` makes of each element of the array at which the scanner stands, as `json_lines` does.

    `path` is what the array is called. Where the document stops being one, what was behind it is left out.
    """
    try:
        for number in scanner.elements():
            place = f"{file}: {path}[{number}]"
            yield _taken(take, partial(_element, place, scanner.value()), place)
    except StreamError as error:
        yield LeftOut(not_whole(file, error), count=None)


def _taken[T](take: Callable[[Any, str], T], parse: Callable[[], Any], place: str) -> T | LeftOut:
    try:
        return take(parse(), place)
    except UsageError as error:
        return LeftOut(str(error), error.hint)


def _element(place: str, text: bytes) -> Any:
    try:
        return parse_json(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise refuse(place, f"not JSON: {_why(error)}") from None


def not_whole(file: Path, error: StreamError) -> str:
    """Where a document stops being one."""
    return f"{file}:{error.line}: not JSON: {error} (byte {error.byte:,})"


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
        return _encoded(str(text))


def _encoded(text: str) -> bytes:
    """Halves of characters are bytes that were no UTF-8, as Python reads them (PEP 383), or stand for themselves."""
    for errors in ("strict", "surrogateescape"):
        try:
            return text.encode("utf-8", errors)
        except UnicodeEncodeError:
            continue
    return text.encode("utf-8", "surrogatepass")


def body_bytes(value: Any) -> bytes:
    """A body that is recorded as text, or as the JSON value that it was; None is an empty one."""
    if value is None:
        return b""
    if isinstance(value, str):
        return _encoded(value)
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()
