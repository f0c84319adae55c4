"""What the API answers, read from captures: each request opens the capture anew, so nothing is shared between them.

A capture is named as the list names it; no name is ever a path.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from gymtap.proxy.core.errors import CaptureError, UsageError
from gymtap.proxy.diagnose.capture import causes, diagnose_row
from gymtap.proxy.store import Capture, captures, is_capture
from gymtap.schemas import Body, Call, RowKey, RowState, ServerKind

LIMIT = 100
LIMIT_MAX = 1_000


class Shelf:
    """The captures under a root, and those that were named besides, by their names."""

    def __init__(self, root: Path, named: tuple[Path, ...] = ()) -> None:
        self._root = root
        self._named = {path.name: path for path in named}

    def infos(self) -> list[dict[str, Any]]:
        """What each capture says of itself, the named ones first, then by age."""
        named = [Capture(path).info() for path in self._named.values()]
        others = [info for info in captures(self._root) if Path(info.path).name not in self._named]
        return [{"name": Path(info.path).name} | info.model_dump(mode="json") for info in [*named, *others]]

    @contextmanager
    def opened(self, name: str) -> Iterator[Capture]:
        """That capture, until the block ends. Raises CaptureError."""
        capture = Capture(self.path(name))
        try:
            yield capture
        finally:
            capture.close()

    def path(self, name: str) -> Path:
        """Where that capture is. Raises CaptureError."""
        found = self._named.get(name)
        if found is not None:
            return found
        path = self._root / name
        if "/" in name or name in {"", ".", ".."} or not is_capture(path):
            raise CaptureError(f"{name}: no such capture", "/v1/captures lists them")
        return path


def info(capture: Capture) -> dict[str, Any]:
    """What a capture says of itself."""
    return {"name": capture.path.name} | capture.info().model_dump(mode="json")


def rows(capture: Capture, query: dict[str, str]) -> dict[str, Any]:
    """A page of rows; `failed`, `state`, `agent`, `task` choose."""
    found = capture.rows(
        failed=_flag(query, "failed"),
        state=RowState(query["state"]) if "state" in query else None,
        agent=query.get("agent"),
        task=_number(query, "task"),
    )
    page, more = _page(found, query)
    return {"rows": [{"label": row.key.label} | row.model_dump(mode="json") for row in page], "more": more}


def row(capture: Capture, label: str) -> dict[str, Any]:
    """One row, with its exchanges."""
    found = capture.row(_key(label))
    exchanges = [one.model_dump(mode="json") for one in capture.exchanges(row=found.key)]
    return {"row": {"label": found.key.label} | found.model_dump(mode="json"), "exchanges": exchanges}


def diagnosis(capture: Capture, label: str) -> dict[str, Any]:
    """Why a row went as it did."""
    return diagnose_row(capture, capture.row(_key(label)), now_ns=time.time_ns()).model_dump(mode="json")


def all_causes(capture: Capture) -> dict[str, Any]:
    """Failed rows grouped by cause, the most frequent first."""
    found = causes(capture, now_ns=time.time_ns())
    return {"causes": [asdict(cause) | {"example": cause.example.model_dump(mode="json")} for cause in found]}


def exchanges(capture: Capture, query: dict[str, str]) -> dict[str, Any]:
    """A page of exchanges; `row`, `call`, `kind`, `server`, `failed` choose."""
    key = capture.row(_key(query["row"])).key if "row" in query else None
    found = capture.exchanges(
        row=key,
        call=Call(query["call"]) if "call" in query else None,
        kind=ServerKind(query["kind"]) if "kind" in query else None,
        server=query.get("server"),
        failed=_flag(query, "failed"),
    )
    page, more = _page(found, query)
    return {"exchanges": [one.model_dump(mode="json") for one in page], "more": more}


def exchange(capture: Capture, name: str) -> dict[str, Any]:
    """One exchange, with what checks said of it."""
    found = capture.exchange(name)
    said = [finding.model_dump(mode="json") for finding in capture.findings(exchange=name)]
    return {"exchange": found.model_dump(mode="json"), "findings": said}


def body(capture: Capture, name: str, side: str) -> tuple[Body | None, str]:
    """A body's record, and the media type that its headers name. Raises CaptureError for a side that is not there."""
    found = capture.exchange(name)
    message = found.request if side == "request" else found.response if side == "response" else None
    if message is None:
        raise CaptureError(f"{name} has no {side}", "`request` and `response` are the sides")
    media = next((value for field, value in message.headers if field.lower() == "content-type"), "")
    return message.body, media


def _key(label: str) -> RowKey:
    try:
        return RowKey.parse(label)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _flag(query: dict[str, str], name: str) -> bool | None:
    said = query.get(name)
    if said is None:
        return None
    if said not in {"true", "false"}:
        raise UsageError(f"{name}={said}", "write true or false")
    return said == "true"


def _number(query: dict[str, str], name: str) -> int | None:
    said = query.get(name)
    if said is None:
        return None
    if not said.isascii() or not said.isdigit():
        raise UsageError(f"{name}={said} is not a number")
    return int(said)


def _page[T](found: Iterator[T], query: dict[str, str]) -> tuple[list[T], bool]:
    """`limit` after `offset`, and whether there is more."""
    limit = min(_number(query, "limit") or LIMIT, LIMIT_MAX)
    offset = _number(query, "offset") or 0
    page = list(islice(found, offset, offset + limit + 1))
    return page[:limit], len(page) > limit
