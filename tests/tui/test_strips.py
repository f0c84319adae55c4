"""Rows over time on the overview: each moment is a filter."""

from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.core.filter import parse
from gymtap.proxy.store import Capture
from gymtap.proxy.store.listed import listed
from gymtap.proxy.tui.overview import Overview
from gymtap.proxy.tui.rows_page import RowsPage
from gymtap.proxy.tui.strip import axis, columns, told, wanted
from gymtap.proxy.tui.strip_list import Strips
from gymtap.schemas import Call

type Open = Any
"""See `opened` in conftest.py."""


@pytest.mark.parametrize("count", [1, 2, 7, 20, 500])
def test_the_filters_of_all_moments_are_all_rows_once(demo_capture: Path, count: int) -> None:
    rows = listed(Capture(demo_capture))
    found = columns([row.line for row in rows], count)
    for failed in (False, True):
        counts = [sum(map(parse(wanted(found, at, failed=failed)), rows)) for at in range(count)]
        assert counts == (found.failed if failed else found.begun)


def test_a_moment_says_what_was_then(demo_capture: Path) -> None:
    found = columns([row.line for row in listed(Capture(demo_capture))], 1)
    assert "20 rows, 8 failed, the longest" in told(found, 0)
    assert axis(found, 60).plain.endswith("UTC")
    assert (told(columns([], 5), 0), axis(columns([], 5), 60).plain) == ("", "")


async def test_enter_on_a_moment_shows_its_rows(opened: Open, demo_capture: Path) -> None:
    """Left and right move through time; on the second line they are those that failed then."""
    async with opened(demo_capture, (80, 24)) as desk:
        await desk.shows("✗ 8 failed", "The provider rejected")
        strips = desk.app.screen.query_one(Strips)
        strips.focus()
        await desk.press("right", "left", "enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowsPage))
        await desk.shows("filter began>=", "of 20 rows")
        await desk.press("escape")
        await desk.until(lambda: isinstance(desk.app.screen, Overview))
        await desk.press("j", "enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowsPage))
        await desk.shows("filter is:failed began>=")


async def test_enter_on_what_is_in_flight_shows_the_rows_that_wait(opened: Open, live_writer: Any) -> None:
    async with opened(live_writer.file.parent) as desk:
        await desk.shows(f"1  {Call.RUN}")
        desk.app.screen.query_one("#flight").focus()
        await desk.press("enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowsPage))
        await desk.shows("filter open:run", "1 of 2 rows", "6.0")
