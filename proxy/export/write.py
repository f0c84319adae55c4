"""Writes what was chosen in one of the formats, to a file that takes its name only when it is whole."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.core.formats import Format
from gymtap.proxy.export.select import Chosen
from gymtap.schemas import Row


@contextlib.contextmanager
def whole(output: Path) -> Iterator[BinaryIO]:
    """A file to write to. Raises GymtapError where it cannot be written; nothing is left of one that was not ended."""
    as_it_is = output.exists() and not output.is_file()  # a pipe or a device
    part = output if as_it_is else output.with_name(f"{output.name}.part")
    try:
        with part.open("wb") as out:
            yield out
        if not as_it_is:
            part.replace(output)
    except OSError as error:
        raise GymtapError(f"cannot write {output}: {error.strerror or error}", "name another file") from error
    finally:
        if not as_it_is:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def write(to: Format, chosen: Chosen, rows: Iterable[Row], out: BinaryIO) -> None:
    """Write exchanges; or, as `rows-jsonl`, rows. Raises GymtapError."""
    if to is Format.PARQUET:
        from gymtap.proxy.export.parquet import write_parquet  # noqa: PLC0415 - loads pyarrow

        write_parquet(chosen, out)
    elif to is Format.MITM:
        from gymtap.proxy.export.flows import write_flows  # noqa: PLC0415 - loads mitmproxy

        write_flows(chosen, out)
    else:
        out.writelines(_pieces(to, chosen, rows))


def _pieces(to: Format, chosen: Chosen, rows: Iterable[Row]) -> Iterable[bytes]:
    from importlib.metadata import version  # noqa: PLC0415 - slow, and only needed here

    from gymtap.proxy.export import har, lines, snippet  # noqa: PLC0415 - quick to open

    of_one: dict[Format, Callable[..., str]] = {
        Format.CURL: snippet.curl,
        Format.PYTHON: snippet.python,
        Format.OPENAI: snippet.openai,
    }
    match to:
        case Format.HAR:
            yield from har.har(chosen, version("gymtap"))
        case Format.ROWS:
            yield from lines.row_lines(chosen.capture, rows)
        case Format.CURL | Format.PYTHON | Format.OPENAI:
            yield from (of_one[to](kept).encode() for kept in chosen)
        case _:
            yield from lines.exchange_lines(chosen.capture, chosen)
