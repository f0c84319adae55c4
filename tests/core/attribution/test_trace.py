"""W3C trace context."""

import pytest

from gymtap.proxy.core.attribution import trace

ID = "0af7651916cd43dd8448eb211c80319c"


def test_one_trace_whatever_the_span() -> None:
    """Requests of one trace have one token, whatever span they are of; another trace has another."""
    one = trace.from_headers((("Traceparent", f"00-{ID}-b7ad6b7169203331-01"),))
    assert one is not None
    assert one == trace.from_headers((("traceparent", f"00-{ID}-00f067aa0ba902b7-00"),))
    assert one != trace.from_headers((("traceparent", f"00-{ID[::-1]}-00f067aa0ba902b7-00"),))


@pytest.mark.parametrize(
    "value", ["", "x", f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-{ID.upper()}-b7ad6b7169203331-01"]
)
def test_invalid_traces_are_none(value: str) -> None:
    """What the standard calls invalid says nothing."""
    assert trace.from_headers((("traceparent", value),)) is None
