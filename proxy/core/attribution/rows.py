"""The rows that are known: found by what a request states of them, and forgotten once they are over.

A row that is over stays findable until `limit` later ones are over too, because closing calls, and clients that try
again, come after the end.
"""

from gymtap.proxy.core.attribution import rollout
from gymtap.proxy.core.attribution.rollout import Stated
from gymtap.proxy.core.attribution.state import KnownRow
from gymtap.schemas import RowKey


class Rows:
    """Rows by indices and by explicit rollout id."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[tuple[int | str | None, ...], dict[KnownRow, None]] = {}
        self._over: dict[KnownRow, None] = {}

    def add(self, key: RowKey) -> KnownRow:
        """Know a new row."""
        row = KnownRow(key)
        for name in _names(key):
            self._known.setdefault(name, {})[row] = None
        return row

    def matching(self, stated: Stated) -> list[KnownRow]:
        """The rows that may be meant: those in flight, or else the latest that fits."""
        named = (row for name in _stated_names(stated) for row in self._known.get(name, ()))
        rows = [row for row in dict.fromkeys(named) if _fits(row.key, stated)]
        return [row for row in rows if row.root is not None and row.root.open] or rows[-1:]

    def retried(self, key: RowKey) -> KnownRow | None:
        """The row of this very key, any run, whose client is due to try again."""
        for row in self._known.get(_names(key)[0], ()):
            if row.retryable and row.key.model_copy(update={"run": key.run}) == key:
                return row
        return None

    def expect_no_retries(self) -> None:
        """Whoever sends a row now begins it."""
        for row in self._over:
            row.retryable = False

    def finish(self, row: KnownRow) -> list[KnownRow]:
        """A row is over; the rows that are forgotten thereby."""
        self._over.pop(row, None)
        self._over[row] = None
        if len(self._over) <= self._limit:
            return []
        oldest = next(iter(self._over))
        self._forget(oldest)
        return [oldest]

    def reopen(self, row: KnownRow) -> None:
        """A row that was over is in flight again."""
        self._over.pop(row, None)

    def _forget(self, row: KnownRow) -> None:
        del self._over[row]
        for name in _names(row.key):
            rows = self._known[name]
            del rows[row]
            if not rows:
                del self._known[name]


def _names(key: RowKey) -> list[tuple[int | str | None, ...]]:
    names: list[tuple[int | str | None, ...]] = [(rollout.path_of(key),)]
    if key.task is not None:
        names.append((key.task, key.rollout, key.attempt))
    return names


def _stated_names(stated: Stated) -> list[tuple[int | str | None, ...]]:
    if stated.path is not None:
        return [(stated.path,)]
    return _names(stated.key(1)) if stated.is_row else []


def _fits(key: RowKey, stated: Stated) -> bool:
    agents = {key.agent, stated.agent} - {None}
    ids = {key.rollout_id, stated.rollout_id} - {None}
    return len(agents) <= 1 and len(ids) <= 1
