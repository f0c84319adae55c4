"""What a key does a command does, and docs/tui.md says which: every binding is there, and every command is one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from textual.binding import Binding
from textual.dom import DOMNode

from gymtap.proxy.cli.program import program
from gymtap.proxy.core.filter import FIELDS
from gymtap.proxy.tui.app import GymtapTui
from gymtap.proxy.tui.captures_page import CapturesPage
from gymtap.proxy.tui.comparison import ComparisonPage
from gymtap.proxy.tui.exchange_page import ExchangePage
from gymtap.proxy.tui.help import key_name
from gymtap.proxy.tui.in_flight import InFlight
from gymtap.proxy.tui.json_tree import JsonTree
from gymtap.proxy.tui.lines import Lines
from gymtap.proxy.tui.overview import Overview
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.replay_page import ReplayPage
from gymtap.proxy.tui.row_page import RowPage
from gymtap.proxy.tui.rows_page import RowsPage
from gymtap.proxy.tui.strip_list import Strips
from gymtap.proxy.tui.text_page import TextPage

DOCS = Path(__file__).parents[2] / "docs" / "tui.md"
PAGES = (Page, Overview, RowsPage, RowPage, ExchangePage, InFlight, TextPage, ComparisonPage, CapturesPage, ReplayPage)
WIDGETS = (Lines, JsonTree, Strips)
MOVES = re.compile(
    r"move|go|half|page|choose|fold|fold_all|tab|moment|open_before|follow|next|again|row|parent"
    r"|app\.(back|focus_next|focus_previous|quit|help|rows)|command_palette|help|quit|suspend_process"
)
"""Actions that only lead about in the UI."""


def _tables() -> list[list[list[str]]]:
    """The tables of the section on keys, as cells."""
    section = DOCS.read_text(encoding="utf-8").split("## Keys")[1].split("\n## ")[0]
    tables: list[list[list[str]]] = [[]]
    for line in section.splitlines():
        if line.startswith("|"):
            tables[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif tables[-1]:
            tables.append([])
    return [table[2:] for table in tables if table]


def _bindings(owner: type[DOMNode]) -> Iterator[tuple[str, str]]:
    """Each key as it is shown, with its action."""
    for one in owner.__dict__.get("BINDINGS", ()):
        assert isinstance(one, Binding)
        for key in one.key.split(","):
            yield key_name(key), one.action.partition("(")[0]


def _keys(table: list[list[str]]) -> set[str]:
    return {key for row in table for key in re.findall(r"`([^`]+)`", row[0])}


@pytest.mark.parametrize("owner", [*PAGES, *WIDGETS, GymtapTui], ids=lambda owner: owner.__name__)
def test_every_key_is_documented_with_a_command_or_as_a_move(owner: type[DOMNode]) -> None:
    moves, does = map(_keys, _tables())
    for key, action in _bindings(owner):
        if MOVES.fullmatch(action):
            assert key in moves | does, f"{key} ({action}) moves, and is not in the first table"
        else:
            assert key in does, f"{key} ({action}) does something, and has no command in the second table"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.__name__)
def test_no_list_takes_a_key_from_its_view(page: type[Page]) -> None:
    """What has the focus is asked first, so that a key of both would never reach the view."""
    taken = {key for owner in (Lines, JsonTree) for key, _ in _bindings(owner)}
    assert not taken & {key for key, _ in _bindings(page)}


def test_every_documented_key_is_bound() -> None:
    bound = {key for owner in (*PAGES, *WIDGETS, GymtapTui) for key, _ in _bindings(owner)}
    moves, does = map(_keys, _tables())
    assert moves | does == bound


def _commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    root = typer.main.get_command(program())
    for name, command in root.commands.items():  # type: ignore[attr-defined]  # a group's
        inner = getattr(command, "commands", {})
        yield from ((f"{name} {below}", one) for below, one in inner.items())
        if not inner:
            yield name, command


def test_every_command_that_is_named_exists_with_its_options() -> None:
    known = dict(_commands())
    does = _tables()[1]
    named = [command for row in does for command in re.findall(r"`gymtap ([^`]+)`", row[2])]
    assert all("`gymtap " in row[2] for row in does)
    for text in named:
        name = next((name for name in known if re.match(rf"{name}( |$)", text)), None)
        assert name is not None, text
        options = {option for one in known[name].params for option in (*one.opts, *one.secondary_opts)}
        assert set(re.findall(r"--[a-z-]+", text)) <= options, text


def test_every_field_of_the_filter_language_is_documented() -> None:
    section = DOCS.read_text(encoding="utf-8").split("## The filter language")[1].split("\n## ")[0]
    for field in FIELDS:
        assert re.search(rf"`[^`]*\b{field}[:<>=!]", section), field
