"""Replays from the UI: every option of `gymtap replay` can be chosen, and stands as the command beneath the form."""

import inspect
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from aiohttp import web
from aiohttp.test_utils import TestServer
from textual.widgets import Static

from gymtap.proxy.cli import replay
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay.options import Options
from gymtap.proxy.tui.comparison import ComparisonPage
from gymtap.proxy.tui.exchange_page import ExchangePage
from gymtap.proxy.tui.replay_form import FIELDS, ReplayForm, arguments, read, written
from gymtap.proxy.tui.replay_page import ReplayPage
from gymtap.proxy.tui.replaying import Asked, aimed
from gymtap.schemas import RowKey

type Open = Any
"""See `opened` in conftest.py."""

ELSEWHERE = {"what", "failed", "cause", "wanted", "rows", "edit", "yes", "capture", "as_json"}
"""What is chosen otherwise: on the rows that are shown, by `e`, by an answer, by where one is."""

CHOSEN = {
    "start": "model:2",
    "stub": "provider,judge",
    "stub_loose": True,
    "stub_pass": True,
    "stub_listen": "127.0.0.1:8123",
    "gym": "http://127.0.0.1:11000",
    "to": "agent=http://127.0.0.1:1 model=http://127.0.0.1:2",
    "endpoint": "http://127.0.0.1:3/v1",
    "api_key_env": "MY_KEY",
    "model": "other",
    "assignments": """/a=1 '/b=two words'""",
    "patch": "change.json",
    "tools": False,
    "times": "3",
    "concurrency": "2",
    "ignore": "nonce stamp",
    "into": "kept",
}


def _parsed(words: list[str]) -> dict[str, Any]:
    """What `gymtap replay` understands of a command line."""
    app = typer.Typer()
    replay.register(app)
    return dict(typer.main.get_command(app).make_context("replay", words).params)


def test_every_option_of_the_command_is_in_the_form() -> None:
    options = set(_parsed(["1.0"])) - ELSEWHERE
    assert {"stub_pass" if name == "stub_miss" else name for name in options} == set(FIELDS)
    assert set(FIELDS) == set(inspect.signature(Options).parameters)


def test_the_command_beneath_the_form_means_what_was_chosen() -> None:
    assert set(CHOSEN) == set(FIELDS)
    values = {name: value if isinstance(value, bool) else read(name, value) for name, value in CHOSEN.items()}
    asked = Asked((RowKey(task=1, rollout=0, agent="an agent"),), Options(**values))
    found = _parsed(arguments(asked))
    assert found.pop("what") == "1.0~an agent"
    assert found.pop("stub_miss") == "pass"
    for name, value in values.items():
        if name != "stub_pass":
            assert (tuple(found[name]) if isinstance(value, tuple) else found[name]) == value, name


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_value_is_shown_as_it_is_read(name: str) -> None:
    value = CHOSEN[name]
    if isinstance(value, str):
        assert read(name, written(name, read(name, value))) == read(name, value)
        assert read(name, "") == getattr(Options(), name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("times", "0"),
        ("to", "nowhere"),
        ("stub_listen", "here"),
        ("assignments", "/a"),
        ("to", "'open"),
        ("gym", "ftp://h"),
    ],
)
def test_what_is_no_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError):
        read(name, text)


def test_a_target_is_a_server_a_gym_or_the_provider() -> None:
    assert aimed(Options(), "agent=http://h:1").to == ("agent=http://h:1",)
    assert aimed(Options(), "gym h:2").gym == "http://h:2"
    assert aimed(Options(), "http://h:3/v1").endpoint == "http://h:3/v1"
    with pytest.raises(UsageError):
        aimed(Options(), "agent=")


async def test_options_are_chosen_and_the_result_lands_beside_the_original(
    opened: Open, demo_capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited provider call, twice, at another endpoint: FIXED, and compared with what was recorded."""
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "for-the-test")
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "warm"}, "finish_reason": "stop"}]}
    asked: list[Any] = []

    async def answers(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response(answer)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answers)
    chosen = {"endpoint": "", "assignments": "/temperature=0.25", "times": "2"}
    async with TestServer(app) as server, opened(demo_capture) as desk:
        chosen["endpoint"] = str(server.make_url("/v1"))
        await desk.press("l", "n", "R")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.shows("400 Bad Request")
        await desk.press("r")
        await desk.choose("o")
        await desk.until(lambda: isinstance(desk.app.screen, ReplayForm) and desk.app.screen.query("#command"))
        for name, value in chosen.items():
            desk.app.screen.query_one("#options").cursor = list(FIELDS).index(name)
            await desk.press("enter")
            await desk.enter(value)
            await desk.until(lambda: isinstance(desk.app.screen, ReplayForm))
        command = str(desk.app.screen.query_one("#command", Static).content)
        assert shlex.split(command)[:2] == ["gymtap", "replay"]
        await desk.press("s")
        await desk.until(lambda: isinstance(desk.app.screen, ReplayPage))
        await desk.until(lambda: "FIXED 2/2" in desk.text or "send it" in desk.text)
        if "send it" in desk.text:
            await desk.press("s")
        await desk.shows("FIXED 2/2", "2 of 2 sent", "kept in")
        assert [one["temperature"] for one in asked] == [0.25, 0.25]
        await desk.press("equals_sign")
        await desk.until(lambda: isinstance(desk.app.screen, ComparisonPage))
        await desk.shows("/temperature", "400", "200")
        await desk.press("enter")
        await desk.until(lambda: isinstance(desk.app.screen, ExchangePage))
        await desk.shows("200 OK", "warm")
        await desk.press("equals_sign")
        await desk.until(lambda: isinstance(desk.app.screen, ComparisonPage))
        await desk.shows("/temperature")


async def test_the_rows_that_are_shown_are_replayed_together(
    opened: Open, demo_capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path))
    async with opened(demo_capture) as desk:
        await desk.press("l")
        await desk.shows("20 of 20 rows")
        await desk.press("r")
        await desk.choose("m")
        await desk.until(lambda: isinstance(desk.app.screen, ReplayForm) and desk.app.screen.query("#command"))
        assert len(desk.app.screen._asked.what) == 20
        await desk.press("s")
        await desk.until(lambda: isinstance(desk.app.screen, ReplayPage))
        await desk.shows("replay of 20 rows", "✗ ")
