"""What waits, and when it is an alarm: transcripts of exchanges, with the time given."""

from collections.abc import Callable
from typing import Any

import pytest

from gymtap.proxy.core.in_flight import AlarmKind, alarms, dead_upstreams, retry_storms, waits
from gymtap.schemas import Call, State, TransportError, TransportErrorKind

type Make = Callable[..., Any]
RESET = TransportError(kind=TransportErrorKind.RESET, message="Connection reset by peer")
SECOND_NS = 1_000_000_000


def failed(exchange: Make, number: int, parent: int, at_ms: float, error: TransportError = RESET) -> Any:
    """A provider call that ended without an answer."""
    return exchange(number, Call.PROVIDER, parent, None, at_ms, state=State.FAILED, error=error, duration_ms=1.0)


@pytest.fixture
def hanging(exchange: Make) -> list[Any]:
    """Row 5.0 is open down to the model server."""
    return [exchange(1, Call.RUN, status=None), exchange(2, Call.RESPONSES, 1, None), exchange(3, Call.MODEL, 2, None)]


def test_a_row_waits_on_its_innermost_open_exchange(hanging: list[Any], start_ns: int) -> None:
    """/run and the agent's own call are open because the model's is."""
    (wait,) = waits(hanging, [], start_ns + 10 * SECOND_NS)
    assert (wait.exchange.id, wait.row, wait.tries) == ("a3", "5.0", 0)
    assert wait.age_ms == pytest.approx(9_997.0)


def test_between_two_tries_the_call_that_retries_is_what_waits(
    exchange: Make, hanging: list[Any], start_ns: int
) -> None:
    """Nothing is open at the provider for half a second, but the tries that failed are told."""
    tries = [failed(exchange, 10 + number, 3, 500.0 * number) for number in range(4)]
    (wait,) = waits(hanging, tries, start_ns + 3 * SECOND_NS)
    assert (wait.exchange.id, wait.tries, wait.last_error) == ("a3", 4, "reset")


def test_health_calls_wait_for_no_row(exchange: Make, start_ns: int) -> None:
    assert waits([exchange(1, Call.HEALTH, status=None)], [], start_ns) == []


def test_endless_reconnects_are_a_storm_at_the_threshold_and_not_before(exchange: Make) -> None:
    """Gym tries a dropped connection again every half second, for ever."""
    tries = [failed(exchange, 10 + number, 3, 500.0 * number) for number in range(10)]
    assert retry_storms(tries[:9]) == []
    (storm,) = retry_storms(tries)
    assert (storm.kind, storm.count, storm.exchange, storm.rows) == (AlarmKind.RETRY_STORM, 10, "a19", ("5.0",))
    assert "10 times in 4 s" in storm.message
    assert "reset" in storm.message


def test_three_tries_each_of_many_calls_are_no_storm(exchange: Make) -> None:
    """What Gym does with a 500 under load: each call gives up by itself."""
    tries = [exchange(100 + number, Call.PROVIDER, number // 3, 500) for number in range(60)]
    assert retry_storms(tries) == []


def test_a_call_that_got_through_ends_its_storm(exchange: Make) -> None:
    tries = [failed(exchange, 10 + number, 3, 500.0 * number) for number in range(12)]
    assert retry_storms([*tries, exchange(40, Call.PROVIDER, 3, 200, 7_000.0)]) == []


def test_an_upstream_is_dead_after_many_drops_over_some_time(exchange: Make) -> None:
    """A restart drops many connections at once, which is no death; and any answer is life."""
    at_once = [failed(exchange, 10 + number, number, 1.0 * number) for number in range(20)]
    assert dead_upstreams(at_once) == []
    over_time = [failed(exchange, 10 + number, number, 400.0 * number) for number in range(8)]
    (dead,) = dead_upstreams(over_time)
    assert (dead.kind, dead.server, dead.count) == (AlarmKind.DEAD_UPSTREAM, "provider", 8)
    assert dead_upstreams([*over_time, exchange(40, Call.PROVIDER, 3, 500, 5_000.0)]) == []


def test_a_caller_that_went_away_says_nothing_of_the_upstream(exchange: Make) -> None:
    gone = TransportError(kind=TransportErrorKind.CLIENT_GONE, message="client closed")
    assert dead_upstreams([failed(exchange, 10 + n, n, 400.0 * n, gone) for n in range(20)]) == []


@pytest.mark.parametrize(("after_s", "wedged"), [(59, False), (61, True)])
def test_a_wedge_is_when_nothing_is_answered_while_something_is_open(
    hanging: list[Any], start_ns: int, after_s: int, wedged: bool
) -> None:
    found = alarms(hanging, hanging, start_ns + after_s * SECOND_NS)
    assert [alarm.kind for alarm in found] == ([AlarmKind.WEDGE] if wedged else [])


def test_slow_rows_beside_ones_that_end_are_no_wedge(exchange: Make, hanging: list[Any], start_ns: int) -> None:
    """An answer at second 100, however long ago it was asked for."""
    slow = exchange(9, Call.PROVIDER, 8, 200, 5.0, duration_ms=100_000.0)
    health = exchange(30, Call.HEALTH, None, 200, 299_000.0)
    at_120, at_300 = (start_ns + seconds * SECOND_NS for seconds in (120, 300))
    assert alarms(hanging, [*hanging, slow], at_120) == []
    (wedge,) = alarms(hanging, [*hanging, slow, health], at_300)
    assert (wedge.kind, wedge.count, wedge.rows) == (AlarmKind.WEDGE, 1, ("5.0",))
    assert "200 s" in wedge.message


def test_an_alarm_is_a_finding_about_its_exchange(exchange: Make) -> None:
    tries = [failed(exchange, 10 + number, 3, 500.0 * number) for number in range(10)]
    finding = retry_storms(tries)[0].finding()
    assert (finding.rule, finding.exchange) == ("flight.retry_storm", "a19")
    assert finding.fix
