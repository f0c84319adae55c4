from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.views.plain import clipped, one_line, printable
from gymtap.proxy.views.words import call_name, doubt, duration, exchange_status, size
from gymtap.schemas import Attribution, Call, Confidence, Method, RowKey, State, TransportError, TransportErrorKind

type Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (None, ""),
        (0.44, "0.4 ms"),
        (9.96, "10 ms"),
        (38.2, "38 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (59_949, "59.9 s"),
        (59_951, "1 m 00 s"),
        (125_000, "2 m 05 s"),
        (11_220_000, "3 h 07 m"),
    ],
)
def test_a_duration_has_a_unit_and_at_most_three_digits(ms: float | None, said: str) -> None:
    assert duration(ms) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (None, ""),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_950, "1.0 MB"),
        (3_400_000, "3.4 MB"),
        (10**16, "10000.0 TB"),
    ],
)
def test_a_size_is_in_powers_of_ten(count: int | None, said: str) -> None:
    assert size(count) == said


@given(st.text(st.characters()))
def test_nothing_that_steers_a_terminal_is_printable(text: str) -> None:
    shown = printable(text)
    assert not any(ord(char) < 0x20 and char not in "\n\t" for char in shown)
    assert not any(0x7F <= ord(char) < 0xA0 or 0x202A <= ord(char) <= 0x202E for char in shown)
    shown.encode()


def test_an_escape_sequence_is_seen_and_not_obeyed() -> None:
    assert printable("\x1b[31mred\r\nline\x9b1m") == "␛[31mred\nline<009B>1m"


@given(st.text(), st.integers(1, 20))
def test_what_is_clipped_says_so(text: str, width: int) -> None:
    shown = clipped(text, width)
    assert len(shown) <= width
    assert shown == text or shown.endswith("…")


def test_one_line_is_one_line() -> None:
    assert one_line("a\n\n b\tc\u2028d") == "a b c d"


def test_a_connection_that_broke_is_named_instead_of_its_status(exchange: Make) -> None:
    error = TransportError(kind=TransportErrorKind.CLIENT_GONE, message="gone")
    assert exchange_status(exchange(1, Call.RUN, state=State.FAILED, error=error)) == "client gone"
    assert exchange_status(exchange(1, Call.RUN, status=None)) == "open"
    assert exchange_status(exchange(1, Call.RUN, status=404)) == "404"


def test_a_call_is_named_by_what_it_asks_for_and_of_whom(exchange: Make) -> None:
    assert call_name(exchange(1, Call.VERIFY, server="weather")) == "verify → weather"
    assert call_name(exchange(1, Call.TOOL, server="weather")) == "tool /tool → weather"
    assert call_name(exchange(1, Call.OTHER, server="weather")) == "POST /other → weather"
    assert call_name(exchange(1, Call.PROVIDER)) == "provider"


def test_only_what_is_not_certain_is_doubted(attributed: Make) -> None:
    candidates = tuple(RowKey(task=task, rollout=0) for task in range(7))
    ambiguous = Attribution(confidence=Confidence.AMBIGUOUS, method=Method.CONTENT, candidates=candidates)
    assert doubt(attributed()) == ""
    assert doubt(attributed(confidence=Confidence.HIGH, method=Method.ROLLOUT_PATH)) == (
        "row found by rollout path, confidence high"
    )
    assert doubt(ambiguous) == "row is one of 0.0, 1.0, 2.0, 3.0, 4.0, …"
    assert doubt(Attribution()) == "row unknown"
