"""Live alarms, kept in the capture as findings: a retry storm and a dead upstream, seen while they go on.

It counts what ended badly in a row, per call and per server, and speaks at the threshold and then at each tenfold, so
that an endless storm does not fill the capture. That nothing happens at all makes no event: a wedge is seen by readers
of the capture (`gymtap inflight`, `gymtap run`), with the same functions.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.flow import Flow
from gymtap.proxy.core.in_flight import DEATH_SPAN_MS, MIN_DEATHS, MIN_TRIES, AlarmKind
from gymtap.schemas import ROWLESS_CALLS, Finding, Severity, TransportErrorKind

_WATCHED_MAX = 10_000
_UNANSWERED = frozenset(
    {TransportErrorKind.REFUSED, TransportErrorKind.UNREACHABLE, TransportErrorKind.RESET, TransportErrorKind.CLOSED}
)


@dataclass
class _Run:
    """Failures of one kind in a row: since when, how many, and at how many the next finding is due."""

    began_ns: int
    due: int
    count: int = 0


class InFlight(Addon):
    """Findings `flight.retry_storm` and `flight.dead_upstream`."""

    def __init__(
        self,
        setup: Setup,
        *,
        min_tries: int = MIN_TRIES,
        min_deaths: int = MIN_DEATHS,
        death_span_ms: float = DEATH_SPAN_MS,
    ) -> None:
        self._sink = setup.sink
        self._min_tries = min_tries
        self._min_deaths = min_deaths
        self._death_span_ns = int(death_span_ms * 1e6)
        self._tries: OrderedDict[Hashable, _Run] = OrderedDict()
        self._deaths: dict[str, _Run] = {}

    def ended(self, flow: Flow) -> None:
        """Count it."""
        if flow.call in ROWLESS_CALLS:
            return
        self._count_try(flow)
        self._count_death(flow)

    def _count_try(self, flow: Flow) -> None:
        if flow.error is None and flow.status is not None and flow.status < 400:
            if self._tries:
                self._tries.pop(_same_call(flow), None)
            return
        key = _same_call(flow)
        run = self._tries.setdefault(key, _Run(flow.started_ns, self._min_tries))
        self._tries.move_to_end(key)
        if len(self._tries) > _WATCHED_MAX:
            self._tries.popitem(last=False)
        run.count += 1
        if run.count >= run.due:
            run.due *= 10
            how = str(flow.error.kind) if flow.error else str(flow.status)
            self._say(
                AlarmKind.RETRY_STORM, flow, f"the same call failed {run.count} times in a row ({how})", run.began_ns
            )

    def _count_death(self, flow: Flow) -> None:
        name = flow.server.name
        if flow.status is not None:
            self._deaths.pop(name, None)
        elif flow.error is not None and flow.error.kind in _UNANSWERED:
            run = self._deaths.setdefault(name, _Run(flow.started_ns, self._min_deaths))
            run.count += 1
            if run.count >= run.due and flow.started_ns - run.began_ns >= self._death_span_ns:
                run.due = run.count * 10
                text = f"{name} gave no answer to {run.count} calls in a row ({flow.error.kind})"
                self._say(AlarmKind.DEAD_UPSTREAM, flow, text, run.began_ns)

    def _say(self, kind: AlarmKind, flow: Flow, text: str, began_ns: int) -> None:
        took_s = (flow.started_ns - began_ns) / 1e9
        fix = "`gymtap inflight` shows what waits on it; look at that server's process, address and log."
        self._sink.finding(
            Finding(
                rule=f"flight.{kind}",
                severity=Severity.ERROR,
                message=f"{text}, over {took_s:.0f} s",
                fix=fix,
                exchange=flow.id,
            )
        )


def _same_call(flow: Flow) -> Hashable:
    """As `same_call` of an exchange: what caused it, where it goes, and its very body."""
    row = flow.attribution.row
    caused = flow.parent or (row.label if row else None)
    return caused, flow.server.name, flow.call, flow.target, hash(flow.request_body)
