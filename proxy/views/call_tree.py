"""A row's exchanges as a tree: parent to child, children in order of time, retries of one call together.

Pure: exchanges in, nodes out. Attempts fold into one node only where the earlier ones caused nothing
themselves, so folding never hides a call.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gymtap.schemas import Call, Exchange


@dataclass
class Node:
    """One call: its attempts in order, the last one's exchange, and the calls that it caused."""

    attempts: list[Exchange]
    children: list["Node"] = field(default_factory=list)

    @property
    def exchange(self) -> Exchange:
        """The attempt that decided: the last."""
        return self.attempts[-1]

    @property
    def blamed(self) -> bool:
        """Whether it failed without a failed call beneath it: where to look."""
        return self.exchange.failed and not any(child.exchange.failed for child in self.children)

    def walk(self) -> Iterator["Node"]:
        """Itself and all beneath it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class CallTree:
    """`roots` begin the row; `orphans` belong to it, but what caused them was not seen."""

    roots: list[Node]
    orphans: list[Node]

    def walk(self) -> Iterator[Node]:
        """Every node, parents before children."""
        for root in (*self.roots, *self.orphans):
            yield from root.walk()


def call_tree(exchanges: Iterable[Exchange], root: str | None, *, fold: bool = True, rowless: bool = False) -> CallTree:
    """Build the tree. `root` is the row's first exchange where it is known; other calls of `/run` are roots too.

    `rowless`: the exchanges belong to no row, so that each without a parent is a root.
    """
    ordered = sorted(exchanges, key=lambda exchange: (exchange.started_ns, exchange.id))
    known = {exchange.id for exchange in ordered}
    callees: dict[str | None, list[Exchange]] = defaultdict(list)
    for exchange in ordered:
        parent = exchange.parent if exchange.parent in known and exchange.parent != exchange.id else None
        callees[parent].append(exchange)
    reached: set[str] = set()
    tops = [_grow(group, callees, fold, reached) for group in _groups(callees[None], callees, fold)]
    tops += _cycles(ordered, callees, fold, reached)
    roots = [node for node in tops if rowless or _begins(node.attempts[0], root)]
    return CallTree(roots, [node for node in tops if node not in roots])


def connected(exchange: Exchange, among: Iterable[Exchange]) -> list[Exchange]:
    """Of exchanges by start time, those whose tree this one is in: all beneath the outermost that leads to it."""
    known = {one.id: one for one in among}
    top, climbed = exchange, {exchange.id}
    while top.parent in known and top.parent not in climbed:
        top = known[top.parent]
        climbed.add(top.id)
    beneath = {top.id}
    for one in known.values():
        if one.parent in beneath:
            beneath.add(one.id)
    return [one for one in known.values() if one.id in beneath | climbed]


def _begins(exchange: Exchange, root: str | None) -> bool:
    return exchange.id == root or (exchange.call is Call.RUN and exchange.parent is None)


def _cycles(
    ordered: list[Exchange], callees: dict[str | None, list[Exchange]], fold: bool, reached: set[str]
) -> list[Node]:
    """Exchanges that are each other's parents are reachable from nowhere; nothing may be lost for that."""
    return [_grow([one], callees, fold, reached) for one in ordered if one.id not in reached]


def _grow(group: list[Exchange], callees: dict[str | None, list[Exchange]], fold: bool, reached: set[str]) -> Node:
    reached.update(exchange.id for exchange in group)
    mine = [callee for callee in callees.get(group[-1].id, ()) if callee.id not in reached]
    return Node(group, [_grow(each, callees, fold, reached) for each in _groups(mine, callees, fold)])


def _groups(siblings: list[Exchange], callees: dict[str | None, list[Exchange]], fold: bool) -> list[list[Exchange]]:
    """Siblings, with each retry behind what it retries. Only a call that caused nothing may have a successor."""
    groups: list[list[Exchange]] = []
    latest: dict[tuple[str, str, str, str], list[Exchange]] = {}
    for exchange in siblings:
        same = (exchange.server, exchange.call, exchange.request.method, exchange.request.target)
        group = latest.get(same)
        joins = fold and group is not None and _succeeds(exchange, group[-1]) and not callees.get(group[-1].id)
        if joins and group is not None:
            group.append(exchange)
        else:
            latest[same] = [exchange]
            groups.append(latest[same])
    return groups


def _succeeds(exchange: Exchange, before: Exchange) -> bool:
    return exchange.attempt == before.attempt + 1
