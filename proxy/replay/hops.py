"""Finds the first hop at which a replay went another way than the recording.

"First" is in time, not in depth: a /run differs because something inside it did, so requests are looked at
when they were sent and answers when they came, in the recording's order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gymtap.proxy.replay.compare import Difference, differences, parse, request_differences
from gymtap.proxy.replay.recorded import Recorded
from gymtap.schemas import Exchange


@dataclass(frozen=True)
class FirstDifference:
    """`side` is request, response, unsent (the replay never made this call) or new (the recording has none like it)."""

    exchange: str
    boundary: str
    call: str
    side: str
    text: str

    def __str__(self) -> str:
        words = {"unsent": "was not called this time", "new": "was not called then"}
        said = words.get(self.side, f"{self.side} differs: {self.text}")
        return f"{self.exchange} {self.boundary} ({self.call}) {said}"


def first_difference(
    pairs: Sequence[tuple[Recorded, Recorded | None]],
    new: Sequence[Recorded] = (),
    ignore: frozenset[str] = frozenset(),
) -> FirstDifference | None:
    """The first difference over pairs of a recorded exchange and the one that repeats it (None: nothing does).

    `new` are exchanges of the replay that repeat nothing; they count after all pairs. None when all is the same.
    """
    moments: list[tuple[int, int, Recorded, Recorded | None, str]] = []
    for index, (old, repeat) in enumerate(pairs):
        moments.append((old.exchange.started_ns, index, old, repeat, "request"))
        moments.append((old.ended_ns, index, old, repeat, "response"))
    for _, _, old, repeat, side in sorted(moments, key=lambda moment: moment[:2]):
        found = _at(old, repeat, side, ignore)
        if found is not None:
            return found
    return FirstDifference(*_named(new[0].exchange), "new", "") if new else None


def _at(old: Recorded, repeat: Recorded | None, side: str, ignore: frozenset[str]) -> FirstDifference | None:
    if repeat is None:
        return FirstDifference(*_named(old.exchange), "unsent", "")
    found = _asked(old, repeat, ignore) if side == "request" else _answered(old, repeat, ignore)
    return None if found is None else FirstDifference(*_named(old.exchange), side, found)


def _asked(old: Recorded, repeat: Recorded, ignore: frozenset[str]) -> str | None:
    if old.exchange.request.target.partition("?")[0] != repeat.exchange.request.target.partition("?")[0]:
        return f"{old.exchange.request.target} -> {repeat.exchange.request.target}"
    return _first(request_differences(parse(old.request_body), parse(repeat.request_body), ignore))


def _answered(old: Recorded, repeat: Recorded, ignore: frozenset[str]) -> str | None:
    before, after = _status(old.exchange), _status(repeat.exchange)
    if before != after:
        return f"{before} -> {after}"
    return _first(differences(parse(old.response_body), parse(repeat.response_body), ignore))


def _status(exchange: Exchange) -> str:
    if exchange.error is not None:
        return str(exchange.error.kind)
    return str(exchange.response.status) if exchange.response else "no answer"


def _first(found: Sequence[Difference]) -> str | None:
    return str(found[0]) if found else None


def _named(exchange: Exchange) -> tuple[str, str, str]:
    return exchange.id, exchange.boundary, str(exchange.call)
