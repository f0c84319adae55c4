"""The formats that pydantic gives its own types in an OpenAPI document, read as pydantic reads them.

JSON Schema's formats are stricter than pydantic (a UUID without dashes, a date as a number), so its own reading
decides. Any other format says nothing.
"""

import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from pydantic import TypeAdapter, ValidationError

_TYPES: dict[str, Any] = {
    "uuid": uuid.UUID,
    "uuid4": uuid.UUID,
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
}
_OTHERS = (
    "email", "idn-email", "hostname", "idn-hostname", "uri", "uri-reference", "iri", "iri-reference", "uri-template",
    "json-pointer", "relative-json-pointer", "regex",
)  # fmt: skip


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_TYPES[name])


def reads(name: str, value: Any) -> bool:
    """Whether pydantic's type of this format takes the value; False for a format that is none of its types'."""
    if name not in _TYPES:
        return False
    try:
        _adapter(name).validate_python(value)
    except ValidationError:
        return False
    return True


def checkers() -> dict[str, Callable[[str], bool]]:
    """For jsonschema-rs: one for each format, that of others saying yes."""
    checked: dict[str, Callable[[str], bool]] = {name: lambda text, name=name: reads(name, text) for name in _TYPES}  # type: ignore[misc]  # the default binds the name
    return checked | {name: lambda _text: True for name in _OTHERS}
