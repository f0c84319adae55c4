"""The resolver: asks the methods in order of strength, and revises earlier answers when later evidence comes.

An answer is sure only where the true cause must be among the candidates: it was captured, it is remembered, and its
content was read. Where that cannot be known, or several candidates remain, the answer is a hint or names them.
"""

import weakref
from collections import OrderedDict
from typing import NamedTuple

from gymtap.proxy.core import calls
from gymtap.proxy.core.attribution import causality, content, lineage, rollout, sessions, timing, trace, tree
from gymtap.proxy.core.attribution.flight import InFlight
from gymtap.proxy.core.attribution.rollout import Stated
from gymtap.proxy.core.attribution.rows import Rows
from gymtap.proxy.core.attribution.runs import Runs
from gymtap.proxy.core.attribution.sessions import Token
from gymtap.proxy.core.attribution.state import (
    KnownRow,
    Link,
    Node,
    Source,
    Thread,
    Tokens,
    asks_model_server,
    describe,
    find,
    join,
    row_of,
)
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import (
    ROWLESS_CALLS,
    Attribution,
    Call,
    Confidence,
    Method,
    Server,
    ServerKind,
    TransportErrorKind,
)

MAX_SUSPECTS = 64
"""Candidates kept for one exchange; where there are more, it stays ambiguous until an id or a session decides."""

MIN_ANSWER_CHARS = 16
MAX_ANSWER_CHARS = 4096
"""Of an answer's text, kept while it is not known whose it is."""

_STATES_ROW = frozenset({Call.RUN, Call.SEED_SESSION, Call.VERIFY, Call.CLOSE_SESSION, Call.AGENT_SESSION})
_NAMES_SESSIONS = _STATES_ROW - {Call.RUN}
_UPSTREAM_ENDED = frozenset(
    {TransportErrorKind.REFUSED, TransportErrorKind.UNREACHABLE, TransportErrorKind.RESET, TransportErrorKind.CLOSED}
)
_ABANDONED = frozenset({TransportErrorKind.CLIENT_GONE, TransportErrorKind.TAP_STOPPED})
_STATED_IN_BODY = Link(Method.BODY, Confidence.CERTAIN, "its body states the row")


class Verdict(NamedTuple):
    """What is known of an exchange by now. `flow` is set while it is in flight."""

    exchange: str
    flow: Flow | None
    call: Call
    attribution: Attribution
    parent: str | None
    attempt: int


class Resolver:
    """Feed it every flow's `opened`, `requested` and `ended`, in the order in which they happened, then `drain`.

    Memory is bounded: `max_tokens` ids and sessions, `max_ended` exchanges and `max_rows` rows that are over are
    remembered, beside all that is in flight.
    """

    def __init__(self, max_tokens: int = 100_000, max_ended: int = 4096, max_rows: int = 1024) -> None:
        self._tokens = Tokens(max_tokens)
        self._rows = Rows(max_rows)
        self._runs = Runs()
        self._flight = InFlight()
        self._nodes: dict[str, Node] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._max_ended = max_ended
        self._kinds: dict[str, ServerKind] = {}
        self._guessed: dict[str, ServerKind] = {}
        self._runners: set[str] = set()
        self._unexplained: set[str] = set()
        self._changed: dict[Node, None] = {}
        self._opened = 0

    # What happens

    def listening(self, server: Server) -> None:
        """A server's kind is given, or given anew."""
        if server.kind is not ServerKind.UNKNOWN:
            self._kinds[server.name] = server.kind

    def opened(self, flow: Flow) -> None:
        """A request's head is known."""
        route = calls.route(flow.target)
        kind = self._kind(flow, route.path)
        call = calls.classify(flow.method, route.path, kind)
        self._opened += 1
        node = Node(flow.id, flow.server.name, kind, call, flow, Thread(), self._opened)
        node.thread.members.append(node)
        self._nodes[flow.id] = node
        self._changed[node] = None
        if flow.causality_parent is not None:
            self._inherit(node, flow.causality_parent)
        if route.path == calls.CONFIG_PATH:
            self._rows.expect_no_retries()  # a collector that starts: what it sends next is no retry
        elif call is Call.RUN:
            self._runners.add(node.server)
        if route.rollout is not None and not _is_rowless(node) and row_of(node) is None:
            evidence = f"its path says /ng-rollout/{route.rollout}"
            self._state(node, rollout.from_path(route.rollout), Link(Method.ROLLOUT_PATH, Confidence.CERTAIN, evidence))

    def requested(self, flow: Flow) -> None:
        """A request is whole."""
        node = self._nodes.get(flow.id)
        if node is None or _is_rowless(node):
            return
        node.body = None if flow.request_body is None else hash(flow.request_body)
        known = row_of(node) is not None and node.caused
        if not known:
            self._read_statement(node, flow)
        if row_of(node) is None or not node.caused:
            self._read_sessions(node, flow, deeply=not known)
        if not known:
            self._read_clues(node, flow)
        self._flight.add(node)
        self._settle(node)
        node.fresh = False

    def ended(self, flow: Flow) -> None:
        """An exchange is over."""
        node = self._nodes.get(flow.id)
        if node is None:
            return
        node.fresh = False
        node.failed = flow.error is not None or (flow.status or 0) >= 400
        if not _is_rowless(node):
            self._read_answer(node, flow)
        node.open = False
        self._flight.end(node, _is_abandoned(flow))
        self._close(node, flow)
        node.flow, node.ways = None, None
        if node.call is not Call.PROVIDER or node.parent is not None:
            node.answer = None
        if row_of(node) is None:
            self._changed[node] = None
        self._remember_ended(node)

    def drain(self) -> list[Verdict]:
        """What changed since the last time, each once."""
        verdicts = [verdict for node in self._changed if (verdict := _verdict(node)) is not None]
        self._changed.clear()
        return verdicts

    def guessed(self) -> dict[str, ServerKind]:
        """Kinds of servers that traffic showed since the last time."""
        guessed, self._guessed = self._guessed, {}
        return guessed

    # Servers

    def _kind(self, flow: Flow, path: str) -> ServerKind:
        server = flow.server
        if server.kind is not ServerKind.UNKNOWN:
            return server.kind
        if server.name not in self._kinds:
            serves_runs = server.name in self._runners
            self._guess(server.name, calls.kind_from_request(flow.method, path, flow.request_headers, serves_runs))
        return self._kinds.get(server.name, ServerKind.UNKNOWN)

    def _guess(self, server: str, kind: ServerKind) -> None:
        if kind is not ServerKind.UNKNOWN and server not in self._kinds:
            self._kinds[server] = self._guessed[server] = kind

    def _tell_runners(self, outer: Node, inner: Node) -> None:
        """An environment's /run causes an agent's."""
        for node, kind in ((outer, ServerKind.ENVIRONMENT), (inner, ServerKind.AGENT)):
            self._guess(node.server, kind)
            if node.kind is ServerKind.UNKNOWN:
                node.kind = kind

    # Causality and stated identity

    def _inherit(self, node: Node, parent_id: str) -> None:
        node.parent = parent_id
        parent = self._nodes.get(parent_id)
        node.replay = causality.replay_of(parent_id, parent)
        if parent is None:
            return
        node.caused = True
        if calls.causes_judging(parent.call) and node.call in tree.GENERATIONS:
            node.call = Call.JUDGE
        if node.call is Call.RUN and parent.call is Call.RUN:
            self._tell_runners(parent, node)
        if node.replay is None and causality.passes_row(parent) and node.call not in ROWLESS_CALLS:
            self._tie(node, parent.thread, causality.link(parent))

    def _read_statement(self, node: Node, flow: Flow) -> None:
        if node.call is Call.RUN:
            self._run(node, rollout.from_body(flow.request_json))
        elif node.call in _STATES_ROW:
            stated = rollout.from_body(flow.request_json)
            if stated.is_row and row_of(node) is None:
                self._state(node, stated, _STATED_IN_BODY)

    def _state(self, node: Node, stated: Stated, link: Link) -> None:
        """Find the row that a request states, or know a new one; without the agent several may be meant."""
        rows = self._rows.matching(stated)
        if len(rows) > 1 and node.kind is ServerKind.AGENT:
            rows = [row for row in rows if row.key.agent == node.server] or rows
        if not rows and not stated.is_row:
            return
        if not rows:
            rows = [self._rows.add(stated.key(self._runs.current(stated.agent)))]
        if len(rows) == 1:
            self._tie(node, rows[0].thread, link)
            if rows[0].root is None:
                self._finish(rows[0])
        else:
            self._suspect(node, [row.root for row in rows if row.root is not None], link)

    def _run(self, node: Node, stated: Stated) -> None:
        outer = [] if node.kind is ServerKind.ENVIRONMENT else self._outer_runs(node, stated)
        if len(outer) == 1:
            self._nest(node, outer[0], stated)
        elif outer:
            self._suspect(node, outer, _STATED_IN_BODY)
        else:
            self._root(node, stated)

    def _outer_runs(self, node: Node, stated: Stated) -> list[Node]:
        """The open /run requests of other servers that state the same row, and wait for an agent's."""
        if stated.is_row:
            rows = self._rows.matching(stated)
            known = [row.root for row in rows if row.root is not None and stated.key(row.key.run) == row.key]
        else:
            known = [run for run in self._flight.of(Call.RUN) if run.body == node.body and run.body is not None]
        outer = [run for run in known if run.open and run.server != node.server and tree.awaits_agent(run)]
        return [run for run in outer if run.body == node.body and run.body is not None] or outer

    def _nest(self, node: Node, outer: Node, stated: Stated) -> None:
        self._tell_runners(outer, node)
        node.parent = outer.id
        evidence = f"its body is that of {outer.id}, in flight"
        link = _STATED_IN_BODY if stated.is_row else Link(Method.CONTENT, Confidence.HIGH, evidence)
        self._tie(node, outer.thread, link)

    def _root(self, node: Node, stated: Stated) -> None:
        named = stated if stated.is_row else Stated(rollout_id=node.id, agent=stated.agent)
        row = self._rows.retried(named.key(1)) if stated.is_row else None
        if row is not None and row.root is not None:
            node.attempt = row.root.attempt + 1
            self._rows.reopen(row)
            self._runs.resume(row.key.agent)
        else:
            row = self._rows.add(named.key(self._runs.begin(named)))
        row.root, row.retryable, row.counted = node, False, True
        link = _STATED_IN_BODY if stated.is_row else _STATED_IN_BODY._replace(evidence="a /run that names no row")
        self._tie(node, row.thread, link)

    # Sessions, ids, traces

    def _read_sessions(self, node: Node, flow: Flow, deeply: bool) -> None:
        found = sessions.from_request(flow.request_headers)
        if deeply and node.call in _NAMES_SESSIONS:
            found += sessions.from_body(flow.request_json)
        if node.call in tree.GENERATIONS:
            return
        for session in found:
            self._claim(node, session.token, Method.SESSION, session.name)

    def _read_clues(self, node: Node, flow: Flow) -> None:
        if (traced := trace.from_headers(flow.request_headers)) is not None:
            self._claim(node, traced, Method.TRACE, "trace id")
        if node.call is Call.RUN:
            self._distrust_history(flow)
        elif node.call is Call.VERIFY and isinstance(flow.request_json, dict):
            self._claim_made(node, lineage.made(flow.request_json.get("response")))
        elif node.call in tree.GENERATIONS:
            self._read_conversation(node, flow)
        elif row_of(node) is None and node.call is Call.RESPONSES:
            self._find_origin(node, flow)
            self._tie_only_origin(node)
        elif row_of(node) is None and node.call is not Call.OTHER:
            self._suspect(node, timing.suspects(node.call, node.kind, self._flight), timing.LINK)

    def _claim(self, node: Node, token: Token, method: Method, name: str) -> None:
        """Tie an exchange to whatever carried this token before; distrust it when that is another row's."""
        entry = self._tokens.get(token)
        if entry is None:
            if token not in self._tokens:
                self._tokens.put(token, node.thread, Source(node.id, node.call))
            return
        thread, source = entry
        evidence = f"{name} was first seen in {source.exchange} ({source.call})"
        if row_of(node) is not None:
            evidence = f"{name} came back in {node.id} ({node.call})"
        if not self._tie(node, thread, Link(method, Confidence.HIGH, evidence)):
            self._tokens.distrust(token)

    def _claim_made(self, node: Node, made: list[Token]) -> None:
        for token in made:
            if self._made_twice(token, node):
                self._tokens.distrust(token)
            else:
                self._claim(node, token, Method.LINEAGE, "an id in its response")

    def _made_twice(self, token: Token, node: Node) -> bool:
        """Whether another call of the same kind made this id: a cache's, a recording's, or a digest of the request."""
        entry = self._tokens.get(token)
        return entry is not None and entry[1].call is node.call and entry[1].exchange not in {node.id, node.parent}

    def _distrust_history(self, flow: Flow) -> None:
        """Ids that come with a dataset's row name no turn of it."""
        body = flow.request_json
        if isinstance(body, dict):
            for token in lineage.used(body.get("responses_create_params")):
                self._tokens.distrust(token)

    def _read_conversation(self, node: Node, flow: Flow) -> None:
        """Model and provider calls state no row: earlier turns' ids, then content, then timing."""
        self._find_origin(node, flow)
        for token in lineage.used(flow.request_json):
            if token in self._tokens:
                self._claim(node, token, Method.LINEAGE, "an id in its input")
            else:
                self._tokens.distrust(token)
        self._tie_only_origin(node)

    # Content and timing

    def _find_origin(self, node: Node, flow: Flow) -> None:
        digests = content.prefixes(flow.request_json) if self._flight.has_origins(node.call) else None
        found = self._models(digests) if node.call is Call.PROVIDER else []
        found = found or self._origins(node, digests)
        if not found:
            self._unexplained.add(node.server)
            self._suspect(node, timing.suspects(node.call, node.kind, self._flight), timing.LINK)
            return
        link = _content_link(found[0])
        doubtful = node.server in self._unexplained or any(suspect in self._flight.abandoned for suspect in found)
        self._suspect(node, found, link.capped(Confidence.LOW) if doubtful else link)

    def _models(self, digests: list[Token] | None) -> list[Node]:
        """The model calls in flight with this very conversation, and those that cannot be read."""
        found = self._flight.models.find(digests[-1:]) if digests else []
        return [*found, *self._flight.models.blind] if found else []

    def _origins(self, node: Node, digests: list[Token] | None) -> list[Node]:
        """The /run and self-calls in flight with whose conversation this one begins, and those that cannot be read."""
        found = self._flight.origins.find(digests) if digests else []
        if node.call is Call.RESPONSES:
            found = [run for run in found if run.call is Call.RUN and run.server == node.server]
        return [*tree.innermost(found), *filter(tree.hides_conversation, self._flight.origins.blind)] if found else []

    def _tie_only_origin(self, node: Node) -> None:
        """Content decides when all that may be the origin is of one row, or of one conversation.

        An id that contradicts it has spoken before, and is stronger.
        """
        threads = {find(suspect.thread): None for suspect in node.suspects}
        if len(threads) != 1 or node.crowd or node.guess is None or not node.guess.is_sure:
            return
        tied = self._tie(node, next(iter(threads)), node.guess)
        if tied and len(node.suspects) == 1 and asks_model_server(node.suspects[0]):
            node.parent = node.suspects[0].id
            self._count(node, node.suspects[0])

    def _suspect(self, node: Node, suspects: list[Node], link: Link) -> None:
        """Keep who may have caused it; what a stronger method left open is only ever narrowed."""
        allowed = {row_of(suspect) for suspect in node.suspects}
        distinct = [suspect for suspect in dict.fromkeys(suspects) if not allowed or row_of(suspect) in allowed]
        if allowed and not distinct:
            return
        node.suspects = tuple(distinct[:MAX_SUSPECTS])
        node.crowd = max(0, len(distinct) - MAX_SUSPECTS)
        node.guess = link
        for suspect in node.suspects:
            if asks_model_server(suspect):
                suspect.waiting.append(weakref.ref(node))

    # Answers

    def _read_answer(self, node: Node, flow: Flow) -> None:
        for session in _issued(node, flow):
            self._claim(node, session.token, Method.SESSION, session.name)
        if node.caused and row_of(node) is not None:
            return
        if node.call is Call.AGENT_SESSION:
            for session in sessions.from_body(flow.response_json):
                self._claim(node, session.token, Method.SESSION, session.name)
        if node.call not in tree.GENERATIONS and node.call is not Call.RESPONSES:
            return
        if flow.response_json is not None and (node.call is Call.PROVIDER or node.waiting):
            node.answer = content.answer(flow.response_json)[:MAX_ANSWER_CHARS]
        if node.failed:
            return
        made = lineage.made(flow.response_json)
        if asks_model_server(node):
            self._match_providers(node, made)
        self._claim_made(node, made)

    def _match_providers(self, node: Node, made: list[Token]) -> None:
        """A model server's answer is its provider's: by an id in it, or by text that no other candidate gave."""
        children = [child for ref in node.waiting if (child := ref()) is not None and child.parent in {None, node.id}]
        for child in children:
            if child.open:
                self._rule_out(child, node)
        over = [child for child in children if not child.open and not child.failed]
        by_id = [child for child in over if any(self._is_of(token, child) for token in made)]
        by_text = [child for child in over if _may_have_given(child, node)]
        chosen = by_id or (by_text if len(node.answer or "") >= MIN_ANSWER_CHARS else [])
        if len(chosen) == 1 and chosen[0].parent is None:
            evidence = f"{node.id} answered what it answered"
            if self._tie(chosen[0], node.thread, Link(Method.LINEAGE, Confidence.HIGH, evidence)):
                chosen[0].parent = node.id
                self._changed[chosen[0]] = None

    def _is_of(self, token: Token, child: Node) -> bool:
        entry = self._tokens.get(token)
        return entry is not None and entry[1].exchange == child.id

    def _rule_out(self, child: Node, suspect: Node) -> None:
        """A model server does not answer before its provider did."""
        child.suspects = tuple(other for other in child.suspects if other is not suspect)
        self._changed[child] = None

    # Rows and the tree

    def _tie(self, node: Node, thread: Thread, link: Link) -> bool:
        """Say that an exchange is of a thread; False when both are known to be of different rows."""
        alone = node.link is None
        learned = join(node.thread, thread, link)
        if learned is None:
            return False
        if alone and node.link is None and find(node.thread) is find(thread):
            node.link = link
        for member in (node, *learned):
            if node.call is Call.RESPONSES and tree.is_turn_of(member, node):
                member.parent = node.id
            self._settle(member)
        return True

    def _settle(self, node: Node) -> None:
        """Place an exchange in its row's tree, once both are known."""
        self._changed[node] = None
        row = row_of(node)
        if row is None:
            return
        for child in _waiting(node):
            self._changed[child] = None
        if node.parent is None and node is not row.root:
            parent = tree.parent_of(node, row)
            node.parent = parent.id if parent is not None else None
            if parent is not None and calls.causes_judging(parent.call) and node.call in tree.GENERATIONS:
                node.call = Call.JUDGE
        if node.open:
            row.open[node] = None
        if node.parent is not None and node.body is not None:
            self._count(node, self._nodes.get(node.parent))

    def _count(self, node: Node, parent: Node | None) -> None:
        """A call that is sent again after it failed is the next attempt of it."""
        if parent is None or node.flow is None or node.body is None:
            return
        parent.ways = {} if parent.ways is None else parent.ways
        way = (node.server, node.flow.method, node.flow.target, node.body)
        before = parent.ways.get(way)
        if before is not node:
            node.attempt = before.attempt + 1 if before is not None and before.failed else 0
            parent.ways[way] = node

    def _close(self, node: Node, flow: Flow) -> None:
        row = row_of(node)
        if row is None:
            return
        if not _is_abandoned(flow):
            row.open.pop(node, None)
        if row.root is node:
            row.retryable = flow.error is not None and flow.error.kind in _UPSTREAM_ENDED
            self._finish(row)

    def _finish(self, row: KnownRow) -> None:
        if row.counted:
            self._runs.end(row.key.agent)
            row.counted = False
        for forgotten in self._rows.finish(row):
            self._tokens.forget(forgotten.thread.tokens)

    def _remember_ended(self, node: Node) -> None:
        self._ended[node.id] = None
        if len(self._ended) > self._max_ended:
            del self._nodes[self._ended.popitem(last=False)[0]]


def _content_link(origin: Node) -> Link:
    return Link(
        Method.CONTENT, Confidence.HIGH, f"its conversation begins as that of {origin.id}, and of no other in flight"
    )


def _issued(node: Node, flow: Flow) -> list[sessions.Session]:
    """The sessions that an answer issues; a model server's says nothing when the request brought it.

    HTTP clients that keep cookies of their own share one model session among rows (httpx does, Gym's client does not).
    """
    issued = sessions.from_response(flow.response_headers)
    brought = sessions.from_request(flow.request_headers) if issued and node.call in tree.GENERATIONS else []
    return [session for session in issued if session not in brought]


def _may_have_given(child: Node, node: Node) -> bool:
    """Whether a provider may have answered what a model server did; an answer cut, or not read, may be anything."""
    given = child.answer
    return given is None or len(given) >= MAX_ANSWER_CHARS or (node.answer or "") in given


def _waiting(node: Node) -> list[Node]:
    """The calls that may be this one's, and are not known to be anybody's."""
    return [child for ref in node.waiting if (child := ref()) is not None and row_of(child) is None]


def _is_rowless(node: Node) -> bool:
    """Whether no row is looked for: nobody's call, or a replay's, which must not change what is known of the rows."""
    return node.replay is not None or node.call in ROWLESS_CALLS


def _is_abandoned(flow: Flow) -> bool:
    """Whether only its client is known to have gone: the server may go on, and cause more."""
    return flow.error is not None and flow.error.kind in _ABANDONED


def _verdict(node: Node) -> Verdict | None:
    attribution = _described(node)
    said = (attribution, node.parent, node.attempt, node.call)
    if said == node.said:
        return None
    node.said = said
    return Verdict(node.id, node.flow, node.call, attribution, node.parent, node.attempt)


def _described(node: Node) -> Attribution:
    """Describe a node, or take what was said when nothing that it stands on has changed."""
    if node.replay is not None:
        return Attribution(evidence=f"part of {node.replay}, which repeats what a row did before")
    if node.call in ROWLESS_CALLS:
        return Attribution(evidence=_ROWLESS[node.call])
    row = row_of(node)
    if row is not None and node.said is not None and node.basis == (row, node.link):
        return node.said[0]
    node.basis = None if row is None else (row, node.link)
    return describe(node)


_ROWLESS = {
    Call.HEALTH: "a health probe belongs to no row",
    Call.HEAD: "the head server is asked on behalf of the whole run",
    Call.AGGREGATE: "metrics are aggregated over many rows",
}
