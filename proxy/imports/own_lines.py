"""Our own JSON lines (`gymtap export --format jsonl`, docs/exports.md): kept as they are, not seen anew."""

import base64
import binascii
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import Field

from gymtap.proxy.core.recorded import Item, Kept, Recording
from gymtap.proxy.imports.fields import Fields, checked, json_lines, refuse
from gymtap.schemas import Exchange, Finding, Gap, Server

EXCHANGE_SCHEMA = "gymtap.exchange/1"
CAPTURE_SCHEMA = "gymtap.capture/1"


class _Content(Fields):
    text: str | None = None
    base64: str | None = None


class _Capture(Fields):
    capture_schema: Literal["gymtap.capture/1"] = Field(alias="schema")
    gaps: tuple[Gap, ...] = ()


class _Line(Fields):
    exchange_schema: Literal["gymtap.exchange/1"] = Field(alias="schema")
    exchange: Exchange
    server: Server | None = None
    request_body: _Content | None = None
    response_body: _Content | None = None
    findings: tuple[Finding, ...] = ()


def read_own(file: Path) -> Iterator[Recording]:
    """Each export in the file as one recording: they may stand one after another."""
    for _, items in groupby(_numbered(file), lambda one: one[0]):
        yield Recording(file, (item for _, found in items for item in found))


def _numbered(file: Path) -> Iterator[tuple[int, tuple[Item, ...]]]:
    """Of each line the number of its export, and what it holds."""
    number = 0
    for item in json_lines(file, _item, orjson.loads):
        number += isinstance(item, _Capture)
        yield number, item.gaps if isinstance(item, _Capture) else (item,)


def _item(value: Any, place: str) -> Kept | _Capture:
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema == CAPTURE_SCHEMA:
        return checked(_Capture, value, place)
    if schema == EXCHANGE_SCHEMA:
        return _kept(checked(_Line, value, place), place)
    raise refuse(place, f"schema {schema!r} is none that can be imported", f"exchanges are {EXCHANGE_SCHEMA}")


def _kept(line: _Line, place: str) -> Kept:
    return Kept(
        exchange=line.exchange,
        server=line.server,
        request_body=_bytes(line.request_body, place),
        response_body=_bytes(line.response_body, place),
        findings=line.findings,
    )


def _bytes(content: _Content | None, place: str) -> bytes | None:
    if content is None:
        return None
    if content.base64 is None:
        return (content.text or "").encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(content.base64, validate=True)
    except binascii.Error as error:
        raise refuse(place, f"a body is not base64: {error}") from None
