"""Timing, the weakest method: what was in flight when a request came may have caused it.

It knows nothing of what the request is about, so even a single candidate is no more than a hint.
"""

from gymtap.proxy.core.attribution.flight import InFlight
from gymtap.proxy.core.attribution.state import Link, Node
from gymtap.schemas import Call, Confidence, Method, ServerKind

LINK = Link(Method.TIMING, Confidence.LOW, "nothing else was in flight that may have caused it")

_CAUSES = {
    Call.PROVIDER: (Call.MODEL, Call.JUDGE),
    Call.MODEL: (Call.RESPONSES, Call.RUN, Call.VERIFY),
    Call.JUDGE: (Call.VERIFY,),
    Call.TOOL: (Call.RESPONSES, Call.RUN),
}


def suspects(call: Call, kind: ServerKind, flight: InFlight) -> list[Node]:
    """The exchanges in flight that may cause such a call."""
    causes = _CAUSES.get(call, (Call.RUN,))
    found = list(flight.of(*causes))
    if not found and kind is ServerKind.PROVIDER:
        return list(flight.of(*_CAUSES[Call.MODEL]))
    return found
