"""The waterfall as a list that one walks through."""

import time

from rich.text import Text

from gymtap.proxy.store.notes import NO_NOTE, Notes
from gymtap.proxy.tui.lines import Lines
from gymtap.proxy.tui.waterfall import Branch, Span, branch_line, branches, span
from gymtap.proxy.views.call_tree import CallTree
from gymtap.schemas import Exchange


class Waterfall(Lines):
    """The calls of one row. `root_cause` is the exchange at fault, once it is known; `notes` are shown at them."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # textual's own name
        super().__init__(id=id)
        self._branches: list[Branch] = []
        self._span = Span(0, 1.0)
        self._exchanges: list[Exchange] = []
        self.root_cause: str | None = None
        self.notes: Notes | None = None

    def put(self, tree: CallTree, exchanges: list[Exchange]) -> None:
        """Other calls; the cursor stays on its exchange."""
        on = self.exchange
        self._branches, self._exchanges = branches(tree), exchanges
        self._span = span(exchanges, time.time_ns())
        self.reload()
        if on is not None:
            self.go_to(on.id)

    def count(self) -> int:
        """How many lines."""
        return len(self._branches)

    def selectable(self, index: int) -> bool:
        """Calls are, a heading is not."""
        return super().selectable(index) and self._branches[index].node is not None

    def line(self, index: int, width: int) -> Text:
        """One call."""
        branch = self._branches[index]
        note = NO_NOTE
        if self.notes is not None and branch.node is not None:
            note = self.notes.of_exchange(branch.node.exchange.id)
        return branch_line(branch, self._span, width, time.time_ns(), self.root_cause, note=note)

    @property
    def exchange(self) -> Exchange | None:
        """The exchange that the cursor is on: the last attempt."""
        node = self._branches[self.cursor].node if self.cursor < len(self._branches) else None
        return None if node is None else node.exchange

    def go_to(self, exchange: str) -> bool:
        """Put the cursor on that exchange; False when it is not here."""
        for index, branch in enumerate(self._branches):
            if branch.node is not None and any(one.id == exchange for one in branch.node.attempts):
                self.cursor = index
                return True
        return False

    def next_failed(self, by: int) -> bool:
        """To the next call that failed, beginning anew at the end; False when there is none."""
        count = len(self._branches)
        for step in range(1, count + 1):
            node = self._branches[(self.cursor + by * step) % count].node
            if node is not None and node.exchange.failed:
                self.cursor = (self.cursor + by * step) % count
                return True
        return False
