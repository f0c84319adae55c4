"""What the resolver remembers: nodes (exchanges), threads (exchanges of one row, known or not yet), and rows.

Threads are joined as evidence ties them together, as in a disjoint-set forest, so one late clue attributes all that was
tied to it before. Two threads of different rows are never joined: whatever claimed so is distrusted from then on.
"""

import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from gymtap.proxy.core.attribution.sessions import Token
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Attribution, Call, Confidence, Method, RowKey, ServerKind

MAX_CANDIDATES = 20
"""As many as an attribution names."""

MAX_TURNS = 8
"""Turns of one conversation that are compared to narrow its candidates."""

_STRENGTH = (Confidence.NONE, Confidence.AMBIGUOUS, Confidence.LOW, Confidence.HIGH, Confidence.CERTAIN)


class Link(NamedTuple):
    """Why an exchange is in its thread, or is thought to be."""

    method: Method
    confidence: Confidence
    evidence: str

    @property
    def is_sure(self) -> bool:
        """Whether it may be acted on."""
        return self.confidence in {Confidence.HIGH, Confidence.CERTAIN}

    def capped(self, limit: Confidence) -> "Link":
        """The same, no surer than `limit`."""
        return self if _STRENGTH.index(self.confidence) <= _STRENGTH.index(limit) else self._replace(confidence=limit)


@dataclass(eq=False, slots=True)
class KnownRow:
    """A row. `open` are its exchanges in flight, oldest first; `root` is its /run, None if that was not seen."""

    key: RowKey
    root: "Node | None" = None
    open: "dict[Node, None]" = field(default_factory=dict)
    thread: "Thread" = field(init=False)
    retryable: bool = False  # its root was ended by the upstream's transport, so its client will try again
    counted: bool = False  # it is in flight in the count of runs

    def __post_init__(self) -> None:
        self.thread = Thread(self)

    def innermost(self, *calls: Call) -> "Node | None":
        """The latest of its exchanges in flight that ask for one of `calls`; None without one."""
        return next((node for node in reversed(self.open) if node.call in calls), None)

    def only(self, call: Call) -> "Node | None":
        """Its exchange in flight that asks for `call`; None when there is none, or more than one."""
        found = [node for node in self.open if node.call is call]
        return found[0] if len(found) == 1 else None


@dataclass(eq=False, slots=True)
class Thread:
    """Exchanges of one row. `members` is kept only while the row is unknown: then they wait to be told."""

    row: KnownRow | None = None
    members: "list[Node]" = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    joined: "Thread | None" = None


@dataclass(eq=False, slots=True, weakref_slot=True)
class Node:
    """An exchange.

    `suspects` are those that may have caused it, `crowd` how many more there are; `guess` is why, and how surely if
    only one row is left. `waiting` are the calls that suspect this one.
    """

    id: str
    server: str
    kind: ServerKind
    call: Call
    flow: Flow | None
    thread: Thread
    order: int  # of its request, among all
    link: Link | None = None
    parent: str | None = None
    caused: bool = False  # the causality header named its parent
    replay: str | None = None  # the mark of the replay that it is part of: then it is of no row
    fresh: bool = True  # what is in flight now was in flight when it was sent
    open: bool = True
    failed: bool = False
    attempt: int = 0
    body: int | None = None  # stands for the request's bytes; None until they are whole, or when they are not kept
    suspects: "tuple[Node, ...]" = ()
    crowd: int = 0
    guess: Link | None = None
    waiting: "list[weakref.ref[Node]]" = field(default_factory=list)
    conversation: Token | None = None
    answer: str | None = None
    ways: "dict[tuple[str, str, str, int], Node] | None" = None
    basis: "tuple[KnownRow, Link | None] | None" = None
    said: "tuple[Attribution, str | None, int, Call] | None" = None


def asks_model_server(node: Node) -> bool:
    """Whether it is a call to one of Gym's model servers, a judge's or not: such calls cause a provider's."""
    return node.call in {Call.MODEL, Call.JUDGE} and node.kind is not ServerKind.PROVIDER


def find(thread: Thread) -> Thread:
    """The thread that it is part of by now."""
    while thread.joined is not None:
        if thread.joined.joined is not None:
            thread.joined = thread.joined.joined
        thread = thread.joined
    return thread


def row_of(node: Node) -> KnownRow | None:
    """Its row, when it is known."""
    return find(node.thread).row


def join(one: Thread, other: Thread, link: Link) -> "list[Node] | None":
    """Make two threads one; the members that learned their row thereby, or None when they are of different rows."""
    one, other = find(one), find(other)
    if one is other:
        return []
    if one.row is not None and other.row is not None and one.row is not other.row:
        return None
    larger = one if len(one.members) >= len(other.members) else other
    known = one if one.row is not None else other if other.row is not None else larger
    unknown = other if known is one else one
    learned = unknown.members
    for node in learned:
        node.link = link if node.link is None else node.link.capped(link.confidence)
    _absorb(known, unknown)
    return learned if known.row is not None else []


def _absorb(known: Thread, unknown: Thread) -> None:
    unknown.joined = known
    known.tokens.extend(unknown.tokens)
    if known.row is None:
        known.members.extend(unknown.members)
    unknown.members, unknown.tokens = [], []


def possible(node: Node, depth: int = 2) -> "tuple[dict[KnownRow, None], bool]":
    """The rows that an exchange may belong to, and whether these are surely all, as far as its clues tell.

    Each turn of a conversation narrows them; `depth` bounds the way from a provider's call over a model's to a row.
    """
    thread = find(node.thread)
    if thread.row is not None:
        return {thread.row: None}, True
    rows: dict[KnownRow, None] | None = None
    for member in _best_informed(thread) if depth else []:
        found, complete = _of_suspects(member, depth - 1)
        if not complete:
            return found, False
        rows = found if rows is None else {row: None for row in rows if row in found}
    return rows or {}, bool(rows)


def _best_informed(thread: Thread) -> list[Node]:
    """A few members with suspects: those with complete and strong ones, or else the first with any.

    A member that suspects another member tells nothing of the thread's row that the other does not tell better.
    """
    informed = [member for member in thread.members if member.suspects and not _suspects_within(member, thread)]
    sure = [member for member in informed if not member.crowd and member.guess is not None and member.guess.is_sure]
    return sure[:MAX_TURNS] or informed[:1]


def _suspects_within(member: Node, thread: Thread) -> bool:
    return len(thread.members) > 1 and any(find(suspect.thread) is thread for suspect in member.suspects)


def _of_suspects(node: Node, depth: int) -> "tuple[dict[KnownRow, None], bool]":
    """The rows of all suspects, or no more than can be named where they are known not to be all."""
    rows: dict[KnownRow, None] = {}
    complete = not node.crowd
    for suspect in node.suspects:
        row = row_of(suspect)
        if len(rows) > MAX_CANDIDATES and (row is None or node.crowd):
            return rows, False
        if row is not None:
            rows[row] = None
            continue
        found, whole = possible(suspect, depth)
        rows.update(found)
        complete = complete and whole
    return rows, complete


_NO_ROW = Attribution(evidence="nothing in flight that is of a known row may have caused it")


def describe(node: Node) -> Attribution:
    """Say what is known of an exchange's row by now."""
    row = row_of(node)
    if row is not None:
        link = node.link or Link(Method.NONE, Confidence.NONE, "")
        return Attribution(row=row.key, method=link.method, confidence=link.confidence, evidence=link.evidence)
    guess = node.guess or _thread_guess(node)
    rows, complete = possible(node) if guess is not None else ({}, True)
    if not rows or guess is None:
        return _NO_ROW
    if len(rows) == 1:
        sure = guess if complete else guess.capped(Confidence.LOW)
        return Attribution(
            row=next(iter(rows)).key, method=sure.method, confidence=sure.confidence, evidence=sure.evidence
        )
    return _ambiguous(guess.method, [row.key for row in rows], complete)


def _thread_guess(node: Node) -> Link | None:
    return next((member.guess for member in find(node.thread).members if member.guess is not None), None)


def _ambiguous(method: Method, keys: list[RowKey], complete: bool) -> Attribution:
    return Attribution(
        method=method,
        confidence=Confidence.AMBIGUOUS,
        evidence=f"{len(keys)} rows in flight{'' if complete else ', or more,'} may have caused it",
        candidates=tuple(keys[:MAX_CANDIDATES]),
    )


class Source(NamedTuple):
    """The exchange that first carried a token."""

    exchange: str
    call: Call


class Tokens:
    """Which thread a token stands for, and where it was first seen.

    At most `limit` are remembered; the least recently used go first. A token that two rows claimed is distrusted: it
    says nothing any more.
    """

    def __init__(self, limit: int) -> None:
        self._known: OrderedDict[Token, tuple[Thread, Source] | None] = OrderedDict()
        self._limit = limit

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, token: Token) -> bool:
        return token in self._known

    def get(self, token: Token) -> tuple[Thread, Source] | None:
        """The thread and the source; None where it is not known, or not trusted."""
        if token not in self._known:
            return None
        self._known.move_to_end(token)
        entry = self._known[token]
        return None if entry is None else (find(entry[0]), entry[1])

    def put(self, token: Token, thread: Thread, source: Source) -> None:
        """Remember that a token is this thread's."""
        thread = find(thread)
        thread.tokens.append(token)
        self._set(token, (thread, source))

    def distrust(self, token: Token) -> None:
        """Let a token say nothing any more."""
        self._known.pop(token, None)
        self._set(token, None)

    def forget(self, tokens: list[Token]) -> None:
        """Drop the tokens of a row that is over, but keep those that are distrusted."""
        for token in tokens:
            if self._known.get(token) is not None:
                del self._known[token]

    def _set(self, token: Token, entry: tuple[Thread, Source] | None) -> None:
        self._known[token] = entry
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
