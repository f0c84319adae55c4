"""Which run of the collector a row belongs to: ordinals from 1 within one capture.

Gym's rows do not name their run. A run dispatches each row once, so a first attempt that comes again begins the next
run, for its agent. Other agents follow when they have nothing in flight: several collectors may share the servers, and
one that starts again must not split the others' runs.
"""

from collections import OrderedDict

from gymtap.proxy.core.attribution.rollout import Stated
from gymtap.proxy.core.attribution.sessions import digest

_PAGE = 4096
_MAX_NAMES = 100_000


class Seen:
    """The row keys that a run has dispatched: one bit for each pair of indices, so a million take 0.2 MB."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], int] = {}
        self._names: OrderedDict[bytes, None] = OrderedDict()

    def add(self, stated: Stated) -> bool:
        """Remember a key; True when it was there already."""
        if not stated.has_indices:
            return self._add_name(stated.rollout_id or "")
        assert stated.task is not None
        assert stated.rollout is not None
        page, bit = (stated.rollout, stated.task // _PAGE), 1 << (stated.task % _PAGE)
        bits = self._pages.get(page, 0)
        self._pages[page] = bits | bit
        return bool(bits & bit)

    def _add_name(self, name: str) -> bool:
        token = digest("rollout", name)
        if token in self._names:
            return True
        self._names[token] = None
        if len(self._names) > _MAX_NAMES:
            self._names.popitem(last=False)
        return False


class _Agent:
    """Where one agent's rows stand."""

    def __init__(self, run: int) -> None:
        self.run = run
        self.seen = Seen()
        self.in_flight = 0

    def enter(self, run: int) -> None:
        self.run = run
        self.seen = Seen()


class Runs:
    """Counts runs. Every `begin` is followed, once, by an `end` of the same agent."""

    def __init__(self) -> None:
        self._agents: dict[str | None, _Agent] = {}
        self._latest = 1

    def current(self, agent: str | None) -> int:
        """The run that a row of this agent would belong to, were it dispatched before."""
        known = self._agents.get(agent)
        return self._latest if known is None else known.run

    def begin(self, stated: Stated) -> int:
        """The run of a row that is dispatched now."""
        agent = self._agents.setdefault(stated.agent, _Agent(self._latest))
        if agent.run < self._latest and agent.in_flight == 0:
            agent.enter(self._latest)
        if not stated.attempt and agent.seen.add(stated):
            agent.enter(max(self._latest, agent.run + 1))
            self._latest = agent.run
            agent.seen.add(stated)
        agent.in_flight += 1
        return agent.run

    def resume(self, agent: str | None) -> None:
        """A row of this agent, begun and ended before, is in flight again."""
        self._agents[agent].in_flight += 1

    def end(self, agent: str | None) -> None:
        """A row of this agent is no longer in flight."""
        self._agents[agent].in_flight -= 1
