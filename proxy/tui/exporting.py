"""What `x` writes: the documents of `gymtap export`, and of `gymtap bundle`, to a file that was not there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.core.formats import OF_ONE, Format
from gymtap.proxy.store import Capture
from gymtap.proxy.store.listed import as_row, identity_of
from gymtap.proxy.views.words import counted
from gymtap.schemas import Exchange, Row, RowKey

BUNDLE = "bundle"
"""Beside the formats: a row as a file of its own."""

_ABOUT: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        Format.ROWS: ("r", "rows, each with its diagnosis, as JSON Lines", "rows.jsonl"),
        Format.JSONL: ("j", "exchanges, with their bodies, as JSON Lines", "jsonl"),
        Format.HAR: ("h", "exchanges as HAR, for a browser's devtools", "har"),
        Format.MITM: ("m", "exchanges as mitmproxy's flows", "mitm"),
        Format.PARQUET: ("p", "exchanges as Parquet, for DuckDB or pandas", "parquet"),
        Format.CURL: ("c", "a curl command", "sh"),
        Format.PYTHON: ("y", "Python, with httpx", "py"),
        Format.OPENAI: ("o", "Python, with OpenAI's SDK", "py"),
        BUNDLE: ("b", "the row in one small redacted file, for a bug report", "gymtap"),
    }
)


@dataclass(frozen=True)
class Wish:
    """What to export: rows, by their keys, or exchanges, by their ids. `name` is what the file is called after."""

    name: str
    rows: tuple[RowKey, ...] = ()
    ids: tuple[str, ...] = ()


class Stopped(GymtapError):  # noqa: N818  # nothing went wrong
    """The person left before all was written."""


def ways(wish: Wish) -> list[tuple[str, str]]:
    """The formats that it can be written in, each by its key."""
    unfit = {Format.ROWS, BUNDLE} if wish.ids else set(OF_ONE) | ({BUNDLE} if len(wish.rows) != 1 else set())
    return [(key, about) for way, (key, about, _) in _ABOUT.items() if way not in unfit]


def way_of(key: str) -> str:
    """The format of a key."""
    return next(way for way, (mine, _, _) in _ABOUT.items() if mine == key)


def file_name(wish: Wish, way: str) -> str:
    """What the file may be called."""
    stem = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in wish.name)
    return f"{stem}.{_ABOUT[way][2]}"


def check(text: str) -> Path:
    """Where to write. Raises UsageError for what is there already."""
    file = Path(text).expanduser()
    if not text.strip():
        raise UsageError("a name is missing", "Esc leaves")
    if file.exists():
        raise UsageError(f"{file} is there already", "choose another name")
    return file


def export(path: Path, wish: Wish, way: str, file: Path, going_on: Callable[[], bool]) -> str:
    """Write it; what to say of it. Raises GymtapError, and Stopped when `going_on` says no."""
    with Capture(path) as capture:
        return _bundle(capture, wish, file) if way == BUNDLE else _write(capture, wish, Format(way), file, going_on)


def _bundle(capture: Capture, wish: Wish, file: Path) -> str:
    from gymtap.proxy.diagnose.capture import sibling
    from gymtap.proxy.replay.bundle import make

    row = capture.row(wish.rows[0])
    made = make(capture, row, file, beside=sibling(capture, row))
    return f"row {made.row}, {counted(made.exchanges, 'exchange')} in {file}: read it before you share it"


def _write(capture: Capture, wish: Wish, way: Format, file: Path, going_on: Callable[[], bool]) -> str:
    from gymtap.proxy.export import Chosen, Wanted
    from gymtap.proxy.export.write import whole, write

    def watched[T](found: Iterable[T]) -> Iterator[T]:
        for one in found:
            if not going_on():
                raise Stopped(f"{file} was not written")
            yield one

    class Watched(Chosen):
        def exchanges(self) -> Iterator[Exchange]:
            return watched(super().exchanges())

    chosen = Watched(capture, Wanted(ids=wish.ids, rows=frozenset(wish.rows) if wish.rows else None))
    check(str(file))
    with whole(file) as out:
        write(way, chosen, watched(_rows(capture, wish.rows)), out)
    lost = f"; {counted(len(chosen.incomplete), 'exchange')} not whole" if chosen.incomplete else ""
    what = counted(len(wish.rows), "row") if way is Format.ROWS else counted(chosen.count, "exchange")
    return f"{what} in {file}{lost}"


def _rows(capture: Capture, keys: Iterable[RowKey]) -> Iterator[Row]:
    for key in keys:
        yield from (as_row(line) for line in capture.row_lines_of([identity_of(key)]))
