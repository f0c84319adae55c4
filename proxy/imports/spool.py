"""Values that wait for their turn: in memory while they are few, then in a file without a name.

The file is never seen in any folder and goes with the process that made it, so what is not redacted yet cannot be
left behind.
"""

import pickle
import tempfile
from pathlib import Path
from typing import Any

from gymtap.proxy.core.errors import GymtapError

MEMORY_BYTES = 64 * 2**20


class Spool:
    """Put all values first, then get each as often as it is needed. `directory` has room for them."""

    def __init__(self, directory: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._directory = directory
        self._file = tempfile.SpooledTemporaryFile(memory_bytes, dir=str(directory))  # noqa: SIM115 - `close` closes it

    def put(self, value: object) -> int:
        """Where it is from now on. Raises GymtapError where there is no room."""
        try:
            at: int = self._file.tell()
            pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
        except OSError as error:
            why = f"{self._directory}: no room for what is read: {error.strerror or error}"
            raise GymtapError(why, "import fewer files at once, or name a --capture elsewhere") from error
        return at

    def get(self, at: int) -> Any:
        """The value that was put there."""
        self._file.seek(at)
        return pickle.load(self._file)  # noqa: S301 - nobody else can have written to it

    def close(self) -> None:
        """Forget all."""
        self._file.close()
