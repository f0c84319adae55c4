"""Two rows, or two exchanges, side by side: the hops they share, and where each pair differs, as `gymtap diff` says."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay.original import Place, original, same_hop
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.sides import Pair, compare, compare_rows, reward_of, status
from gymtap.proxy.store import Capture
from gymtap.proxy.store.listed import named
from gymtap.proxy.store.notes import Notes
from gymtap.proxy.tui.text_page import TextPage
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE
from gymtap.proxy.views.plain import one_line
from gymtap.proxy.views.words import call_name, duration
from gymtap.schemas import RowKey

_PLACES_SHOWN = 200
_NONE = "-"

type Targeted = tuple[Text, str | None]


def other_side(capture: Capture, what: RowKey | str, notes: Notes) -> Place:
    """What to compare with: the one that is marked, else the original. Raises UsageError where there is neither.

    For an exchange a marked row stands for the exchange in it that is the same call.
    """
    if (marked := _marked(capture, what, notes)) is not None:
        return marked
    try:
        return original(capture, what)
    except UsageError as error:
        raise UsageError(str(error), "m marks another to compare it with") from error


def _marked(capture: Capture, what: RowKey | str, notes: Notes) -> Place | None:
    if isinstance(what, str):
        if (one := _only(notes.marked_exchanges, what)) is not None:
            return Place(capture.path, one)
        exchange = capture.exchange(what)
        key = exchange.attribution.row
        row = None if key is None else _only(notes.marked, named(key))
        return None if row is None else same_hop(capture, exchange, Place(capture.path, RowKey.parse(row)))
    row = _only(notes.marked, named(what))
    return None if row is None else Place(capture.path, RowKey.parse(row))


def _only(marked: Sequence[str], here: str) -> str | None:
    """The one other that is marked. Raises UsageError where several are."""
    others = [one for one in marked if one != here]
    if len(others) > 1:
        raise UsageError(f"{len(others)} others are marked: {', '.join(others[:3])}", "m takes a mark away")
    return others[0] if others else None


def compared(before: Place, after: Place) -> list[Targeted]:
    """Both as paragraphs, each with the ids of its pair of exchanges. Raises CaptureError."""
    left, right = before.read(), after.read()
    if isinstance(before.what, str):
        return list(_pair(compare(left[0], right[0])))
    told = ["none" if reward is None else f"{reward:g}" for reward in (reward_of(left), reward_of(right))]
    pairs = compare_rows(left, right)
    return [(Text(f"reward {told[0]} | {told[1]}", "bold"), None), *(line for pair in pairs for line in _pair(pair))]


def _pair(pair: Pair) -> Iterator[Targeted]:
    one = pair.after or pair.before
    if one is None:
        return
    target = " ".join(side.exchange.id if side else _NONE for side in (pair.before, pair.after))
    sides = " | ".join(_side(side) for side in (pair.before, pair.after))
    mark = ("=", OK_STYLE) if pair.same else ("≠", FAILED_STYLE)
    yield Text.assemble(mark, f" {call_name(one.exchange)}  {sides}", no_wrap=True), target
    for name, places in (("asked", pair.request), ("answered", pair.response)):
        for place in places[:_PLACES_SHOWN]:
            yield Text.assemble((f"    {name} ", "dim"), one_line(str(place))), target
        if len(places) > _PLACES_SHOWN:
            yield Text(f"    … and {len(places) - _PLACES_SHOWN:,} more", "dim"), None


def _side(one: Recorded | None) -> str:
    return f"{one.exchange.id} {status(one)} {duration(one.exchange.duration_ms)}" if one else "-"


class ComparisonPage(TextPage):
    """The comparison; Enter opens a hop's second side, Backspace its first."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("backspace", "open_before", "Open the first side")]

    def __init__(self, before: Place, after: Place) -> None:
        names = [before.name, after.name]
        if before.capture != after.capture:
            names = [f"{one.name} of {one.capture.name}" for one in (before, after)]
        super().__init__(" | ".join(names), lambda: asyncio.to_thread(compared, before, after))
        self._before, self._after = before, after

    def open_target(self) -> None:
        """Open the second side, or the only one."""
        self._open(1)

    def action_open_before(self) -> None:
        """Open the first side."""
        self._open(0)

    def _open(self, side: int) -> None:
        """Open an exchange of the pair that the cursor is on, in the capture that it is in."""
        if self.target is None:
            return
        ids = self.target.split(" ")
        side = side if ids[side] != _NONE else 1 - side
        self.tui.show_exchange(ids[side], path=(self._before, self._after)[side].capture)
