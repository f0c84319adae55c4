"""A capture that is read on one thread of its own, so that no key ever waits for a disk.

SQLite's connections and the reader's caches belong to the thread that made them; whoever wants something asks, and
awaits the answer.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate

from gymtap.proxy.store import Capture


class Reader:
    """`ask` calls a function with the capture, on the reader's thread, in the order of asking."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(1, "reader")
        self._capture: Capture | None = None

    async def ask[**P, T](
        self, function: Callable[Concatenate[Capture, P], T], *values: P.args, **named: P.kwargs
    ) -> T:
        """What `function(capture, …)` returns. Raises what it raises, and CaptureError."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: function(self._opened(), *values, **named)
        )

    def _opened(self) -> Capture:
        if self._capture is None:
            self._capture = Capture(self.path)
        return self._capture

    def close(self) -> None:
        """End the thread when what it does is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)
