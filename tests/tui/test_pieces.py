"""The pieces that views are made of, each by itself."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult

from gymtap.proxy.core.pointer import escaped
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.proxy.store.search import row_hits
from gymtap.proxy.tui.byte_lines import RawLines, find_bytes, line_starts
from gymtap.proxy.tui.content import IN_MEMORY_BYTES, NOT_JSON, content
from gymtap.proxy.tui.json_tree import JsonTree
from gymtap.proxy.tui.lines import Lines, TextLines
from gymtap.proxy.tui.prompt import Prompt
from gymtap.proxy.tui.strip import columns, drawn
from gymtap.proxy.tui.waterfall import branch_line, branches, span
from gymtap.proxy.views.call_tree import call_tree
from gymtap.schemas import Call

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=90),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def _pointers(value: Any, at: str = "") -> list[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for name, item in items for place in _pointers(item, f"{at}/{escaped(str(name))}"))]


class TreeApp(App[None]):
    def compose(self) -> ComposeResult:
        yield JsonTree()


async def test_every_place_of_a_document_can_be_opened_by_its_pointer() -> None:
    @settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
    @given(json_values)
    def opens(value: Any) -> None:
        for pointer in _pointers(value):
            tree.put(value, pointer)
            assert (tree.pointed, tree.branch and tree.branch.pointer) == (pointer, pointer)
        assert not tree.open_pointer("/not/there/at/all")

    async with TreeApp().run_test() as pilot:
        tree = pilot.app.query_one(JsonTree)
        opens()


async def test_closing_what_was_opened_leaves_what_there_was() -> None:
    @settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
    @given(json_values)
    def folds(value: Any) -> None:
        tree.put(value)
        tree.action_fold_all(False)
        assert tree.count() == 1
        tree.action_fold_all(True)
        assert tree.count() == len(_pointers(value))

    async with TreeApp().run_test() as pilot:
        tree = pilot.app.query_one(JsonTree)
        folds()


@given(st.binary(max_size=900) | st.lists(st.sampled_from([b"\n", b"x" * 200, b"ab"])).map(b"".join))
def test_raw_lines_are_all_of_the_body_and_never_too_long(data: bytes) -> None:
    starts = list(line_starts(data, 80))
    pieces = [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=False)]
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= 81 and b"\n" not in piece[:-1] for piece in pieces)


class RawApp(App[None]):
    def compose(self) -> ComposeResult:
        yield RawLines()


@pytest.mark.parametrize("width", [20, 33, 80])
async def test_a_raw_body_is_folded_at_the_screen_and_no_character_is_lost(width: int) -> None:
    text = "naïve “quotes” \N{SNOWMAN}\N{PILE OF POO} " * 30 + "\nneedle\nlast"
    async with RawApp().run_test(size=(width, 10)) as pilot:
        raw = pilot.app.query_one(RawLines)
        raw.put(text.encode())
        await pilot.pause()
        lines = [raw.line(index, width).plain for index in range(raw.count())]
        assert "".join(lines) == text.replace("\n", "")
        assert max(map(len, lines)) <= width
        raw.go_to(raw.find("needle", 1) or 0)
        assert raw.line(raw.cursor, width).plain == "needle"
        await pilot.resize_terminal(width + 7, 10)
        await pilot.pause()
        assert raw.line(raw.cursor, width).plain == "needle"


def test_a_search_goes_round_in_both_directions() -> None:
    data = b"one two one"
    assert find_bytes(data, "one", 0, 1) == 8
    assert find_bytes(data, "one", 8, 1) == 0
    assert find_bytes(data, "one", 8, -1) == 0
    assert find_bytes(data, "one", 0, -1) == 8
    assert find_bytes(data, "three", 0, 1) is None


def test_a_large_body_is_read_where_it_lies_and_searched_across_its_pieces(
    tmp_path: Path, exchange: Any, attributed: Any
) -> None:
    body = b"x" * (IN_MEMORY_BYTES + 5) + b"NeedLe" + b"y" * 100
    writer = CaptureWriter.create(tmp_path / "large")
    writer.add(exchange(1, Call.RUN), b"{}", body)
    writer.close()
    capture = Capture(tmp_path / "large")
    response = capture.exchange("a1").response
    assert response is not None
    found = content(capture, response.body)
    assert (found.large, found.value, len(found.data)) == (True, NOT_JSON, len(body))
    assert found.data[:] == body
    assert find_bytes(found.data, "NeedLe", 0, 1) == IN_MEMORY_BYTES + 5
    assert row_hits(capture, attributed().row, "needle") == ["a1"]
    assert row_hits(capture, attributed().row, "needles") == []


def test_a_waterfall_has_every_call_at_any_width(exchange: Any) -> None:
    found = [
        exchange(1, Call.RUN, at_ms=0, duration_ms=100.0),
        exchange(2, Call.MODEL, 1, at_ms=50, duration_ms=25.0),
        exchange(3, Call.PROVIDER, 9, 429, at_ms=60),
    ]
    lines = branches(call_tree(found, "a1"))
    whole = span(found, found[0].started_ns)
    assert (whole.started_ns, whole.length_ms) == (found[0].started_ns, 100.0)
    assert [line.heading for line in lines if line.node is None] == ["called by something that was not seen"]
    for width in (20, 60, 80, 200):
        told = [branch_line(line, whole, width, found[0].started_ns, "a3").plain for line in lines]
        assert all(name in text for name, text in zip(("run", "model"), told, strict=False))
    bar = branch_line(lines[1], whole, 100, found[0].started_ns, None).plain
    assert "█" in bar
    assert bar.index("█") > branch_line(lines[0], whole, 100, found[0].started_ns, None).plain.index("█")


@pytest.mark.parametrize("width", [40, 71, 78, 200])
def test_however_long_a_call_s_name_it_is_seen_which_one_is_at_fault(exchange: Any, width: int) -> None:
    tries = [exchange(n, Call.TOOL, 1, 500, server="weather_resources_server_of_ours") for n in (2, 3)]
    tries = [one.model_copy(update={"attempt": number}) for number, one in enumerate(tries)]
    lines = branches(call_tree([exchange(1, Call.RUN), *tries], "a1"))
    whole = span(tries, tries[0].started_ns)
    told = [branch_line(line, whole, width, tries[0].started_ns, "a3").plain for line in lines]
    assert [text for text in told if "◀ root" in text] == [text for text in told if " a3" in text]


def test_a_strip_counts_every_row_once(demo_capture: Path) -> None:
    lines = [line for piece in Capture(demo_capture).row_lines() for line in piece]
    for count in (1, 7, 500):
        found = columns(lines, count)
        assert (len(found.begun), sum(found.begun), sum(found.failed)) == (count, 20, 8)
    assert drawn(columns([], 10))[0].plain == "no rows yet"


class Million(Lines):
    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()

    def count(self) -> int:
        return 1_000_000

    def on_mount(self) -> None:
        self.reload()

    def line(self, index: int, width: int) -> Any:
        self.asked.add(index)
        return Text(str(index))


class MillionApp(App[None]):
    def compose(self) -> ComposeResult:
        yield Million()


async def test_only_what_is_seen_of_a_million_lines_is_asked_for() -> None:
    async with MillionApp().run_test(size=(80, 24)) as pilot:
        lines = pilot.app.query_one(Million)
        lines.focus()
        await pilot.pause()
        await pilot.press("G", "ctrl+u", "g", "j", "pagedown")
        await pilot.pause()
        assert lines.cursor > 20
        assert 999_999 in lines.asked
        assert len(lines.asked) < 200


async def test_the_cursor_is_to_be_seen_with_the_focus_and_without() -> None:
    async with MillionApp().run_test(size=(80, 24)) as pilot:
        lines = pilot.app.query_one(Million)

        def marked(attribute: str) -> list[int]:
            return [y for y in range(3) if any(getattr(part.style, attribute, False) for part in lines.render_line(y))]

        lines.focus()
        await pilot.press("j")
        await pilot.pause()
        assert (marked("reverse"), marked("underline")) == ([1], [])
        assert all(part.style and part.style.reverse for part in lines.render_line(1)), "a bar, not the text alone"
        pilot.app.set_focus(None)
        await pilot.pause()
        assert (marked("reverse"), marked("underline")) == ([], [1])


async def test_a_place_that_was_gone_to_stays_on_the_cursor_s_line_at_any_width() -> None:
    async with RawApp().run_test(size=(78, 10)) as pilot:
        raw = pilot.app.query_one(RawLines)
        raw.put(b"hay " * 500 + b"needle")
        await pilot.pause()
        raw.go_to(2_000)
        for width in (77, 60, 41, 78):
            await pilot.resize_terminal(width, 10)
            await pilot.pause()
            assert raw.cursor == raw.line_of(2_000)


async def test_the_cursor_stays_in_view_when_there_is_less_room() -> None:
    async with MillionApp().run_test(size=(80, 24)) as pilot:
        lines = pilot.app.query_one(Million)
        lines.focus()
        await pilot.press("G")
        await pilot.resize_terminal(80, 8)
        await pilot.pause()
        assert lines.cursor == 999_999
        assert int(lines.scroll_offset.y) + lines.scrollable_content_region.height > lines.cursor


class TextApp(App[None]):
    def compose(self) -> ComposeResult:
        yield TextLines()


async def test_text_may_change_while_there_is_no_room_for_it() -> None:
    async with TextApp().run_test(size=(20, 10)) as pilot:
        lines = pilot.app.query_one(TextLines)
        lines.put([(Text(f"paragraph {number}"), str(number)) for number in range(20)])
        lines.focus()
        await pilot.press("G")
        await pilot.resize_terminal(1, 1)
        await pilot.pause()
        lines.put([(Text("the one that is left"), "another")])
        await pilot.press("j", "G", "k", "enter")
        await pilot.resize_terminal(20, 10)
        await pilot.pause()
        assert [lines.target(index) for index in range(lines.count())] == ["another"]
        assert lines.cursor == 0


async def test_keys_act_in_the_order_in_which_they_are_typed() -> None:
    """However fast, as from a macro or a terminal multiplexer."""
    async with App[None]().run_test() as pilot:
        entered: list[str | None] = []
        await pilot.app.push_screen(Prompt("what", "before"), entered.append)
        await pilot.pause()
        for key in ("ctrl+u", *"afteb", "backspace", "r", "home", "x", "enter"):
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert entered == ["xafter"]
