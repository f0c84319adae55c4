"""The call tree, where no header tells it: which exchange of a row caused another, and what may cause anything.

Gym's shapes decide: /run calls seed, self-call and verify; the self-call calls models and tools; a model server calls
its provider. Where two may be meant, no parent is named.
"""

from gymtap.proxy.core.attribution.state import KnownRow, Node, asks_model_server, row_of
from gymtap.schemas import Call, ServerKind

GENERATIONS = frozenset({Call.MODEL, Call.JUDGE, Call.PROVIDER})
"""Calls to a model, wherever it is."""


def parent_of(node: Node, row: KnownRow) -> Node | None:
    """The exchange of its row that caused this one, where only one can be meant."""
    if node.call is Call.RUN:
        return None
    suspects = [suspect for suspect in node.suspects if row_of(suspect) is row and suspect.order < node.order]
    if node.call is Call.PROVIDER and any(asks_model_server(suspect) for suspect in node.suspects):
        return suspects[0] if len(suspects) == 1 else None
    if node.call not in GENERATIONS and node.call is not Call.TOOL:
        return row.innermost(Call.RUN) if node.fresh else None
    turns = [suspect for suspect in suspects if suspect.call is Call.RESPONSES]
    if len(turns) == 1:
        return turns[0]
    if node.fresh:
        return _turn_in_flight(node, row)
    return max(suspects, key=lambda run: run.order, default=None) if not turns and not node.crowd else None


def _turn_in_flight(node: Node, row: KnownRow) -> Node | None:
    """Tools and models are called by the self-call; without one by a verify, as a judge, or by the agent's /run."""
    if row.innermost(Call.RESPONSES) is not None:
        return row.only(Call.RESPONSES)
    if node.call is not Call.TOOL and (verify := row.only(Call.VERIFY)) is not None:
        return verify
    return row.innermost(Call.RUN)


def is_turn_of(member: Node, turn: Node) -> bool:
    """Whether a model call that a self-call's answer brings back was made by that self-call."""
    return member.parent is None and asks_model_server(member) and member.order > turn.order and turn in member.suspects


def innermost(origins: list[Node]) -> list[Node]:
    """Of each row the self-calls, or without any the last /run: what encloses them is no cause of its own."""
    turns = {row_of(origin) for origin in origins if origin.call is Call.RESPONSES}
    last = {row_of(origin) or origin: origin for origin in origins if origin.call is Call.RUN}
    return [origin for origin in origins if origin.call is Call.RESPONSES or _is_last(origin, last, turns)]


def _is_last(run: Node, last: dict[KnownRow | Node, Node], turns: set[KnownRow | None]) -> bool:
    row = row_of(run)
    return row is None or (row not in turns and last[row] is run)


def hides_conversation(origin: Node) -> bool:
    """Whether an origin without readable conversation may hide the one sought: not when its self-call shows it."""
    row = row_of(origin)
    turn = row.innermost(Call.RESPONSES) if row is not None and origin.call is Call.RUN else None
    return turn is None or turn.conversation is None


def awaits_agent(run: Node) -> bool:
    """Whether a /run is a row's outermost, and no other server's /run was called for it yet."""
    row = row_of(run)
    is_root = row is not None and row.root is run and row.innermost(Call.RUN) is run
    return is_root and run.kind is not ServerKind.AGENT
