"""Writes rows as JSON Lines: each as `gymtap rows --json` tells it, with its diagnosis where it is known."""

from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.store.listed import as_row
from gymtap.proxy.tui.row_list import RowList

_TOLD_EVERY = 5_000


def write_rows(rows: RowList, positions: Sequence[int], file: Path, going_on: Callable[[int], bool]) -> int:
    """How many were written. `going_on` is asked now and then; False stops. Raises UsageError where it cannot write."""
    try:
        with file.open("xb") as lines:
            for number, at in enumerate(positions):
                if number % _TOLD_EVERY == 0 and not going_on(number):
                    return number
                lines.write(_line(rows, at))
    except FileExistsError as error:
        raise UsageError(f"{file} is there already", "choose another name") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
    return len(positions)


def _line(rows: RowList, at: int) -> bytes:
    listed = rows.listed(at)
    document = {
        "label": listed.label,
        "message": listed.message or None,
        **as_row(listed.line).model_dump(mode="json"),
        "layer": listed.layer,
        "cause": listed.cause,
        "marked": listed.marked,
        "comment": listed.note.comment,
    }
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
