import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from gymtap.proxy.store import Capture, CaptureWriter, RowLine
from gymtap.proxy.store.row_lines import pieces
from gymtap.schemas import Call, Row


def _as_row(line: RowLine) -> Row:
    fields = {name: getattr(line, name) for name in Row.model_fields if name not in ("key", "failed_exchanges")}
    return Row(key=line.key, failed_exchanges=line.failed, **fields)


def test_lines_say_of_every_row_what_rows_say(demo_capture: Path) -> None:
    capture = Capture(demo_capture)
    lines = [line for piece in capture.row_lines(piece_rows=3) for line in piece]
    by_label = {row.key.label: row for row in capture.rows()}
    assert {line.label: _as_row(line) for line in lines} == by_label
    assert len(lines) == len(by_label) == 20


def test_a_line_names_the_calls_and_the_servers_that_failed(demo_capture: Path) -> None:
    capture = Capture(demo_capture)
    for piece in capture.row_lines():
        for line in piece:
            failed = [one for one in capture.exchanges(row=line.key) if one.failed]
            assert line.failed_at == {str(name) for one in failed for name in (one.call, one.kind)}
            assert line.failed == len(failed)


def test_changed_rows_are_told_once(demo_capture: Path) -> None:
    """`since` None begins now; from the start, every row has changed; nothing changes twice."""
    capture = Capture(demo_capture)
    assert capture.row_lines_since(None)[0] == []
    changed, cursor = capture.row_lines_since({})
    assert sorted(line.label for line in changed) == sorted(row.key.label for row in capture.rows())
    assert capture.row_lines_since(cursor)[0] == []


def test_what_is_in_flight_is_listed_by_age_and_dead_writers_have_nothing(demo_capture: Path) -> None:
    capture = Capture(demo_capture)
    assert capture.open_exchanges() == []
    assert capture.live() is False
    assert capture.count() == len(list(capture.exchanges()))


class Watched:
    """A source in which `happens` once, after the first look at rows."""

    def __init__(self, file: Path, happens: Any) -> None:
        self._connection = sqlite3.connect(file)
        self._happens = happens

    def all(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        found = self._connection.execute(statement, values).fetchall()
        if "FROM rows WHERE" in statement:
            happens, self._happens = self._happens, lambda: None
            happens()
        return found

    def close(self) -> None:
        self._connection.close()


def test_a_row_that_appears_while_lines_are_read_is_told_of_later(
    tmp_path: Path, exchange: Any, attributed: Any
) -> None:
    writer = CaptureWriter.create(tmp_path / "live")
    writer.add(exchange(1, Call.RUN, attribution=attributed(5)), b"{}", b"{}")
    writer.commit()

    def appears() -> None:
        writer.add(exchange(2, Call.RUN, status=500, attribution=attributed(6)), b"{}", b"{}")
        writer.add(exchange(3, Call.RUN, status=None, attribution=attributed(7)), b"{}")
        writer.commit()

    capture = Capture(tmp_path / "live")
    _, cursor = capture.row_lines_since(None)
    with closing(Watched(writer.file, appears)) as source:
        (found,) = pieces([(source, False)])
    assert [line.label for line in found] == ["5.0"]
    assert [line.label for line in capture.row_lines_since(cursor)[0]] == ["6.0", "7.0"]
    writer.close()
