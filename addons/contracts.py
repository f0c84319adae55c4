"""Contracts: each exchange of a Gym server against the models that the server publishes, and its tools' routes.

A server is asked for its `/openapi.json` once, when it first answers and no row is under way, or else when the run's
rows are done: making the document keeps a Gym 0.7 server from all else for more than a second. Nothing waits for the
answer. What ended before it came is looked at twice: at once by what needs no contract, then again.
"""

import http.client
import queue
import threading
import urllib.parse
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.contracts.exchange_check import (
    CHECKED_CALLS,
    Callee,
    check_request,
    check_response,
    rejected,
)
from gymtap.proxy.core.contracts.openapi import Contract
from gymtap.proxy.core.contracts.routing import check_call, check_tools, tools_of
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Call, Finding, RowKey, Server, ServerKind

GYM_KINDS = frozenset({ServerKind.ENVIRONMENT, ServerKind.AGENT, ServerKind.RESOURCES})
"""Servers that are Gym's for certain. What is not Gym's is never sent a request that nobody asked for."""

_MAY_BE_ASKED = GYM_KINDS | {ServerKind.MODEL, ServerKind.UNKNOWN}
"""Servers whose contract may come yet: a model server's among Gym's, and one of which nothing is known so far."""

DOCUMENT_MAX_BYTES = 16 * 2**20
HELD_MAX_BYTES = 32 * 2**20
"""How much of what awaits a contract is held; beyond it the oldest is let go, checked by what needs none."""

_TIMEOUT_S = 60.0
_STOP_WAIT_S = 5.0
_ROWS_REMEMBERED = 20_000
_TOOL_LISTS_REMEMBERED = 1_000

type Fetch = Callable[[Server], bytes]


def fetch_document(server: Server) -> bytes:
    """A server's OpenAPI document, asked for at its upstream, so that the tap does not record it.

    Raises OSError and http.client.HTTPException when there is no answer, ValueError when it is not a document.
    """
    place = urllib.parse.urlsplit(server.upstream)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.hostname or "", place.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", place.path.rstrip("/") + "/openapi.json", headers={"Accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"{answer.status} {answer.reason}")
        document = answer.read(DOCUMENT_MAX_BYTES + 1)
    finally:
        connection.close()
    if len(document) > DOCUMENT_MAX_BYTES:
        raise ValueError(f"longer than {DOCUMENT_MAX_BYTES} bytes")
    return document


class _Asker:
    """Asks servers for their documents, each on a thread of its own: they are other processes, and some take long."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.answers: queue.SimpleQueue[tuple[Server, bytes | str]] = queue.SimpleQueue()

    def ask(self, server: Server) -> None:
        """Ask; the document, or why there is none, will be in `answers`."""
        threading.Thread(target=self._run, args=(server,), name="gymtap-contracts", daemon=True).start()

    def _run(self, server: Server) -> None:
        try:
            self.answers.put((server, self._fetch(server)))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.answers.put((server, str(error) or type(error).__name__))


class _Around(NamedTuple):
    """What was known around an exchange when it ended: who called, what it only passes on, whose answer it is."""

    caller: str | None
    relays: bool
    verifier: Callee | None


@dataclass
class _Held:
    """An exchange that awaits its server's contract, and what was said of it without."""

    flow: Flow
    around: _Around
    said: set[tuple[str, str | None]]
    size_bytes: int


@dataclass
class _Book:
    """What is known of one server. `settled`: its contract came, or it was said that there is none."""

    server: Server
    opened: int = 0
    answered: bool = False
    asked: bool = False
    settled: bool = False
    contract: Contract | None = None
    held: deque[_Held] = field(default_factory=deque)
    held_bytes: int = 0
    tool_lists: OrderedDict[bytes, list[Finding]] = field(default_factory=OrderedDict)


class Contracts(Addon):
    """Learns contracts, keeps them in the capture, and says which exchange broke which."""

    def __init__(self, setup: Setup, fetch: Fetch = fetch_document) -> None:
        self._sink = setup.sink
        self._asker = _Asker(fetch)
        self._books: dict[str, _Book] = {}
        self._pending = 0
        self._runs: dict[str, str] = {}  # open /run exchanges and their servers
        self._verifiers: dict[str, Callee] = {}  # the last /verify below each of them
        self._rows_under_way = False  # from the first /run to the run's /aggregate_metrics
        self._open: set[str] = set()
        self._below: dict[str, int] = {}  # how a /run, or a 422, below an open exchange ended
        self._declared: OrderedDict[RowKey, frozenset[str]] = OrderedDict()

    def listening(self, server: Server) -> None:
        """Learn of a server, or its kind."""
        self._book(server).server = server

    def opened(self, flow: Flow) -> None:
        """A server has something to do."""
        self._settle()
        self._open.add(flow.id)
        self._book(flow.server).opened += 1

    def requested(self, flow: Flow) -> None:
        """Remember who runs the row."""
        if flow.call is Call.RUN:
            self._rows_under_way = True
            self._runs[flow.id] = flow.server.name

    def ended(self, flow: Flow) -> None:
        """Look at it, and ask for contracts while no row would have to wait."""
        self._settle()
        book = self._book(flow.server)
        book.opened -= 1
        book.answered |= flow.status is not None
        if flow.method == "POST" and flow.call in CHECKED_CALLS:
            self._look(flow, book)
        self._forget(flow)
        if flow.call is Call.AGGREGATE and not self._open:
            self._rows_under_way = False
        if not self._rows_under_way:
            self._ask()

    def stopped(self) -> None:
        """Say what is left to say; an answer that is under way is waited for only if something hangs on it."""
        self._settle()
        while self._pending and any(book.held for book in self._books.values() if book.asked and not book.settled):
            try:
                self._settled(*self._asker.answers.get(timeout=_STOP_WAIT_S))
            except queue.Empty:
                break
        for name, book in self._books.items():
            if book.held and not book.settled and self._is_gyms(book.server.kind):
                why = "it gave no answer in time" if book.asked else "it was not asked, since rows were under way"
                self._sink.contract(name, None, why)

    # Inside

    def _book(self, server: Server) -> _Book:
        book = self._books.get(server.name)
        if book is None:
            book = self._books[server.name] = _Book(server)
        return book

    def _ask(self) -> None:
        for book in self._books.values():
            if not book.asked and book.answered and not book.opened and self._is_gyms(book.server.kind):
                book.asked = True
                self._pending += 1
                self._asker.ask(book.server)

    def _is_gyms(self, kind: ServerKind) -> bool:
        """A model server is where others are Gym's: alone, it may be a provider that was called without a key."""
        if kind is ServerKind.MODEL:
            return any(book.server.kind in GYM_KINDS for book in self._books.values())
        return kind in GYM_KINDS

    def _settle(self) -> None:
        while self._pending:
            try:
                answer = self._asker.answers.get_nowait()
            except queue.Empty:
                return
            self._settled(*answer)

    def _settled(self, server: Server, answer: bytes | str) -> None:
        self._pending -= 1
        book = self._book(server)
        book.settled = True
        problem = answer if isinstance(answer, str) else ""
        if isinstance(answer, bytes):
            try:
                book.contract = Contract(orjson.loads(answer), server.name)
                self._sink.contract(server.name, answer)
            except ValueError as error:
                problem = str(error)
        if problem:
            self._sink.contract(server.name, None, problem)
        for held in book.held:
            self._say(held.flow, self._findings(held.flow, book, held.around), held.said)
            held.flow.drop_json()
        book.held.clear()
        book.held_bytes = 0

    def _look(self, flow: Flow, book: _Book) -> None:
        caller = self._runs.get(flow.parent or "")
        if flow.call is Call.VERIFY and flow.parent is not None and caller is not None:
            self._verifiers[flow.parent] = Callee(flow.id, flow.server.name)
        self._learn_tools(flow)
        said: set[tuple[str, str | None]] = set()
        around = _Around(caller, self._below.get(flow.id) == flow.status, self._verifiers.get(flow.id))
        self._say(flow, self._findings(flow, book, around), said)
        if not book.settled and book.server.kind in _MAY_BE_ASKED:
            self._hold(book, _Held(flow, around, said, _size(flow)))

    def _findings(self, flow: Flow, book: _Book, around: _Around) -> Iterable[Finding]:
        contract = book.contract
        if around.relays and (flow.status or 0) >= 400:  # what is below says it better
            return
        yield from check_request(flow, contract)
        agent = self._books[around.caller].contract if around.caller in self._books else None
        yield from check_response(flow, contract, agent)
        yield from rejected(flow, around.verifier)
        row = flow.attribution.row
        yield from check_call(flow, contract, self._declared.get(row) if row is not None else None)
        if flow.call is Call.SEED_SESSION and contract is not None:
            yield from self._routing(flow, book, contract)

    def _routing(self, flow: Flow, book: _Book, contract: Contract) -> list[Finding]:
        tools = tools_of(flow.request_json)
        if not tools:
            return []
        key = orjson.dumps([tuple(tool) for tool in tools], option=orjson.OPT_SORT_KEYS)
        if key not in book.tool_lists:
            book.tool_lists[key] = check_tools(tools, contract)
            if len(book.tool_lists) > _TOOL_LISTS_REMEMBERED:
                book.tool_lists.popitem(last=False)
        return book.tool_lists[key]

    def _learn_tools(self, flow: Flow) -> None:
        row = flow.attribution.row
        if row is None or flow.call not in (Call.RUN, Call.SEED_SESSION) or row in self._declared:
            return
        self._declared[row] = frozenset(tool.name for tool in tools_of(flow.request_json))
        if len(self._declared) > _ROWS_REMEMBERED:
            self._declared.popitem(last=False)

    def _say(self, flow: Flow, found: Iterable[Finding], said: set[tuple[str, str | None]]) -> None:
        for one in found:
            if (one.rule, one.pointer) not in said:
                said.add((one.rule, one.pointer))
                self._sink.finding(one.model_copy(update={"exchange": flow.id}))

    def _hold(self, book: _Book, held: _Held) -> None:
        book.held.append(held)
        book.held_bytes += held.size_bytes
        while book.held_bytes > HELD_MAX_BYTES:
            book.held_bytes -= book.held.popleft().size_bytes

    def _forget(self, flow: Flow) -> None:
        self._open.discard(flow.id)
        if flow.parent in self._open and flow.status is not None and (flow.call is Call.RUN or flow.status == 422):
            self._below[flow.parent] = flow.status
        self._below.pop(flow.id, None)
        self._runs.pop(flow.id, None)
        self._verifiers.pop(flow.id, None)


def _size(flow: Flow) -> int:
    return 1_000 + len(flow.request_body or b"") + len(flow.response_body or b"")
