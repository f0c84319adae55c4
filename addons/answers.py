"""The 200→500 detector: what a provider or a model server answered against what Gym can parse.

A provider's answer is judged twice over: by itself, and by what became of it. The finding waits for the model server
that asked, since what only some versions of Gym choke on is an error once a 500 followed.
"""

from collections import OrderedDict

from gymtap.proxy.check.provider_answers import check_answer
from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.calls import route
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Call, Finding

_ASKED = frozenset({Call.MODEL, Call.PROVIDER, Call.JUDGE})
_DIALECTS = ("/chat/completions", "/responses")
"""Completions and Messages have other shapes, and Gym's model servers call neither."""

_WAITING_MAX = 10_000


class Answers(Addon):
    """Findings about 2xx answers to calls for a generation."""

    def __init__(self, setup: Setup) -> None:
        self._sink = setup.sink
        self._open: set[str] = set()  # model servers' exchanges under way
        self._waiting: OrderedDict[str, list[tuple[str, bytes]]] = OrderedDict()  # answers, by who asked

    def requested(self, flow: Flow) -> None:
        """Remember which model server's exchange is under way."""
        if flow.call is Call.MODEL:
            self._open.add(flow.id)

    def ended(self, flow: Flow) -> None:
        """Judge the answer, and what waited for this exchange's end."""
        self._open.discard(flow.id)
        for exchange, body in self._waiting.pop(flow.id, ()):
            self._say(exchange, check_answer(body, became=flow.status))
        if flow.call not in _ASKED or flow.method != "POST" or not route(flow.target).path.endswith(_DIALECTS):
            return
        if flow.status is None or not 200 <= flow.status < 300 or flow.error is not None or flow.response_body is None:
            return
        if flow.call is Call.PROVIDER and flow.parent in self._open:
            self._wait(flow.parent, flow.id, flow.response_body)
        else:
            self._say(flow.id, check_answer(flow.response_body, parsed=flow.response_json))

    def stopped(self) -> None:
        """Nothing became of what still waits."""
        for waiting in self._waiting.values():
            for exchange, body in waiting:
                self._say(exchange, check_answer(body))
        self._waiting.clear()

    def _wait(self, parent: str, exchange: str, body: bytes) -> None:
        self._waiting.setdefault(parent, []).append((exchange, body))
        if len(self._waiting) > _WAITING_MAX:
            for old, content in self._waiting.popitem(last=False)[1]:
                self._say(old, check_answer(content))

    def _say(self, exchange: str, found: list[Finding]) -> None:
        for one in found:
            self._sink.finding(one.model_copy(update={"exchange": exchange}))
