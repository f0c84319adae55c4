"""`gymtap diff`: two rows or two exchanges side by side, without what is different each time."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureOption, JsonOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymtap.proxy.replay.original import Place
    from gymtap.proxy.replay.sides import Pair
    from gymtap.proxy.store import Capture

_SHOWN = 12


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("diff")(_diff)


def _diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A row (12.3) or an exchange (a42).")],
    after: Annotated[
        str | None,
        typer.Argument(metavar="B", help="Another one. Without it, A is compared with its original."),
    ] = None,
    *,
    capture: CaptureOption = None,
    other: Annotated[str | None, typer.Option(metavar="CAPTURE", help="B's capture, if it is another one.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Ignore this key when comparing.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two rows or two exchanges; ids, times and usage are no differences.

    The original is what a replay has replayed, else the earlier attempt at the same call or row.
    """
    from gymtap.proxy.cli.choose import open_capture
    from gymtap.proxy.replay.sides import compare, compare_rows, reward_of

    first = open_capture(capture)
    sides = _sides(first, before, after, open_capture(other) if other is not None else first)
    ignored = frozenset(ignore or ())
    left, right = (side.read() for side in sides)
    rows = not isinstance(sides[0].what, str)
    pairs = compare_rows(left, right, ignored) if rows else [compare(left[0], right[0], ignored)]
    rewards = [reward_of(left), reward_of(right)]
    if as_json:
        names = {"before": before if after else sides[0].name, "after": after or before}
        places = {"before_capture": str(sides[0].capture), "after_capture": str(sides[1].capture)}
        screen.write_json(names | places | {"rewards": rewards, "hops": [_hop(pair) for pair in pairs]})
    else:
        _draw(pairs, rewards)
    raise typer.Exit(0 if all(pair.same for pair in pairs) else 1)


def _sides(capture: "Capture", before: str, after: str | None, other: "Capture") -> "tuple[Place, Place]":
    """What is compared; the original first, where only one is named. Raises UsageError."""
    from gymtap.proxy.cli.choose import is_exchange_id, parse_name
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.replay.original import Place, original

    if after is None:
        named = parse_name(before)
        whole = named if isinstance(named, str) else capture.row(named).key
        found = original(capture, whole)
        screen.note(f"compared with its original, {found.name} of {found.capture.name}")
        return found, Place(capture.path, whole)
    if is_exchange_id(before) is not is_exchange_id(after):
        raise UsageError(f"{before} and {after} are not of one kind", "name two rows, or two exchanges")
    return Place(capture.path, parse_name(before)), Place(other.path, parse_name(after))


def _hop(pair: "Pair") -> dict[str, Any]:
    from gymtap.proxy.cli.replay_view import place
    from gymtap.proxy.replay.sides import status

    sides = {"before": pair.before, "after": pair.after}
    return {
        "call": next(one.exchange.call for one in sides.values() if one is not None),
        **{
            name: None if one is None else {"exchange": one.exchange.id, "status": status(one)}
            for name, one in sides.items()
        },
        "same": pair.same,
        "request": [place(one) for one in pair.request],
        "response": [place(one) for one in pair.response],
    }


def _draw(pairs: "Sequence[Pair]", rewards: "Sequence[float | None]") -> None:
    from gymtap.proxy.replay.sides import status
    from gymtap.proxy.views.plain import one_line
    from gymtap.proxy.views.words import call_name, counted, duration

    out = screen.out()
    for pair in pairs:
        one = pair.before or pair.after
        if one is None:
            continue
        sides = [
            f"{side.exchange.id} {status(side)} {duration(side.exchange.duration_ms)}" if side else "-"
            for side in (pair.before, pair.after)
        ]
        mark = "=" if pair.same else "≠"
        out.print(f"{mark} {call_name(one.exchange)}  {sides[0]} | {sides[1]}", soft_wrap=True)
        for name, places in (("asked", pair.request), ("answered", pair.response)):
            for place in places[:_SHOWN]:
                out.print(f"    {name} {one_line(str(place))}", soft_wrap=True)
            if len(places) > _SHOWN:
                out.print(f"    … and {counted(len(places) - _SHOWN, 'more difference')}: --json")
    if any(reward is not None for reward in rewards):
        told = ["none" if reward is None else f"{reward:g}" for reward in rewards]
        out.print(f"reward {told[0]} | {told[1]}")
