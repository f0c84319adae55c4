import asyncio
import time
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import pytest
from textual import events

from gymtap.proxy.core.filter import Filter
from gymtap.proxy.store import CaptureWriter
from gymtap.proxy.store.listed import Listed
from gymtap.proxy.tui.exchange_page import TABS, ExchangePage
from gymtap.proxy.tui.in_flight import InFlight
from gymtap.proxy.tui.json_tree import JsonTree
from gymtap.proxy.tui.overview import Overview
from gymtap.proxy.tui.row_page import RowPage
from gymtap.proxy.tui.rows_page import RowsPage
from gymtap.proxy.tui.rows_table import RowsTable
from gymtap.proxy.tui.text_page import TextPage
from gymtap.schemas import Call, Finding, RowKey, Severity, State, TransportError, TransportErrorKind

type Open = Any
"""See `opened` in conftest.py."""


async def test_the_overview_says_why_rows_fail_without_a_key_pressed(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture, (80, 24)) as desk:
        await desk.shows("✗ 8 failed", "✓ 12 done", "top causes", "The provider rejected", "data_schema")


async def test_enter_on_a_cause_shows_its_rows(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.shows("The provider rejected")
        await desk.press("enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowsPage))
        await desk.shows("filter cause:", "1 of 20 rows")


async def test_enter_on_a_layer_shows_its_rows(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.shows("2  data_schema")
        await desk.press("tab", "enter")
        await desk.shows("layer:", "2 of 20 rows")


async def test_the_row_shows_its_calls_and_its_diagnosis_in_the_fixed_form(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture, (80, 24)) as desk:
        await desk.press("l", "n", "enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowPage))
        await desk.shows("└─✗ provider ◀ root", "symptom", "layer     data_schema", "evidence", "cause")
        await desk.press("D", "G")
        await desk.shows('"type": "BadRequestError"')


async def test_a_failed_row_is_shown_beside_a_rollout_of_its_task_that_passed(
    opened: Open, tmp_path: Path, exchange: Any, attributed: Any
) -> None:
    with closing(CaptureWriter.create(tmp_path / "run")) as writer:
        for rollout, (city, status, body) in enumerate([("Quito", 500, b'"no"'), ("Lima", 200, b'{"reward": 1.0}')]):
            said = {"attribution": attributed(row=RowKey(task=4, rollout=rollout, agent="a"))}
            run, tool = rollout * 10 + 1, rollout * 10 + 2
            writer.add(exchange(run, Call.RUN, status=status, at_ms=rollout * 50.0, **said), b"{}", body)
            asked = orjson.dumps({"city": city})
            writer.add(exchange(tool, Call.TOOL, run, status, at_ms=rollout * 50.0 + 1, **said), asked, body)
    async with opened(tmp_path / "run") as desk:
        await desk.press("l", "n", "enter")
        await desk.shows("sibling   row 4.1 passed: the request a2", "differs from the sibling's a12 at /city")


async def test_a_short_diagnosis_leaves_the_calls_the_room(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture, (80, 24)) as desk:
        await desk.press("l", "enter")
        await desk.shows("Nothing failed and nothing was silently lost")
        calls, why = desk.app.screen.query_one("#calls"), desk.app.screen.query_one("#why")
        await desk.until(lambda: why.size.height == why.count() and calls.size.height >= calls.count())


async def test_the_root_cause_is_one_key_away(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.press("l", "n", "R")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.shows("POST /v1/chat/completions → provider", "400 Bad Request", "Invalid JSON schema")


async def test_every_tab_has_what_it_promises(opened: Open, demo_capture: Path) -> None:
    """Nothing is read before its tab is looked at; then it is there."""
    expected = {
        "request": "messages",
        "response": "error",
        "chat": "user",
        "headers": "POST /v1/chat/completions HTTP/1.1",
        "timing": "confidence certain",
        "events": "no stream of events",
        "raw": '{"error":',
        "hex": "00000000  7b 22",
    }
    async with opened(demo_capture) as desk:
        await desk.press("l", "n", "R")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.shows("▾ error")
        tabs = desk.app.screen.query_one("Tabs")
        assert [name.lower() for name in TABS] == list(expected)
        for name, text in expected.items():
            tabs.active = name
            await desk.shows(text)


async def test_json_folds_and_is_searched_where_it_is_folded(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.press("l", "n", "R")
        await desk.shows("▾ error")
        await desk.press("h")
        await desk.until(lambda: desk.app.screen.query_one("Tabs").active == "request")
        await desk.press("minus")
        await desk.until(lambda: desk.app.screen.query_one("#request-pane", JsonTree).count() == 1)
        await desk.press("slash")
        await desk.enter("uri-template")
        await desk.shows('format: "uri-template"')


async def test_esc_leads_back_to_the_first_view_and_no_further(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.press("l", "enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowPage))
        await desk.press("escape", "escape", "escape", "escape")
        await desk.until(lambda: isinstance(desk.app.screen, Overview))


async def test_a_row_leads_to_the_row_beside_it(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.press("l", "enter")
        await desk.shows("row 0.0")
        await desk.press("right_square_bracket")
        await desk.shows("row 1.0")
        await desk.press("left_square_bracket", "left_square_bracket")
        await desk.shows("row 0.0", "no more rows")


async def test_an_exchange_leads_to_its_caller_and_its_row(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.press("l", "n", "R")
        await desk.shows("model → provider")
        await desk.press("p")
        await desk.shows("agent → model")
        await desk.press("w")
        await desk.until(lambda: isinstance(desk.app.screen, RowPage))
        await desk.shows("row 2.0")


async def test_what_is_open_is_listed_with_its_age(opened: Open, live_writer: Any) -> None:
    async with opened(live_writer.file.parent) as desk:
        await desk.shows("… live", "1 in flight", "! 1 gap")
        await desk.press("i")
        await desk.until(lambda: isinstance(desk.app.screen, InFlight))
        await desk.shows("1 exchange in flight", "6.0", "run → agent")
        await desk.press("G", "enter")
        await desk.shows("POST /run → agent  open")
        await desk.press("l")
        await desk.shows("none yet: it is still open")


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 10)])
async def test_any_size_will_do_and_may_change(opened: Open, demo_capture: Path, size: tuple[int, int]) -> None:
    async with opened(demo_capture, (100, 30)) as desk:
        await desk.press("l", "n", "enter")
        await desk.shows("row 2.0")
        await desk.pilot.resize_terminal(*size)
        await desk.press("R")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.pilot.resize_terminal(120, 40)
        await desk.shows("Invalid JSON schema")


async def test_colours_are_never_all_there_is(
    opened: Open, demo_capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NO_COLOR, marks and words say what colours said."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(demo_capture) as desk:
        await desk.press("l")
        await desk.shows("✗ 2.0", "✓ 0.0", "data_schema")


async def test_what_nobody_foresaw_is_told_inside_and_ends_nothing(opened: Open, demo_capture: Path) -> None:
    async def broken() -> list[Any]:
        raise RuntimeError("unforeseen")

    async with opened(demo_capture) as desk:
        desk.app.push_screen(TextPage("a view", broken))
        await desk.shows("RuntimeError: unforeseen")
        await desk.press("escape")
        await desk.until(lambda: isinstance(desk.app.screen, Overview))


@pytest.fixture
def emptied(own_capture: Path) -> Path:
    for file in own_capture.glob("*.sqlite*"):
        file.unlink()
    return own_capture


async def test_a_capture_that_is_none_is_told_inside(opened: Open, emptied: Path) -> None:
    async with opened(emptied, read=False) as desk:
        await desk.shows("not a capture")


async def test_a_view_that_is_being_taken_down_bears_a_change(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.shows("top causes")
        page = desk.app.screen
        assert isinstance(page, Overview)
        await page.query_one("#status").remove()
        page.beat()


async def test_a_click_moves_and_a_double_click_opens(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.press("l")
        await desk.shows("20 of 20 rows")
        await desk.pilot.click(RowsTable, offset=(5, 3))
        await desk.until(lambda: desk.app.screen.current.label == "3.0")
        await desk.pilot.click(RowsTable, offset=(5, 5), times=2)
        await desk.until(lambda: isinstance(desk.app.screen, RowPage))
        await desk.shows("row 5.0")


@pytest.fixture
def stormy(live_writer: Any, exchange: Any, attributed: Any) -> Path:
    """Row 6.0 asks a provider again and again, which gives no answer: nothing failed, and it never ends."""
    began_ns = time.time_ns() - 60 * 10**9
    said: dict[str, Any] = {"attribution": attributed(6), "state": State.FAILED}
    dropped = TransportError(kind=TransportErrorKind.REFUSED, message="nobody listens")
    live_writer.add(exchange(3, Call.MODEL, 2, None, attribution=attributed(6)), b"{}")
    for number in range(4, 34):
        at_ns = began_ns + number * 10**9
        one = exchange(number, Call.PROVIDER, 3, None, **said, started_ns=at_ns, duration_ms=2.0, error=dropped)
        live_writer.add(one, b"{}")
    live_writer.commit()
    return Path(live_writer.file.parent)


async def test_what_hangs_is_on_the_overview_without_a_key_pressed(opened: Open, stormy: Path) -> None:
    """The alarms of `gymtap inflight`, and why a row that runs will not end; Enter shows its rows."""
    async with opened(stormy, (110, 30)) as desk:
        await desk.shows("! dead upstream: provider gave no answer to 30 calls", "! retry storm:", "rows 6.0")
        await desk.shows("      1  infra")
        await desk.press("enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowsPage))
        await desk.shows("filter row:6.0", "1 of 2 rows", "infra")


async def test_alarms_head_what_is_in_flight(opened: Open, stormy: Path) -> None:
    async with opened(stormy, (110, 30)) as desk:
        await desk.press("i")
        await desk.until(lambda: isinstance(desk.app.screen, InFlight))
        await desk.shows("! dead upstream: provider gave no answer to 30 calls", "! retry storm:", "6.0")
        await desk.press("enter")
        await desk.shows("filter row:6.0", "1 of 2 rows")


async def test_each_page_of_rows_begins_anew(opened: Open, demo_capture: Path) -> None:
    """Neither the rows nor the cursor of a page that was filtered are there on the next one."""
    async with opened(demo_capture) as desk:
        await desk.press("l", "f")
        await desk.enter("row:7.0")
        await desk.shows("1 of 20 rows")
        await desk.press("enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowPage))
        await desk.press("escape", "escape")
        await desk.until(lambda: isinstance(desk.app.screen, Overview))
        await desk.press("l", "n", "R")
        await desk.shows("400 Bad Request", "Invalid JSON schema")


async def test_a_key_waits_for_the_rows_that_were_asked_for(opened: Open, demo_capture: Path) -> None:
    """Enter opens a row of the new filter, however long that takes to choose rows."""
    chosen = Event()

    def slow(row: Listed) -> bool:
        chosen.wait()
        return row.label == "7.0"

    async with opened(demo_capture) as desk:
        await desk.press("l")
        await desk.shows("20 of 20 rows")
        desk.app.screen.show_filter(Filter("a slow one", (slow,), knows=False))
        desk.app.post_message(events.Key("enter", None))
        try:
            for _ in range(20):
                await asyncio.sleep(0)
            assert isinstance(desk.app.screen, RowsPage)
        finally:
            chosen.set()
        await desk.until(lambda: isinstance(desk.app.screen, RowPage))
        await desk.shows("row 7.0")


@pytest.fixture
def lacking(tmp_path: Path, exchange: Any) -> Path:
    """A /verify that was refused, because a field is missing in what was sent."""
    detail = {"type": "missing", "loc": ["body", "expected_city"], "msg": "Field required", "input": {"a": {"b": 1}}}
    said = Finding(rule="a.rule", severity=Severity.ERROR, message="not there", exchange="a2", pointer="/m/city")
    writer = CaptureWriter.create(tmp_path / "lacking")
    writer.add(exchange(1, Call.RUN, status=500), b'{"m": {}}', b'"no"')
    writer.add(exchange(2, Call.VERIFY, 1, 422), b'{"k": 1, "m": {"n": 2}}', orjson.dumps({"detail": [detail]}))
    writer.finding(said)
    writer.close()
    return tmp_path / "lacking"


async def test_where_something_is_missing_the_place_that_lacks_it_is_pointed_at(opened: Open, lacking: Path) -> None:
    async with opened(lacking, (80, 24)) as desk:
        desk.app.show_exchange("a2")
        await desk.shows("▾ m: {1} ◀", "n: 2")
        assert desk.app.screen.query_one("Tabs").active == "request"


async def test_a_small_body_is_wholly_open(opened: Open, lacking: Path) -> None:
    async with opened(lacking, (80, 24)) as desk:
        desk.app.show_exchange("a2")
        await desk.shows("422 ")
        desk.app.screen.query_one("Tabs").active = "response"
        await desk.shows('msg: "Field required"', "b: 1")
