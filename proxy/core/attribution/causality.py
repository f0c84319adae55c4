"""The causality header, the strongest method: the tap itself numbered the request from which this one came."""

from gymtap.proxy.core.attribution.state import Link, Node
from gymtap.schemas import ROWLESS_CALLS, Confidence, Method

REPLAY_PREFIX = "replay-"
"""How a replay marks what it sends through a tap, in the header: as if a parent of this name had caused it."""


def replay_of(parent_id: str, parent: Node | None) -> str | None:
    """The mark of the replay to which what this parent causes belongs; None in a run."""
    if parent is not None:
        return parent.replay
    return parent_id if parent_id.startswith(REPLAY_PREFIX) else None


def link(parent: Node) -> Link:
    """Why an exchange is of its parent's row."""
    return Link(Method.CAUSALITY, Confidence.CERTAIN, f"sent while {parent.id} ({parent.call}) was being answered")


def passes_row(parent: Node) -> bool:
    """Whether a parent's row is its children's: health, head and aggregate calls are of no row."""
    return parent.call not in ROWLESS_CALLS
