import asyncio
import shlex
import shutil
import stat
import sys
import threading
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from textual.command import CommandPalette
from textual.widgets import Input

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.filter import parse
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.proxy.store.notes import Notes
from gymtap.proxy.tui.comparison import ComparisonPage
from gymtap.proxy.tui.exchange_page import ExchangePage
from gymtap.proxy.tui.help import Help
from gymtap.proxy.tui.outside import look
from gymtap.proxy.tui.prompt import Prompt
from gymtap.proxy.tui.replay_page import ReplayPage
from gymtap.proxy.tui.row_page import RowPage
from gymtap.proxy.tui.rows_page import RowsPage
from gymtap.proxy.tui.rows_table import RowsTable
from gymtap.proxy.tui.text_page import TextPage
from gymtap.schemas import Call, RowState

type Open = Any
"""See `opened` in conftest.py."""


def _table(desk: Any) -> RowsTable:
    found: RowsTable = desk.app.screen.query_one(RowsTable)
    return found


async def _rows(desk: Any) -> None:
    await desk.press("l")
    await desk.until(lambda: isinstance(desk.app.screen, RowsPage) and _table(desk).count())


async def test_a_filter_is_asked_for_and_applied(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("f")
        await desk.enter("status:5xx layer:config")
        await desk.shows("filter status:5xx layer:config", "1 of 20 rows", "5.0")


async def test_a_wrong_filter_says_so_and_is_not_applied(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("f", *"colour:red")
        await desk.shows("there is no field 'colour'")
        await desk.press("enter")
        await desk.shows("there is no field 'colour'")
        await desk.press("escape")
        await desk.shows("20 of 20 rows")


async def test_the_next_failing_row_is_one_key_away_in_both_directions(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        seen = []
        for key in ("n", "E", "N", "N"):
            await desk.press(key)
            seen.append(desk.app.screen.current.label)
        failed = [line.label for line in desk.app.rows.lines if line.state == "failed"]
        assert seen == [failed[0], failed[1], failed[0], failed[-1]]


async def test_rows_are_sorted_and_turned_round(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("s")
        await desk.choose("m")
        await desk.shows("by time")
        lines, positions = desk.app.rows.lines, desk.app.screen.positions
        times = [lines[at].duration_ms for at in positions]
        assert times == sorted(times, reverse=True)
        await desk.press("S")
        await desk.shows("by time, backwards")
        assert list(desk.app.screen.positions) == list(positions)[::-1]


async def test_bodies_are_searched_and_hits_are_gone_through(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("slash")
        await desk.enter("URI-template")
        await desk.shows("/URI-template: 1 row", "⌕")
        await desk.press("n")
        assert desk.app.screen.current.label == "2.0"


async def test_marks_and_comments_are_kept_in_the_sidecar(opened: Open, own_capture: Path) -> None:
    async with opened(own_capture) as desk:
        await _rows(desk)
        await desk.press("n", "m", "c")
        await desk.enter("ask Ada")
        await desk.shows("*✗ 2.0", "“ask Ada”")
        await desk.until((own_capture / "notes.json").exists)
        await desk.press("f")
        await desk.enter("is:marked ~ada")
        await desk.shows("1 of 20 rows")
        await desk.until(lambda: b"Ada" in (own_capture / "notes.json").read_bytes())
    (name,) = orjson.loads((own_capture / "notes.json").read_bytes())["rows"]
    assert name.startswith("2.0")
    assert (Notes(own_capture).of(name).marked, Notes(own_capture).of(name).comment) == (True, "ask Ada")


async def test_a_sidecar_that_cannot_be_read_is_told_and_left_alone(opened: Open, own_capture: Path) -> None:
    (own_capture / "notes.json").write_text("not json")
    async with opened(own_capture) as desk:
        await desk.shows("notes.json cannot be read")
        await _rows(desk)
        await desk.press("m")
        await desk.shows("*✓ 0.0")
    assert (own_capture / "notes.json").read_text() == "not json"


async def test_a_row_is_compared_with_the_one_that_is_marked(opened: Open, own_capture: Path) -> None:
    """Without a mark, with its original; a row that has none says so. Enter opens a hop, Backspace the other side's."""
    async with opened(own_capture) as desk:
        await _rows(desk)
        await desk.press("equals_sign")
        await desk.shows("replays nothing")
        await desk.press("m", "n", "equals_sign")
        await desk.until(lambda: isinstance(desk.app.screen, ComparisonPage))
        await desk.shows("0.0~weather_simple_agent | 2.0~weather_simple_agent", "reward 1 | none", "≠ provider")
        await desk.press("j", "enter")
        await desk.shows("POST /run", "500")
        await desk.press("escape", "backspace")
        await desk.shows("POST /run", "200")


async def test_an_attempt_is_compared_with_the_one_before(opened: Open, demo_capture: Path) -> None:
    """A call of the waterfall is compared, and an exchange, wherever one is."""
    first, second, *_ = [one.id for one in _retried(demo_capture)]
    async with opened(demo_capture) as desk:
        desk.app.show_exchange(second)
        await desk.shows(second, "429")
        await desk.press("equals_sign")
        await desk.shows(f"{first} | {second}")


def _retried(path: Path) -> list[Any]:
    """The attempts of one provider call that was made several times."""
    calls = list(Capture(path).exchanges(call=Call.PROVIDER))
    parents = [one.parent for one in calls if one.attempt == 2]
    return [one for one in calls if one.parent == parents[0]]


async def test_a_marked_exchange_is_compared_and_a_marked_row_stands_for_the_same_call(
    opened: Open, own_capture: Path
) -> None:
    async with opened(own_capture) as desk:
        await _rows(desk)
        await desk.press("m", "n", "enter")
        await desk.shows("provider ◀ root")
        await desk.press("equals_sign")
        await desk.until(lambda: isinstance(desk.app.screen, ComparisonPage))
        await desk.shows("answered", "400")
        await desk.press("escape", "m", "c")
        await desk.enter("odd")
        await desk.shows("*✗ provider", "“odd”")
        root = desk.app.screen.calls.exchange.id
        await desk.press("k", "equals_sign")
        await desk.until(lambda: isinstance(desk.app.screen, ComparisonPage))
        assert desk.app.screen._before.what == root
    assert Notes(own_capture).of_exchange(root).comment == "odd"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("c", "curl --request POST"),
        ("p", "import httpx"),
        ("s", "chat.completions.create"),
        ("o", '"call": "provider"'),
        ("i", "a"),
    ],
)
async def test_an_exchange_is_copied_in_several_forms(opened: Open, demo_capture: Path, key: str, text: str) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("n", "R")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.press("y")
        await desk.choose(key)
        await desk.until(lambda: text in (desk.app.clipboard or ""))


async def _exported(desk: Any, key: str, file: Path, told: str) -> bytes:
    await desk.press("x")
    await desk.choose(key)
    await desk.enter(str(file))
    await desk.shows(told)
    return await asyncio.to_thread(file.read_bytes)


async def test_what_is_shown_is_exported_as_the_command_does(
    opened: Open, demo_capture: Path, tmp_path: Path, exports: Any
) -> None:
    """Rows with their diagnoses, or their exchanges; a file that is there is not written over."""
    file = tmp_path / "rows.jsonl"
    async with opened(demo_capture) as desk:
        await _rows(desk)
        desk.app.screen.show_filter(parse("is:failed"))
        await desk.shows("8 of 20 rows")
        written = await _exported(desk, "r", file, "8 rows in")
        assert written == await exports(str(demo_capture), "-f", "rows-jsonl", "--filter", "is:failed")
        written = await _exported(desk, "j", tmp_path / "exchanges", "exchanges in")
        assert written == await exports(str(demo_capture), "--filter", "is:failed")
        await desk.press("x")
        await desk.choose("r")
        await desk.until(lambda: isinstance(desk.app.screen, Prompt) and desk.app.screen.query("#text"))
        desk.app.screen.query_one("#text", Input).value = str(file)
        await desk.shows("is there already")


async def test_a_row_and_an_exchange_are_exported_as_the_command_does(
    opened: Open, demo_capture: Path, tmp_path: Path, exports: Any
) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("n", "enter")
        await desk.shows("provider ◀ root")
        written = await _exported(desk, "j", tmp_path / "row", "exchanges in")
        assert written == await exports(str(demo_capture), "--row", "2.0")
        assert await _exported(desk, "b", tmp_path / "row.gymtap", "read it before you share it")
        root = desk.app.screen.calls.exchange.id
        await desk.press("R")
        await desk.shows("400 Bad Request")
        written = await _exported(desk, "c", tmp_path / "sh", "1 exchange in")
        assert written == await exports(str(demo_capture), "-f", "curl", "-x", root)


async def test_checks_are_run_on_an_exchange(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("n", "R")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.press("V")
        await desk.until(lambda: isinstance(desk.app.screen, TextPage))
        await desk.until(lambda: desk.app.screen.query_one("#text").count())
        assert "what checks say of a" in desk.text


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}, "strict": True}}


@pytest.fixture
def refused(tmp_path: Path, exchange: Any) -> Path:
    """A provider that refuses a tool with which nothing is wrong; an answer that calls it."""
    writer = CaptureWriter.create(tmp_path / "refused")
    sent = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [TOOL]})
    called = [{"type": "function", "id": "c", "function": {"name": "look", "arguments": "{}"}}]
    message = {"role": "assistant", "reasoning": "let me see", "tool_calls": called}
    writer.add(exchange(1, Call.PROVIDER, status=400), sent, b'{"error": {"message": "not this tool"}}')
    for number, content in ((2, ""), (3, None)):
        answer = {"choices": [{"index": 0, "message": message | {"content": content}}]}
        writer.add(exchange(number, Call.PROVIDER), sent, orjson.dumps(answer))
    writer.close()
    return tmp_path / "refused"


async def test_checks_say_what_was_asked_and_that_it_was_refused_all_the_same(opened: Open, refused: Path) -> None:
    """Nothing found is no proof: whoever reads that must see who was asked, and how the server answered."""
    async with opened(refused) as desk:
        desk.app.show_exchange("a1")
        await desk.shows("400")
        await desk.press("V")
        await desk.shows("nothing to find fault with", "provider refused it nevertheless: 400 not this tool")
        await desk.shows("about 1 tool, by the rules of vLLM")


@pytest.mark.parametrize("name", ["a2", "a3"])
async def test_a_message_that_only_calls_tools_is_no_empty_turn(opened: Open, refused: Path, name: str) -> None:
    async with opened(refused) as desk:
        desk.app.show_exchange(name)
        await desk.shows("200")
        desk.app.screen.query_one("Tabs").active = "chat"
        await desk.shows("→ look({})")
        turns = [line.strip() for line in desk.text[desk.text.index("response:") :].split("\n")]
        assert turns[1:5] == ["reasoning", "let me see", "assistant", "→ look({})"]


class Watch(MetaPathFinder):
    """Notes in which thread each module begins to load; it finds none itself."""

    def __init__(self) -> None:
        self.threads: dict[str, int] = {}

    def find_spec(self, name: str, *_: Any) -> None:
        self.threads.setdefault(name, threading.get_ident())


@pytest.mark.parametrize(
    ("key", "module"), [("V", "validation"), ("equals_sign", "comparison"), ("r", "replaying"), ("r", "replay_page")]
)
async def test_what_is_slow_to_load_is_loaded_beside_the_screen(
    opened: Open, refused: Path, monkeypatch: pytest.MonkeyPatch, key: str, module: str
) -> None:
    name = f"gymtap.proxy.tui.{module}"
    watch = Watch()
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    async with opened(refused) as desk:
        desk.app.show_exchange("a1")
        await desk.shows("400")
        await desk.press(key)
        await desk.until(lambda: name in watch.threads)
        assert watch.threads[name] != threading.get_ident()


async def test_an_exchange_is_replayed_and_judged_beside_the_original(
    opened: Open, demo_capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent to another target, it says FIXED where the recorded call failed and this one does not."""
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "for-the-test")
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "warm"}, "finish_reason": "stop"}]}

    async def answers(_: web.Request) -> web.Response:
        return web.json_response(answer)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answers)
    async with TestServer(app) as server, opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("n", "R")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.shows("400 Bad Request")
        await desk.press("r")
        await desk.choose("t")
        await desk.enter(str(server.make_url("/v1")))
        await desk.until(lambda: isinstance(desk.app.screen, ReplayPage))
        await desk.until(lambda: "FIXED 1/1" in desk.text or "send it" in desk.text)
        if "send it" in desk.text:
            await desk.press("s")
        await desk.shows("FIXED 1/1", "kept in")


async def test_a_replay_that_cannot_be_says_why_inside(
    opened: Open, demo_capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path))
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("n", "enter")
        await desk.until(lambda: isinstance(desk.app.screen, RowPage))
        await desk.shows("provider ◀ root")
        await desk.press("g", "r")
        await desk.choose("a")
        await desk.until(lambda: isinstance(desk.app.screen, ReplayPage))
        await desk.shows("✗ ")


async def test_help_lists_the_keys_of_the_view_and_is_narrowed(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        await desk.press("question_mark")
        await desk.until(lambda: isinstance(desk.app.screen, Help))
        await desk.shows("Next failing", "Sort")
        await desk.press(*"boundary")
        await desk.shows("a call or a server kind with a failed exchange")
        assert "Sort" not in desk.text.split("Sort m Mark")[0]
        await desk.press("escape")
        await desk.until(lambda: isinstance(desk.app.screen, RowsPage))


async def test_every_key_is_in_the_palette(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await _rows(desk)
        commands = {command.title for command in desk.app.get_system_commands(desk.app.screen)}
        assert {"Filter", "Sort", "Mark", "Replay", "Export what is shown", "rows: is:failed"} <= commands
        await desk.press("colon")
        await desk.until(lambda: type(desk.app.screen).__name__ == "CommandPalette")


async def test_a_body_goes_to_the_editor_and_comes_back(tmp_path: Path) -> None:
    script = tmp_path / "shout"
    script.write_text('#!/bin/sh\ntr a-z A-Z < "$1" > "$1.new" && mv "$1.new" "$1"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert await asyncio.to_thread(look, shlex.quote(str(script)), b"some text") == b"SOME TEXT"
    with pytest.raises(UsageError, match="cannot be started"):
        look("/nowhere/editor", b"")


async def test_rows_that_come_do_not_move_the_cursor(
    opened: Open, live_writer: Any, exchange: Any, attributed: Any
) -> None:
    """Following brings what is new into view; the cursor stays on its row."""
    async with opened(live_writer.file.parent) as desk:
        await _rows(desk)
        await desk.press("F")
        before = desk.app.screen.current.label
        for number in range(10, 110):
            live_writer.add(
                exchange(number, attribution=attributed(number), call=desk.app.rows and "run"), b"{}", b"{}"
            )
        live_writer.commit()
        await desk.shows("102 of 102 rows", "109.0", "following")
        assert desk.app.screen.current.label == before


async def test_the_debug_order_is_walked_over_the_capture(opened: Open, demo_capture: Path) -> None:
    async with opened(demo_capture) as desk:
        await desk.shows("top causes")
        await desk.press("d")
        await desk.shows("1 Slurm and Ray", "✗ 2 model serving", "symptom")
        await desk.press("escape")
        await desk.shows("top causes")


async def test_another_capture_is_opened_from_the_list(
    opened: Open, demo_capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs first, then replays; the UI then ends with the one to go on with."""
    for name in ("one", "replays/two"):
        await asyncio.to_thread(shutil.copytree, demo_capture, tmp_path / name)
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path))
    async with opened(demo_capture) as desk:
        await desk.shows("top causes")
        await desk.press("C")
        await desk.shows("one ", "20 rows, 8 failed", "replays", "two ")
        await desk.press("G", "enter")
        await desk.until(lambda: desk.app.return_value is not None)
    assert desk.app.return_value == tmp_path / "replays" / "two"


async def test_what_comes_late_does_not_come_over_what_is_asked(opened: Open, demo_capture: Path) -> None:
    """And the palette opens where a view is over another palette."""
    async with opened(demo_capture) as desk:
        app = desk.app
        line = next(line for line in app.rows.lines if line.state is RowState.FAILED)
        came = app.show_root(line)
        app.action_command_palette()
        await came.wait()
        await desk.until(lambda: isinstance(app.screen, CommandPalette) and app.screen.is_mounted)
        app.show_row(line)
        await desk.until(lambda: isinstance(app.screen, RowPage) and app.screen.is_mounted)
        await desk.press("colon")
        await desk.until(lambda: isinstance(app.screen, CommandPalette))
        assert [type(screen) for screen in app.screen_stack[-3:]] == [CommandPalette, RowPage, CommandPalette]
