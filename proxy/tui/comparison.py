"""Two rows side by side: which hops they share, and where each pair differs."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from gymtap.proxy.replay.load import row
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.sides import Pair, compare_rows, reward_of, status
from gymtap.proxy.store import Capture
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE
from gymtap.proxy.views.plain import one_line
from gymtap.proxy.views.words import call_name, duration
from gymtap.schemas import RowKey

_PLACES_SHOWN = 200

type Targeted = tuple[Text, str | None]


def of_rows(capture: Capture, before: str, after: str) -> list[Targeted]:
    """Two rows by their labels. Raises CaptureError."""
    left, right = row(capture, RowKey.parse(before)), row(capture, RowKey.parse(after))
    told = ["none" if reward is None else f"{reward:g}" for reward in (reward_of(left), reward_of(right))]
    return [(Text(f"reward {told[0]} | {told[1]}", "bold"), None), *_pairs(compare_rows(left, right))]


def _pairs(pairs: Sequence[Pair]) -> Iterator[Targeted]:
    for pair in pairs:
        one = pair.after or pair.before
        if one is None:
            continue
        sides = " | ".join(_side(side) for side in (pair.before, pair.after))
        mark = ("=", OK_STYLE) if pair.same else ("≠", FAILED_STYLE)
        yield Text.assemble(mark, f" {call_name(one.exchange)}  {sides}", no_wrap=True), one.exchange.id
        for name, places in (("asked", pair.request), ("answered", pair.response)):
            for place in places[:_PLACES_SHOWN]:
                yield Text.assemble((f"    {name} ", "dim"), one_line(str(place))), one.exchange.id
            if len(places) > _PLACES_SHOWN:
                yield Text(f"    … and {len(places) - _PLACES_SHOWN:,} more", "dim"), None


def _side(one: Recorded | None) -> str:
    return f"{one.exchange.id} {status(one)} {duration(one.exchange.duration_ms)}" if one else "-"
