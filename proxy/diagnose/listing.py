"""The rows of a capture that pass a filter; those that failed are diagnosed where the filter asks for it.

Rows in which the same failed byte for byte share one diagnosis, so that it is made as often as there are causes.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from gymtap.proxy.core.filter import Filter
from gymtap.proxy.diagnose.capture import diagnose_row
from gymtap.proxy.store import Capture, Identity, RowLine
from gymtap.proxy.store.listed import Listed, as_row, identity_of, listed, open_at
from gymtap.proxy.store.notes import Notes
from gymtap.schemas import Diagnosis, RowKey, RowState


def diagnosing(
    capture: Capture,
    wanted: Mapping[Identity, RowLine],
    known: dict[int, Diagnosis] | None = None,
    before: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Identity, Diagnosis]]:
    """Each of these failed rows with its diagnosis, in no order. `before` is called before each that takes its time.

    `known` keeps diagnoses from one call to the next, by what failed.
    """
    known = {} if known is None else known
    left = dict(wanted)
    for piece in capture.failure_shapes() if wanted else ():
        for identity, shape in piece.items():
            if identity in left:
                yield identity, _diagnosis(capture, left.pop(identity), shape, known, before)
    for identity, line in left.items():  # what failed without a failed exchange
        yield identity, _diagnosis(capture, line, hash(identity), known, before)


def _diagnosis(
    capture: Capture, line: RowLine, shape: int, known: dict[int, Diagnosis], before: Callable[[], None]
) -> Diagnosis:
    if shape not in known:
        before()
        known[shape] = diagnose_row(capture, as_row(line), now_ns=time.time_ns())
    return known[shape]


def listed_rows(capture: Capture, wanted: Filter) -> list[Listed]:
    """The rows that pass, with their diagnoses, in the order in which they began."""
    return [row for row in listed(capture, partial(_diagnoses, capture)) if wanted(row)]


def listed_row(capture: Capture, key: RowKey, *, diagnosed: bool) -> Listed | None:
    """One row as it is now, None where there is none. `diagnosed` knows why it failed."""
    line = next(iter(capture.row_lines_of([identity_of(key)])), None)
    if line is None:
        return None
    known = diagnosed and line.state is RowState.FAILED
    diagnosis = diagnose_row(capture, as_row(line), now_ns=time.time_ns()) if known else None
    is_open = open_at(capture.open_exchanges())
    return Listed(line, diagnosis, Notes(capture.path), is_open.get(line.identity, ()))


def _diagnoses(capture: Capture, lines: list[RowLine]) -> dict[Identity, Diagnosis]:
    failed = {line.identity: line for line in lines if line.state is RowState.FAILED}
    return dict(diagnosing(capture, failed))
