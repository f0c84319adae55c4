"""Which rows share their identity, in memory that does not grow with the file.

Each identity is a 64-bit hash beside its line, spread over files by the hash; duplicates meet in one file, and
one file at a time is read back. Two different identities share a hash once in billions of rows.
"""

import hashlib
import tempfile
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_FILES = 64
_FLUSH_PAIRS = 8192


def identity_of(row: Any) -> int | None:
    """The hash of a row's indices, attempt, rollout id and agent; None when it has no indices."""
    if not isinstance(row, Mapping):
        return None
    task, rollout = row.get("_ng_task_index"), row.get("_ng_rollout_index")
    if task is None or rollout is None:
        return None
    agent = row.get("agent_ref")
    name = agent.get("name") if isinstance(agent, Mapping) else None
    whole = repr((task, rollout, row.get("_ng_attempt_index") or 0, row.get("_ng_rollout_id"), name))
    return int.from_bytes(hashlib.blake2b(whole.encode(errors="replace"), digest_size=8).digest())


class Identities:
    """Add pairs of (hash, line), then ask for the duplicates."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gymtap-rows-")
        self._waiting = [array("Q") for _file in range(_FILES)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def add(self, identity: int, line: int) -> None:
        """One row."""
        waiting = self._waiting[identity % _FILES]
        waiting.extend((identity, line))
        if len(waiting) >= 2 * _FLUSH_PAIRS:
            self._flush(identity % _FILES)

    def duplicates(self) -> Iterator[tuple[int, int]]:
        """`(first line, later line)` for each later row, file by file."""
        for number, waiting in enumerate(self._waiting):
            pairs = array("Q")
            if self._file(number).exists():
                pairs.frombytes(self._file(number).read_bytes())
            pairs.extend(waiting)
            first: dict[int, int] = {}
            for identity, line in sorted(zip(pairs[::2], pairs[1::2], strict=True), key=lambda pair: pair[1]):
                if identity in first:
                    yield first[identity], line
                else:
                    first[identity] = line

    def _file(self, number: int) -> Path:
        return Path(self._folder.name) / str(number)

    def _flush(self, number: int) -> None:
        with self._file(number).open("ab") as file:
            self._waiting[number].tofile(file)
        self._waiting[number] = array("Q")
