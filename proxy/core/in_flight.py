"""What is open now, what waits on it, and when to raise an alarm: a wedge, a retry storm, a dead upstream.

Pure functions over exchanges: no clock, no store; every threshold is a parameter. A row waits on its innermost open
exchange, and between two tries of an endless retry that is the call that retries: its failed tries are counted with it.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gymtap.schemas import ROWLESS_CALLS, Exchange, Finding, Severity, State, TransportErrorKind

QUIET_MS = 60_000.0
"""How long nothing may be answered, while something is open, before it is a wedge."""
MIN_TRIES = 10
"""So many failed tries of one call in a row are a storm. Gym itself gives up an HTTP error after 3 (0.7.0)."""
MIN_DEATHS = 8
"""So many connections in a row without any answer are a dead upstream."""
DEATH_SPAN_MS = 2_000.0
"""And so long they must have gone on: a restart drops many connections at once, and that passes."""
_DEAD = frozenset(
    {TransportErrorKind.REFUSED, TransportErrorKind.UNREACHABLE, TransportErrorKind.RESET, TransportErrorKind.CLOSED}
)


class AlarmKind(StrEnum):
    """`wedge`: nothing is answered. `retry_storm`: one call is tried on and on. `dead_upstream`: nobody is there."""

    WEDGE = "wedge"
    RETRY_STORM = "retry_storm"
    DEAD_UPSTREAM = "dead_upstream"


@dataclass(frozen=True)
class Wait:
    """One thing that is waited for: an innermost open exchange, with its age, the row, and its failed tries so far."""

    exchange: Exchange
    age_ms: float
    row: str | None
    tries: int = 0
    last_error: str = ""


@dataclass(frozen=True)
class Alarm:
    """`server` and `boundary` say where; `count` is tries or open exchanges; `exchange` is the latest one of it."""

    kind: AlarmKind
    server: str
    boundary: str
    message: str
    count: int
    exchange: str
    rows: tuple[str, ...] = ()

    def finding(self) -> Finding:
        """The alarm as a finding about its exchange."""
        return Finding(
            rule=f"flight.{self.kind}",
            severity=Severity.ERROR,
            message=self.message,
            fix=_FIXES[self.kind],
            exchange=self.exchange,
        )


_FIXES = {
    AlarmKind.WEDGE: "See what is open with `gymtap inflight`, and look at that server's process and log.",
    AlarmKind.RETRY_STORM: "See how a try ended (`gymtap show`); Gym tries again for ever where a connection drops.",
    AlarmKind.DEAD_UPSTREAM: "See whether the server runs at that address, and whether this machine reaches it.",
}


def row_of(exchange: Exchange) -> str | None:
    """The label of its row; None where that is not known."""
    return exchange.attribution.row.label if exchange.attribution.row else None


def waits(opened: Iterable[Exchange], recent: Iterable[Exchange], now_ns: int) -> list[Wait]:
    """What is waited for, the longest first: open exchanges with nothing open below them, and no rowless call."""
    open_now = [exchange for exchange in opened if exchange.call not in ROWLESS_CALLS]
    parents = {exchange.parent for exchange in open_now}
    tries: dict[str, list[Exchange]] = {}
    for exchange in recent:
        if exchange.parent is not None and exchange.failed:
            tries.setdefault(exchange.parent, []).append(exchange)
    found = [_wait(exchange, tries.get(exchange.id, []), now_ns) for exchange in open_now if exchange.id not in parents]
    return sorted(found, key=lambda wait: -wait.age_ms)


def _wait(exchange: Exchange, tries: Sequence[Exchange], now_ns: int) -> Wait:
    last = max(tries, key=lambda one: one.started_ns, default=None)
    age_ms = max(0.0, (now_ns - exchange.started_ns) / 1e6)
    return Wait(exchange, age_ms, row_of(exchange), len(tries), _ending(last) if last is not None else "")


def _ending(exchange: Exchange) -> str:
    if exchange.error is not None:
        return str(exchange.error.kind)
    return str(exchange.response.status) if exchange.response is not None else "open"


def ended_ns(exchange: Exchange) -> int | None:
    """When it ended, UTC; None while it is open."""
    if exchange.state is State.OPEN or exchange.duration_ms is None:
        return None
    return exchange.started_ns + int(exchange.duration_ms * 1e6)


def alarms(
    opened: Sequence[Exchange],
    recent: Sequence[Exchange],
    now_ns: int,
    *,
    quiet_ms: float = QUIET_MS,
    min_tries: int = MIN_TRIES,
    min_deaths: int = MIN_DEATHS,
    death_span_ms: float = DEATH_SPAN_MS,
) -> list[Alarm]:
    """What is wrong right now. `recent` are the exchanges that began or ended last, in any order."""
    ordered = sorted(recent, key=lambda exchange: exchange.started_ns)
    waiting = waits(opened, ordered, now_ns)
    found = [*dead_upstreams(ordered, min_deaths=min_deaths, span_ms=death_span_ms)]
    found += retry_storms(ordered, min_tries=min_tries)
    wedged = wedge(waiting, ordered, now_ns, quiet_ms=quiet_ms)
    return [*found, wedged] if wedged is not None else found


def wedge(
    waiting: Sequence[Wait], recent: Iterable[Exchange], now_ns: int, *, quiet_ms: float = QUIET_MS
) -> Alarm | None:
    """Something is open for `quiet_ms`, and nothing was answered in all that time; rowless calls do not count."""
    if not waiting or waiting[0].age_ms < quiet_ms:
        return None
    answered = (
        ended_ns(exchange) or 0
        for exchange in recent
        if exchange.call not in ROWLESS_CALLS and exchange.response is not None
    )
    last_ns = max(answered, default=0)
    if last_ns > now_ns - quiet_ms * 1e6:
        return None
    oldest = waiting[0].exchange
    rows = tuple(dict.fromkeys(wait.row for wait in waiting if wait.row is not None))
    message = (
        f"nothing was answered for {_seconds(min(waiting[0].age_ms, (now_ns - last_ns) / 1e6))}: {len(waiting)} open, "
        f"the oldest is {oldest.call} {oldest.boundary} ({oldest.server})"
    )
    return Alarm(AlarmKind.WEDGE, oldest.server, oldest.boundary, message, len(waiting), oldest.id, rows)


def retry_storms(recent: Iterable[Exchange], *, min_tries: int = MIN_TRIES) -> list[Alarm]:
    """Calls that failed `min_tries` times in a row with nothing good since, in the order in which they began."""
    failing: dict[Hashable, list[Exchange]] = {}
    for exchange in recent:
        if exchange.call in ROWLESS_CALLS or exchange.state is State.OPEN:
            continue
        key = same_call(exchange)
        if exchange.failed:
            failing.setdefault(key, []).append(exchange)
        else:
            failing.pop(key, None)
    return [_storm(tries) for tries in failing.values() if len(tries) >= min_tries]


def same_call(exchange: Exchange) -> Hashable:
    """What two tries of one call share: what caused them, where they go, and their very body."""
    body = exchange.request.body
    digest = body.digest if body else None
    return exchange.parent or row_of(exchange), exchange.server, exchange.call, exchange.request.target, digest


def _storm(tries: Sequence[Exchange]) -> Alarm:
    first, last = tries[0], tries[-1]
    took = _seconds((last.started_ns - first.started_ns) / 1e6)
    endings = ", ".join(dict.fromkeys(_ending(one) for one in tries[-3:]))
    message = (
        f"{last.call} {last.boundary} ({last.server}) was tried {len(tries)} times in {took}, and failed: {endings}"
    )
    rows = tuple(dict.fromkeys(row for row in map(row_of, tries) if row is not None))
    return Alarm(AlarmKind.RETRY_STORM, last.server, last.boundary, message, len(tries), last.id, rows)


def dead_upstreams(
    recent: Iterable[Exchange], *, min_deaths: int = MIN_DEATHS, span_ms: float = DEATH_SPAN_MS
) -> list[Alarm]:
    """Servers of which the last `min_deaths` connections got no answer at all, over at least `span_ms`."""
    dead: dict[str, list[Exchange]] = {}
    for exchange in recent:
        if exchange.state is State.OPEN:
            continue
        if exchange.response is None and exchange.error is not None and exchange.error.kind in _DEAD:
            dead.setdefault(exchange.server, []).append(exchange)
        elif exchange.response is not None:
            dead.pop(exchange.server, None)
    return [
        _death(lost)
        for lost in dead.values()
        if len(lost) >= min_deaths and lost[-1].started_ns - lost[0].started_ns >= span_ms * 1e6
    ]


def _death(lost: Sequence[Exchange]) -> Alarm:
    last = lost[-1]
    took = _seconds((last.started_ns - lost[0].started_ns) / 1e6)
    message = f"{last.server} gave no answer to {len(lost)} calls in {took}: {_ending(last)}"
    rows = tuple(dict.fromkeys(row for row in map(row_of, lost) if row is not None))
    return Alarm(AlarmKind.DEAD_UPSTREAM, last.server, last.boundary, message, len(lost), last.id, rows)


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1_000:.0f} s" if milliseconds >= 1_000 else f"{milliseconds:.0f} ms"
