"""Names that people write."""

import pytest

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.named import one_of
from gymtap.schemas import RowState


def test_a_name_that_is_none_is_told_with_those_that_are() -> None:
    assert [one_of(RowState, text) for text in ("failed", None)] == [RowState.FAILED, None]
    with pytest.raises(UsageError, match="there is no 'broken'") as told:
        one_of(RowState, "broken")
    assert told.value.hint == "there are: running, done, failed"
