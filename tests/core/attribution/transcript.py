"""Recorded traffic as a transcript: flows opened, requested and ended in true order, the answer known beside them.

A recording is JSON lines, one exchange each: `seq`, `hop` (server name), `t0`, `t1`, `method`, `path`, headers, bodies,
`status`, `error`, and `parent` where the true parent is known. Nothing of the truth reaches the flows.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gymtap.addons.identity import Identity
from gymtap.proxy.core.addon import Heard, Setup
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import (
    ROWLESS_CALLS,
    Attribution,
    Call,
    Confidence,
    Server,
    ServerKind,
    TransportError,
    TransportErrorKind,
)

SAMPLES = Path(__file__).parents[4] / "shared/gym/samples"
DATA = Path(__file__).parents[2] / "data"
KINDS = {
    "resources_servers": ServerKind.RESOURCES,
    "responses_api_agents": ServerKind.AGENT,
    "responses_api_models": ServerKind.MODEL,
    "environment_servers": ServerKind.ENVIRONMENT,
}
SURE = {Confidence.HIGH, Confidence.CERTAIN}
type Key = tuple[int, int, str | None]


@dataclass
class Told:
    """What the tap says of one exchange by now."""

    call: Call = Call.OTHER
    attribution: Attribution = field(default_factory=Attribution)
    parent: str | None = None
    attempt: int = 0


class Book(Heard):
    """A sink that keeps the latest word on every exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, Told] = defaultdict(Told)
        self.kinds: dict[str, ServerKind] = {}
        self.said: list[tuple[str, Told]] = []

    def attribute(self, exchange: str, attribution: Attribution, parent: str | None, attempt: int) -> None:
        told = self.told[exchange]
        told.attribution, told.parent, told.attempt = attribution, parent, attempt
        self.said.append((exchange, told))

    def classify(self, exchange: str, call: Call) -> None:
        self.told[exchange].call = call

    def identify(self, server: str, kind: ServerKind) -> None:
        self.kinds[server] = kind

    def read(self, flow: Flow) -> None:
        """Take what the addon set on the flow itself."""
        assert not self.findings
        assert not self.gaps
        self.told[flow.id] = Told(flow.call, flow.attribution, flow.parent, flow.attempt)
        self.said.append((flow.id, self.told[flow.id]))


class Tap:
    """The identity addon with a book, fed by hand."""

    def __init__(self) -> None:
        self.book = Book()
        self.addon = Identity(Setup(sink=self.book))

    def open(self, flow: Flow) -> None:
        self.addon.opened(flow)
        self.addon.requested(flow)
        self.book.read(flow)

    def end(self, flow: Flow) -> None:
        self.addon.ended(flow)
        self.book.read(flow)


def load(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def kinds_of(records: list[dict[str, Any]]) -> dict[str, ServerKind]:
    """The kinds that the head's configuration gives, as a takeover knows them."""
    kinds = {"head_server": ServerKind.HEAD, "provider": ServerKind.PROVIDER}
    for record in records:
        if record["path"] == "/global_config_dict_yaml" and record.get("resp_body"):
            config = yaml.safe_load(json.loads(record["resp_body"]))
            for name, entry in config.items():
                kinds.update(
                    (name, kind) for group, kind in KINDS.items() if isinstance(entry, dict) and group in entry
                )
    return kinds


def flow_of(record: dict[str, Any], kinds: dict[str, ServerKind], causality: bool) -> Flow:
    """An exchange's flow before its answer; everything of the laboratory that knew the parent is left out."""
    name = record["hop"]
    kind = kinds.get(name, ServerKind.UNKNOWN)
    parent = record.get("parent") if causality else None
    return Flow(
        id=str(record["seq"]),
        server=Server(name=name, kind=kind, listen=f"http://{name}", upstream=f"http://{name}"),
        started_ns=int(record["t0"] * 1e9),
        method=record["method"],
        target=record["path"],
        request_headers=tuple((k, v) for k, v in record["req_headers"] if not k.lower().startswith("x-lab")),
        causality_parent=None if parent is None else str(parent),
        request_body=record["req_body"].encode(),
    )


def answer(flow: Flow, record: dict[str, Any]) -> None:
    flow.status = record.get("status")
    flow.response_headers = tuple((k, v) for k, v in record.get("resp_headers") or ())
    flow.response_body = (record.get("resp_body") or "").encode()
    if record.get("error"):
        refused = "Connect call failed" in record["error"]
        kind = TransportErrorKind.REFUSED if refused else TransportErrorKind.CLOSED
        flow.error = TransportError(kind=kind, message=record["error"])


def events(records: list[dict[str, Any]]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """(is the end, record) in true time order."""
    moments = [(record["t0"], False, record["seq"], record) for record in records]
    moments += [(record["t1"], True, record["seq"], record) for record in records]
    for _, is_end, _, record in sorted(moments, key=lambda moment: moment[:3]):
        yield is_end, record


@dataclass
class Score:
    """How the book compares with the truth, by call. `wrong` lists every wrong sure word, even one revised later."""

    right: Counter[str] = field(default_factory=Counter)
    hinted: Counter[str] = field(default_factory=Counter)
    ambiguous: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  # ambiguous without the truth among the candidates
    wrong_parents: list[str] = field(default_factory=list)
    parents: Counter[str] = field(default_factory=Counter)

    def total(self, call: str) -> int:
        return self.right[call] + self.hinted[call] + self.ambiguous[call] + self.unknown[call]

    def report(self) -> str:
        names = sorted({*self.right, *self.hinted, *self.ambiguous, *self.unknown})
        return "\n".join(
            f"  {name:14} right {self.right[name]:3} of {self.total(name):3}, hinted {self.hinted[name]},"
            f" ambiguous {self.ambiguous[name]}, unknown {self.unknown[name]}, parents right {self.parents[name]}"
            for name in names
        )


class Truth:
    """The row and the parent of every exchange of a recording.

    Where no parents were recorded: the only row, or what the exchange states itself; None is not known.
    """

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.by_id = {str(record["seq"]): record for record in records}
        self.has_parents = any(record.get("parent") for record in records if record["path"] == "/verify")
        runs = [record for record in records if record["path"] == "/run"]
        seeds = [record for record in records if record["path"].endswith("/seed_session")]
        self.agent = next((_key(record)[2] for record in runs), None)
        keys = {_key(record) for record in runs or seeds}
        self.only = keys.pop() if len(keys) == 1 else None

    def row(self, exchange: str) -> Key | None:
        if not self.has_parents:
            return self.only or self._stated(self.by_id[exchange])
        while (parent := self.by_id[exchange].get("parent")) is not None and str(parent) in self.by_id:
            exchange = str(parent)
        root = self.by_id[exchange]
        return _key(root) if root["path"] == "/run" else None

    def _stated(self, record: dict[str, Any]) -> Key | None:
        path = record["path"].split("/")
        if path[1] == "ng-rollout":
            task, rollout = path[2].split("-")
            return int(task), int(rollout), self.agent
        return _key(record) if path[-1] in {"run", "seed_session", "verify"} else None

    def parent(self, exchange: str) -> str | None:
        parent = self.by_id[exchange].get("parent")
        return None if parent is None else str(parent)


def _key(record: dict[str, Any]) -> Key:
    body = json.loads(record["req_body"])
    return body.get("_ng_task_index", -1), body.get("_ng_rollout_index", -1), body.get("agent_ref", {}).get("name")


def key_of(attribution: Attribution) -> Key | None:
    row = attribution.row
    return None if row is None or row.task is None or row.rollout is None else (row.task, row.rollout, row.agent)


def replay(records: list[dict[str, Any]], kinds: dict[str, ServerKind], causality: bool = False) -> tuple[Score, Tap]:
    """Feed a recording through a tap and compare what it says, at every moment, with the truth."""
    tap, truth, score = Tap(), Truth(records), Score()
    flows: dict[str, Flow] = {}
    wrong: dict[str, None] = {}
    for is_end, record in events(records):
        exchange = str(record["seq"])
        if is_end:
            answer(flows[exchange], record)
            tap.end(flows.pop(exchange))
        else:
            flow = flows[exchange] = flow_of(record, kinds, causality)
            tap.addon.listening(flow.server)
            tap.open(flow)
        for name, told in tap.book.said:
            _check(name, told, truth, wrong)
        tap.book.said.clear()
    for name, told in tap.book.told.items():
        _grade(name, told, truth, score)
    score.wrong = list(wrong)
    return score, tap


def _check(exchange: str, told: Told, truth: Truth, wrong: dict[str, None]) -> None:
    attribution = told.attribution
    row = truth.row(exchange)
    if attribution.confidence in SURE and row is not None and key_of(attribution) != row:
        wrong[f"{exchange} {told.call}: {key_of(attribution)} is {truth.row(exchange)} ({attribution.evidence})"] = None


def _grade(exchange: str, told: Told, truth: Truth, score: Score) -> None:
    if told.call in ROWLESS_CALLS:
        return
    attribution = told.attribution
    kept = {
        Confidence.AMBIGUOUS: score.ambiguous,
        Confidence.LOW: score.hinted,
        Confidence.NONE: score.unknown,
    }.get(attribution.confidence, score.right)
    kept[told.call] += 1
    keys = [(row.task, row.rollout, row.agent) for row in attribution.candidates]
    if attribution.confidence is Confidence.AMBIGUOUS and len(keys) < 20 and truth.row(exchange) not in keys:
        score.missed.append(exchange)
    if truth.has_parents and told.parent == truth.parent(exchange):
        score.parents[told.call] += 1
    elif truth.has_parents and told.parent is not None:
        score.wrong_parents.append(f"{exchange} {told.call} {told.parent} is {truth.parent(exchange)}")
