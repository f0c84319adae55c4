from rich.console import Console
from rich.text import Text

from gymtap.proxy.views.columns import Across, Column, Columns


def _drawn(columns: Columns, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(columns)
    return captured.get().splitlines()


_COLUMNS = (Column("name", least=4), Column("n", right=True), Column("last", least=2))


def test_names_stand_left_and_figures_right_and_nothing_trails() -> None:
    lines = [[Text("a"), Text("1"), Text("x")], [Text("long name"), Text("1,000"), Text("")]]
    assert _drawn(Columns(_COLUMNS, lines), 80) == ["name           n  last", "a              1  x", "long name  1,000"]


def test_the_column_that_may_gives_way_and_shows_it() -> None:
    lines = [[Text("long name"), Text("1,000"), Text("the end")]]
    assert _drawn(Columns(_COLUMNS, lines), 21) == ["name       n  last", "long…  1,000  the end"]
    assert _drawn(Columns(_COLUMNS, lines), 15) == ["name      n  l…", "lon…  1,000  t…"]


def test_wide_characters_take_two_cells() -> None:
    lines = [[Text("日本"), Text("1"), Text("x")], [Text("abcde"), Text("22"), Text("y")]]
    assert _drawn(Columns(_COLUMNS, lines), 80)[1:] == ["日本    1  x", "abcde  22  y"]


def test_a_text_across_is_wrapped_behind_its_guide() -> None:
    lines = [[Text("a"), Text("1"), Text("x")], Across(Text("one two three four"), "│ ")]
    assert _drawn(Columns(_COLUMNS, lines), 12)[2:] == ["│ one two", "│ three four"]


def test_columns_that_can_be_spared_make_room() -> None:
    """The highest first, and only where another would have to go below its least."""
    columns = Columns(
        (Column("name", least=9), Column("n", spare=1), Column("size", spare=2)),
        [[Text("long name that gives"), Text("1"), Text("5 kB")]],
    )
    assert _drawn(columns, 18) == ["name       n  size", "long nam…  1  5 kB"]
    assert _drawn(columns, 17) == ["name            n", "long name tha…  1"]
    assert _drawn(columns, 11) == ["name", "long name …"]
    assert _drawn(columns, 5) == ["name", "long…"]
