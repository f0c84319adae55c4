"""Finds the recorded answer for a request: by row, by position in the row, by what the request says.

A provider's requests carry no row, so what identifies one is its content: the fingerprint of the request
with ids renamed. The same request recorded several times (retries, repeats of a task) is answered in
recorded order. Nothing is guessed: without an equal fingerprint it is a miss, which names the recorded
request that comes nearest and the first place where they part.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from gymtap.proxy.core.calls import route
from gymtap.proxy.core.redaction import Redactor
from gymtap.proxy.replay.compare import Difference, parse, request_differences, without_ids
from gymtap.proxy.replay.recorded import Recorded, order
from gymtap.schemas import Exchange

NEAREST_MAX = 500
"""How many recorded requests are compared to explain a miss."""


@dataclass(frozen=True)
class Hit:
    """`entry` answers. `repeats` counts how often its fingerprint was asked beyond the recording."""

    entry: Recorded
    repeats: int = 0
    loose: Difference | None = None


@dataclass(frozen=True)
class Miss:
    """Nothing recorded answers. `nearest` is the recorded request that is most like it, None when there is none."""

    why: str
    nearest: Recorded | None = None
    difference: Difference | None = None

    def __str__(self) -> str:
        beside = f"; nearest is {self.nearest.exchange.id}" if self.nearest else ""
        first = f", first difference at {self.difference}" if self.difference else ""
        return f"{self.why}{beside}{first}"


def fingerprint(method: str, path: str, body: bytes | None) -> str:
    """What identifies a request: method, the path's telling end, and the body with ids renamed; hex, 32 digits."""
    head = f"{method} {ending(path)}\n".encode()
    return hashlib.sha256(head + _canonical(without_ids(_jsonable(body)))).hexdigest()[:32]


def _canonical(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # numbers beyond 64 bits, lone surrogates
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def ending(path: str) -> str:
    """A path without what depends on where a server is mounted: the rollout prefix and everything up to /v1."""
    path = route(path).path
    return path.rpartition("/v1")[2] or path


class Matcher:
    """Recorded calls to one boundary, waiting to be asked for again.

    `again` says what happens when a request comes more often than it was recorded: True starts over with
    the first answer, False is a miss. `load` reads an exchange's bodies when they are needed; without it they
    are all kept in memory. What is asked is redacted like what was recorded, before they are compared. Not
    safe across threads.
    """

    def __init__(
        self,
        entries: Iterable[Recorded],
        *,
        loose: bool = False,
        again: bool = False,
        load: Callable[[Exchange], Recorded] | None = None,
    ) -> None:
        self._loose = loose
        self._again = again
        self._load = load
        self._redactor = Redactor()
        self._kept: dict[str, Recorded] = {}
        self._entries: list[Exchange] = []
        self._models: dict[str, None] = {}
        self._by_print: dict[str, list[Exchange]] = defaultdict(list)
        self._asked: dict[str, int] = defaultdict(int)
        self._used: set[str] = set()
        for entry in entries:
            self._add(entry)
        for exchanges in (self._entries, *self._by_print.values()):
            exchanges.sort(key=order)

    def _add(self, entry: Recorded) -> None:
        self._entries.append(entry.exchange)
        self._by_print[_print_of(entry)].append(entry.exchange)
        body = parse(entry.request_body)
        if isinstance(body, dict) and isinstance(body.get("model"), str):
            self._models[body["model"]] = None
        if self._load is None:
            self._kept[entry.exchange.id] = entry

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, method: str, path: str, body: bytes | None) -> Hit | Miss:
        """The answer to a request; it counts as used. Raises CaptureError when the capture lost its body."""
        body = self._redactor.body(body)[0] if body else body
        key = fingerprint(method, path, body)
        equal = self._by_print.get(key, [])
        if not equal:
            return self._loosely(path, body) if self._loose else self._miss(path, body)
        asked = self._asked[key]
        if asked >= len(equal) and not (self._again or self._loose):
            return Miss(f"asked more often than recorded ({len(equal)} times)", self._whole(equal[-1]))
        self._asked[key] += 1
        exchange = equal[asked % len(equal)]
        self._used.add(exchange.id)
        return Hit(self._whole(exchange), asked // len(equal))

    def left(self) -> list[Recorded]:
        """What was recorded and has not been asked for, in recorded order."""
        return [self._whole(exchange) for exchange in self._unused()]

    @property
    def unasked(self) -> int:
        """How many recorded answers nobody has asked for."""
        return len(self._entries) - len(self._used)

    def models(self) -> list[str]:
        """The models that the recorded requests named, each once."""
        return list(self._models)

    def shared(self) -> int:
        """How many fingerprints were recorded in more than one row: their answers can change places."""
        return sum(1 for equal in self._by_print.values() if len({_row(exchange) for exchange in equal}) > 1)

    def _whole(self, exchange: Exchange) -> Recorded:
        return self._load(exchange) if self._load is not None else self._kept[exchange.id]

    def _unused(self) -> list[Exchange]:
        return [exchange for exchange in self._entries if exchange.id not in self._used]

    def _loosely(self, path: str, body: bytes | None) -> Hit | Miss:
        """The next unused call of the row that is most like the request."""
        heads: dict[str, Exchange] = {}
        for exchange in self._unused():
            if _alike(exchange, path):
                heads.setdefault(_row(exchange), exchange)
        found = self._nearest(heads.values(), body)
        if found is None:
            return self._miss(path, body)
        self._used.add(found[0].exchange.id)
        return Hit(found[0], loose=found[1])

    def _miss(self, path: str, body: bytes | None) -> Miss:
        alike = [exchange for exchange in self._entries if _alike(exchange, path)]
        unused = [exchange for exchange in alike if exchange.id not in self._used]
        found = self._nearest(unused or alike, body)
        if found is None:
            return Miss(f"nothing was recorded for {ending(path)}")
        return Miss("this request was not recorded", *found)

    def _nearest(self, exchanges: Iterable[Exchange], body: bytes | None) -> tuple[Recorded, Difference | None] | None:
        """The call with the fewest differences, and the first of them."""
        asked = _jsonable(body)
        best: tuple[int, Recorded, Difference | None] | None = None
        for exchange in islice(exchanges, NEAREST_MAX):
            entry = self._whole(exchange)
            places = request_differences(_jsonable(entry.request_body), asked)
            if best is None or len(places) < best[0]:
                best = len(places), entry, places[0] if places else None
        return None if best is None else best[1:]


def _alike(exchange: Exchange, path: str) -> bool:
    return ending(exchange.request.target) == ending(path)


def _print_of(entry: Recorded) -> str:
    return fingerprint(entry.exchange.request.method, entry.path, entry.request_body)


def _row(exchange: Exchange) -> str:
    row = exchange.attribution.row
    return f"{row.label}~{row.agent}" if row else ""


def _jsonable(body: bytes | None) -> Any:
    return parse(body) if body else None


def playable(entries: Iterable[Recorded]) -> Iterator[Recorded]:
    """Those that can be played back: they ended, and their bodies were kept whole."""
    return (entry for entry in entries if _ended(entry) and _whole(entry))


def _ended(entry: Recorded) -> bool:
    response = entry.exchange.response
    return entry.exchange.error is not None or (response is not None and response.ended_ms is not None)


def _whole(entry: Recorded) -> bool:
    response = entry.exchange.response
    bodies = (entry.exchange.request.body, response.body if response else None)
    return not any(body is not None and body.missing_bytes for body in bodies)
