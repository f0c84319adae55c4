"""How bodies are shown: conversations, streams, and what is too large to be held."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from textual.widgets import Tabs

from gymtap.proxy.store import CaptureWriter
from gymtap.proxy.tui.byte_lines import RawLines
from gymtap.proxy.tui.content import IN_MEMORY_BYTES
from gymtap.proxy.tui.exchange_page import ExchangePage
from gymtap.proxy.tui.lines import ANY_CELLS
from gymtap.proxy.tui.text_page import TextPage
from gymtap.schemas import Call

type Open = Any
"""See `opened` in conftest.py."""

ASKED = {
    "input": [
        {"role": "user", "content": "Weather in Oslo?"},
        {"type": "function_call", "name": "get_weather", "call_id": "c0", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call_output", "call_id": "c0", "output": "minus three"},
    ]
}
ANSWERED = {
    "output": [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "in short"}],
            "content": [{"type": "reasoning_text", "text": "at length"}],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is cold."}]},
    ]
}
NEEDLE = "needle in a haystack"


def _chunk(delta: dict[str, Any]) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


STREAM = (
    _chunk({"role": "assistant", "reasoning_content": "hmm"})
    + _chunk({"content": "It is "})
    + _chunk({"content": "cold."})
    + b'event: response.output_text.delta\ndata: {"delta": "later"}\n\n'
    + b"data: [DONE]\n\n"
)


@pytest.fixture
def bodies(tmp_path: Path, exchange: Callable[..., Any]) -> Path:
    writer = CaptureWriter.create(tmp_path / "bodies")
    writer.add(exchange(1, Call.RUN), b"{}", b'{"reward": 1.0}')
    writer.add(exchange(2, Call.MODEL, 1), orjson.dumps(ASKED), orjson.dumps(ANSWERED))
    writer.add(exchange(3, Call.PROVIDER, 2), b"{}", STREAM)
    large = b'{"text": "' + b"hay " * (IN_MEMORY_BYTES // 4) + NEEDLE.encode() + b'"}'
    writer.add(exchange(4, Call.PROVIDER, 2), large, b"\xfe\xff\x00plain")
    writer.close()
    return tmp_path / "bodies"


async def _tab(desk: Any, exchange: str, tab: str) -> None:
    desk.app.show_exchange(exchange)
    await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
    await desk.shows(f"{exchange} ✓")
    desk.app.screen.query_one(Tabs).active = tab


async def test_a_conversation_has_its_tool_calls_their_outputs_and_the_reasoning(opened: Open, bodies: Path) -> None:
    async with opened(bodies) as desk:
        await _tab(desk, "a2", "chat")
        await desk.shows("user", "Weather in Oslo?", '→ get_weather({"city": "Oslo"})', "tool", "minus three")
        await desk.shows("reasoning", "in short", "at length", "It is cold.")


async def test_a_stream_is_shown_event_by_event_and_as_the_answer_that_it_is(opened: Open, bodies: Path) -> None:
    """Each event begins with what it adds; Enter lays it out."""
    async with opened(bodies, (80, 24)) as desk:
        await _tab(desk, "a3", "events")
        await desk.shows('1 {"role":"assistant","reasoning_content":"hmm"}', '2 {"content":"It is "}', "5 [DONE]")
        await desk.shows("4 response.output_text.delta later")
        await desk.press("j", "enter")
        await desk.until(lambda: isinstance(desk.app.screen, TextPage))
        await desk.shows("event 2 of a3", '"content": "It is "')
        await desk.press("escape")
        desk.app.screen.query_one(Tabs).active = "chat"
        await desk.shows("reasoning", "hmm", "It is cold.")


async def test_a_large_body_is_searched_where_it_lies(opened: Open, bodies: Path) -> None:
    """Also from the tab that has no tree of it; the search leads to Raw."""
    async with opened(bodies, (80, 24)) as desk:
        await _tab(desk, "a4", "request")
        await desk.shows("too large for a tree")
        await desk.press("slash")
        await desk.enter(NEEDLE)
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage) and NEEDLE in desk.text)
        raw = desk.app.screen.query_one(RawLines)
        assert desk.app.screen.query_one(Tabs).active == "raw"
        await desk.until(lambda: raw.has_focus)
        lines = range(raw.cursor, min(raw.cursor + 2, raw.count()))
        assert NEEDLE in "".join(raw.line(index, ANY_CELLS).plain for index in lines)


async def test_bytes_that_are_no_text_are_shown_in_hex(opened: Open, bodies: Path) -> None:
    async with opened(bodies) as desk:
        await _tab(desk, "a4", "response")
        await desk.shows("plain")
        desk.app.screen.query_one(Tabs).active = "hex"
        await desk.shows("00000000  fe ff 00 70 6c 61 69 6e", "...plain")
