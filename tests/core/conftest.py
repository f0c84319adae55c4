"""What tests of the pure functions share."""

import time
from collections.abc import Callable

import pytest

_TRIES = 5


@pytest.fixture
def is_linear() -> Callable[[Callable[[str], object], str], bool]:
    """Whether ten times the text costs about ten times the processor time, not a hundred times.

    Forty leaves room for what caches do, and a busy machine slows one try down, not five.
    """

    def cost(call: Callable[[str], object], text: str) -> float:
        begin = time.thread_time()
        call(text)
        return time.thread_time() - begin

    def told(call: Callable[[str], object], hostile: str) -> bool:
        small = hostile[: len(hostile) // 10]
        return any(cost(call, hostile) < 40 * cost(call, small) + 0.5 for _ in range(_TRIES))

    return told
