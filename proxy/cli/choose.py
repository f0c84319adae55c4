"""Finds what a command line names: a capture, a row, an exchange; and says on stderr what a person must know.

Which capture was taken is said when it was not named, and gaps are said always: what was not captured may be
the very thing that is looked for.
"""

import re
from collections.abc import Sequence

from gymtap.proxy.cli.screen import note
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.store import Capture, resolve
from gymtap.proxy.views.words import counted, gap_line
from gymtap.schemas import Gap, Row, RowKey

_EXCHANGE_ID = re.compile(r"[a-z]+\d+")
_GAPS_TOLD = 3


def open_capture(name: str | None, *, quiet: bool = False) -> Capture:
    """The capture of that path or name, or the newest. `quiet` says nothing on stderr.

    Raises CaptureError, and UsageError for an empty name, as a shell's unset variable gives: `.` is not meant.
    """
    if name is not None and not name.strip():
        raise UsageError("the capture's name is empty", "leave it out for the newest; `gymtap captures` lists them")
    capture = Capture(resolve(name))
    if not quiet:
        if name is None:
            note(f"capture {capture.path.name}, the newest")
        tell_gaps(capture.gaps())
    return capture


def tell_gaps(gaps: Sequence[Gap]) -> None:
    """Say on stderr what was not captured; nothing when nothing is missing."""
    if not gaps:
        return
    note(f"! {counted(len(gaps), 'gap')}: not everything was captured")
    for gap in gaps[:_GAPS_TOLD]:
        note(f"  {gap_line(gap)}")
    if len(gaps) > _GAPS_TOLD:
        note(f"  … and {len(gaps) - _GAPS_TOLD:,} more: gymtap captures --json")


def is_exchange_id(text: str) -> bool:
    """Whether it is written like an exchange's id (`a42`); no row's label is."""
    return _EXCHANGE_ID.fullmatch(text) is not None


def parse_row(label: str) -> RowKey:
    """A row's key from its label. Raises UsageError."""
    try:
        return RowKey.parse(label)
    except ValueError as error:
        hint = "an exchange's id, as in a42, works too; a capture is named with -c"
        raise UsageError(str(error), hint) from error


def parse_name(text: str) -> RowKey | str:
    """What a person named: an exchange, by its id, or a row, by its key. Raises UsageError."""
    return text if is_exchange_id(text) else parse_row(text)


def row_of(capture: Capture, text: str) -> Row | None:
    """The row of that label, or of that exchange; None for an exchange of no row. Raises UsageError, CaptureError."""
    named = parse_name(text)
    key = capture.exchange(named).attribution.row if isinstance(named, str) else named
    return None if key is None else capture.row(key)
