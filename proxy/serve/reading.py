"""What the API answers, read from captures: each request opens the capture anew, so nothing is shared between them.

A capture is named as the list names it; no name is ever a path.
"""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import Any

from gymtap.proxy.core.errors import CaptureError, UsageError
from gymtap.proxy.core.filter import parse
from gymtap.proxy.core.named import one_of
from gymtap.proxy.diagnose.capture import diagnose_row
from gymtap.proxy.diagnose.causes import causes
from gymtap.proxy.diagnose.listing import listed_rows
from gymtap.proxy.store import Capture, captures, is_capture
from gymtap.schemas import Body, Call, CaptureInfo, Exchange, RowKey, RowState, ServerKind

type Query = Mapping[str, str]

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")
_DIGITS = 18
"""As many as fit in 63 bits, which is as far as Python counts places and SQLite numbers."""

LIMIT = 100
LIMIT_MAX = 1_000


class Shelf:
    """The captures under a root, and those that were named besides, by their names."""

    def __init__(self, root: Path, named: tuple[Path, ...] = ()) -> None:
        self._root = root
        self._named = _by_name(named)

    def infos(self) -> list[dict[str, Any]]:
        """What each capture says of itself, the named ones first, then by age."""
        named = [(name, _info(path)) for name, path in self._named.items()]
        others = [(Path(info.path).name, info) for info in captures(self._root)]
        listed = [*named, *((name, info) for name, info in others if name not in self._named)]
        return [{"name": name} | info.model_dump(mode="json") for name, info in listed]

    def opened(self, name: str) -> Capture:
        """That capture, to be closed by whoever opens it. Raises CaptureError."""
        return Capture(self.path(name))

    def path(self, name: str) -> Path:
        """Where that capture is. Raises CaptureError."""
        found = self._named.get(name)
        if found is not None:
            return found
        if "/" in name or name in {"", ".", ".."} or not _is_there(self._root / name):
            raise CaptureError(f"{name}: no such capture", "/v1/captures lists them")
        return self._root / name


def _is_there(path: Path) -> bool:
    try:
        return is_capture(path)
    except OSError:  # no file can be called so
        return False


def _by_name(paths: tuple[Path, ...]) -> dict[str, Path]:
    """Each capture by its folder's name, with a number where several are called the same."""
    found: dict[str, Path] = {}
    for path in dict.fromkeys(path.resolve() for path in paths):
        names = (path.name if number == 1 else f"{path.name}~{number}" for number in count(1))
        found[next(name for name in names if name not in found)] = path
    return found


def _info(path: Path) -> CaptureInfo:
    with Capture(path) as capture:
        return capture.info()


def info(capture: Capture, name: str) -> dict[str, Any]:
    """What a capture says of itself."""
    return {"name": name} | capture.info().model_dump(mode="json")


def rows(capture: Capture, query: Query) -> dict[str, Any]:
    """A page of rows; `filter`, `failed`, `state`, `agent`, `task` choose."""
    among = _among(capture, query)
    found = capture.rows(
        failed=flag(query, "failed"),
        state=one_of(RowState, query.get("state")),
        agent=query.get("agent"),
        task=_number(query, "task"),
    )
    page, more = _page((row for row in found if among is None or row.key in among), query)
    return {"rows": [{"label": row.key.label} | row.model_dump(mode="json") for row in page], "more": more}


def row(capture: Capture, label: str) -> dict[str, Any]:
    """One row, with its exchanges: the first ones of a row that has no end of them."""
    found = capture.row(_key(label))
    page = list(capture.exchanges(row=found.key, limit=LIMIT_MAX + 1))
    return {
        "row": {"label": found.key.label} | found.model_dump(mode="json"),
        "exchanges": [one.model_dump(mode="json") for one in page[:LIMIT_MAX]],
        "more": len(page) > LIMIT_MAX,
    }


def diagnosis(capture: Capture, label: str) -> dict[str, Any]:
    """Why a row went as it did."""
    return diagnose_row(capture, capture.row(_key(label)), now_ns=time.time_ns()).model_dump(mode="json")


def all_causes(capture: Capture, query: Query) -> dict[str, Any]:
    """Failed rows grouped by cause, the most frequent first; `filter` chooses among the rows."""
    found = causes(capture, now_ns=time.time_ns(), among=_among(capture, query))
    return {"causes": [asdict(cause) | {"example": cause.example.model_dump(mode="json")} for cause in found]}


def exchanges(capture: Capture, query: Query) -> dict[str, Any]:
    """A page of exchanges; `filter`, `row`, `call`, `kind`, `server`, `failed` choose, `after` is where it begins."""
    among = _among(capture, query)
    after = capture.exchange(query["after"]) if "after" in query else None
    found = capture.exchanges(
        row=capture.row(_key(query["row"])).key if "row" in query else None,
        call=one_of(Call, query.get("call")),
        kind=one_of(ServerKind, query.get("kind")),
        server=query.get("server"),
        failed=flag(query, "failed"),
        since_ns=after.started_ns if after else None,
    )
    page, more = _page(_behind(after, (one for one in found if among is None or one.attribution.row in among)), query)
    return {"exchanges": [one.model_dump(mode="json") for one in page], "more": more}


def _behind(after: Exchange | None, found: Iterator[Exchange]) -> Iterator[Exchange]:
    """What comes after that one. Those that began with it are told apart by their order, which stays the same."""
    together: list[Exchange] = []
    for one in found:
        if after is None or one.started_ns != after.started_ns:
            yield from together
            yield one
            together, after = [], None
        elif one.id == after.id:
            together = []
        else:
            together.append(one)
    yield from together


def exchange(capture: Capture, name: str) -> dict[str, Any]:
    """One exchange, with what checks said of it."""
    found = capture.exchange(name)
    said = [finding.model_dump(mode="json") for finding in capture.findings(exchange=name)]
    return {"exchange": found.model_dump(mode="json"), "findings": said}


def body(capture: Capture, name: str, side: str) -> tuple[Body | None, str]:
    """A body's record, and the media type that its headers name, in one line, since an imported header may have more.

    Raises CaptureError for a side that is not there.
    """
    found = capture.exchange(name)
    message = found.request if side == "request" else found.response if side == "response" else None
    if message is None:
        raise CaptureError(f"{name} has no {side}", "`request` and `response` are the sides")
    media = next((value for field, value in message.headers if field.lower() == "content-type"), "")
    return message.body, _CONTROLS.sub(" ", media)


def _key(label: str) -> RowKey:
    try:
        return RowKey.parse(label)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _among(capture: Capture, query: Query) -> frozenset[RowKey] | None:
    """The rows that pass the filter; None where there is none."""
    passes = parse(query.get("filter", ""))
    return frozenset(row.line.key for row in listed_rows(capture, passes)) if passes.tests else None


def flag(query: Query, name: str) -> bool | None:
    """`true`, `false`, or None where it is not given. Raises UsageError."""
    said = query.get(name)
    if said is None:
        return None
    if said not in {"true", "false"}:
        raise UsageError(f"{name}={said}", "write true or false")
    return said == "true"


def _number(query: Query, name: str) -> int | None:
    said = query.get(name)
    if said is None:
        return None
    if not said.isascii() or not said.isdigit():
        raise UsageError(f"{name}={said} is not a number")
    if len(said) > _DIGITS:
        raise UsageError(f"{name} is too large", f"at most {_DIGITS} digits")
    return int(said)


def _page[T](found: Iterator[T], query: Query) -> tuple[list[T], bool]:
    """`limit` after `offset`, and whether there is more."""
    given = _number(query, "limit")
    if given == 0:
        raise UsageError("limit=0 asks for nothing", f"from 1 to {LIMIT_MAX}")
    limit = min(given or LIMIT, LIMIT_MAX)
    offset = _number(query, "offset") or 0
    page = list(islice(found, offset, offset + limit + 1))
    return page[:limit], len(page) > limit
