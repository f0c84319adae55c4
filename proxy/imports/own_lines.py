"""Our own JSON lines (`gymtap export --format jsonl`, docs/exports.md): kept as they are, not seen anew."""

import base64
import binascii
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from gymtap.proxy.core.recorded import Kept, Recording
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


def is_own(value: Any) -> bool:
    """Whether a line's value is one of these, of any version."""
    return isinstance(value, dict) and str(value.get("schema", "")).startswith("gymtap.")


def read_own(file: Path) -> list[Recording]:
    """The file as one recording. Raises UsageError."""
    recording = Recording(file)
    ids: set[str] = set()
    for number, value in json_lines(file):
        place = f"{file}:{number}"
        schema = value.get("schema") if isinstance(value, dict) else None
        if schema == CAPTURE_SCHEMA:
            recording.gaps += checked(_Capture, value, place).gaps
        elif schema == EXCHANGE_SCHEMA:
            line = checked(_Line, value, place)
            if line.exchange.id in ids:
                raise refuse(place, f"{line.exchange.id} is there already: each exchange stands once in a file")
            ids.add(line.exchange.id)
            recording.kept.append(_kept(line, place))
        else:
            raise refuse(place, f"schema {schema!r} is none that can be imported", f"exchanges are {EXCHANGE_SCHEMA}")
    return [recording]


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
