"""What is in flight, by what it talks about.

Bodies are read only when a request without better clues asks for its origin: under the causality header none ever does.
An exchange that its client gave up is kept for a while, because the server behind it may go on working.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from gymtap.proxy.core.attribution import content
from gymtap.proxy.core.attribution.sessions import Token
from gymtap.proxy.core.attribution.state import Node, asks_model_server
from gymtap.schemas import Call

ABANDONED_FOR = 1024
"""Exchanges that may follow before one that its client gave up is no candidate any more."""

ORIGINS = frozenset({Call.RUN, Call.RESPONSES})


class Shelf:
    """Nodes in flight by the digest of their conversation; `blind` are those that have none that could be read."""

    def __init__(self) -> None:
        self._unread: dict[Node, None] = {}
        self._read: dict[Token, dict[Node, None]] = {}
        self.blind: dict[Node, None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to find here."""
        return not self._unread and not self._read

    def add(self, node: Node) -> None:
        """Put a node here; its body is read when somebody asks."""
        self._unread[node] = None

    def remove(self, node: Node) -> None:
        """Take a node out, if it is here."""
        self._unread.pop(node, None)
        self.blind.pop(node, None)
        if node.conversation is not None:
            nodes = self._read.get(node.conversation, {})
            nodes.pop(node, None)
            if not nodes:
                self._read.pop(node.conversation, None)

    def find(self, digests: Iterable[Token]) -> list[Node]:
        """The nodes whose whole conversation has one of these digests."""
        self._read_all()
        return [node for token in digests for node in self._read.get(token, ())]

    def _read_all(self) -> None:
        for node in self._unread:
            digests = content.prefixes(_conversation(node))
            node.conversation = digests[-1] if digests else None
            shelf = self.blind if node.conversation is None else self._read.setdefault(node.conversation, {})
            shelf[node] = None
        self._unread.clear()


class InFlight:
    """All that is open and may cause something."""

    def __init__(self) -> None:
        self.origins = Shelf()
        self.models = Shelf()
        self.abandoned: dict[Node, None] = {}
        self._open: dict[Call, dict[Node, None]] = {}

    def add(self, node: Node) -> None:
        """A request is whole, and its answer is not."""
        self._drop_abandoned(node.order - ABANDONED_FOR)
        self._open.setdefault(node.call, {})[node] = None
        if node.call in ORIGINS:
            self.origins.add(node)
        elif asks_model_server(node):
            self.models.add(node)

    def has_origins(self, call: Call) -> bool:
        """Whether there is anything with whose conversation such a call's may begin."""
        return not self.origins.is_empty or (call is Call.PROVIDER and not self.models.is_empty)

    def end(self, node: Node, abandoned: bool) -> None:
        """It is over; `abandoned` when only its client is known to have gone."""
        for nodes in self._open.values():
            nodes.pop(node, None)
        if not abandoned:
            self._drop(node)
            return
        self.origins.find(())
        self.models.find(())
        self.abandoned[node] = None

    def of(self, *calls: Call) -> Iterator[Node]:
        """The open exchanges that ask for one of these, oldest first within a call."""
        return (node for call in calls for node in self._open.get(call, ()))

    def _drop_abandoned(self, before: int) -> None:
        while self.abandoned and (oldest := next(iter(self.abandoned))).order < before:
            self._drop(oldest)

    def _drop(self, node: Node) -> None:
        self.abandoned.pop(node, None)
        self.origins.remove(node)
        self.models.remove(node)


def _conversation(node: Node) -> Any:
    body = node.flow.request_json if node.flow is not None else None
    if node.call is Call.RUN and isinstance(body, dict):
        return body.get("responses_create_params")
    return body
