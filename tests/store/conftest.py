"""Captures made of plain values, as the recorder would make them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gymtap.proxy.core.flow import Flow
from gymtap.proxy.store import CaptureWriter
from gymtap.proxy.store.bodies import KeptBody
from gymtap.schemas import Attribution, Call, Confidence, Method, RowKey, Server, ServerKind, TransportError

AGENT = Server(name="agent", kind=ServerKind.AGENT, listen="http://127.0.0.1:1", upstream="http://127.0.0.1:2")
MODEL = Server(name="model", kind=ServerKind.MODEL, listen="http://127.0.0.1:3", upstream="http://127.0.0.1:4")


def attributed(task: int, agent: str | None = "simple") -> Attribution:
    key = RowKey(task=task, rollout=0, agent=agent)
    return Attribution(row=key, method=Method.BODY, confidence=Confidence.CERTAIN, evidence="in the body")


@dataclass
class Scribe:
    """Writes exchanges as the recorder would, one after the other."""

    writer: CaptureWriter
    number: int = 0

    def open(
        self,
        *,
        server: Server = AGENT,
        call: Call = Call.RUN,
        attribution: Attribution | None = None,
        parent: str | None = None,
        request: bytes = b'{"x": 1}',
        started_ns: int | None = None,
    ) -> Flow:
        self.number += 1
        flow = Flow(
            id=f"{self.writer.prefix}{self.number}",
            server=server,
            started_ns=self.number * 1_000_000 if started_ns is None else started_ns,
            method="POST",
            target=f"/{call}",
            request_headers=(("Host", "127.0.0.1:1"), ("X-Twice", "a"), ("x-twice", "b")),
            call=call,
            parent=parent,
            attribution=attribution or Attribution(),
        )
        self.writer.opened(flow)
        flow.request_body, flow.request_done_ms = request, 0.5
        self.writer.requested(flow, self.body(request))
        return flow

    def body(self, content: bytes) -> KeptBody:
        return KeptBody(self.writer.store(content), len(content))

    def end(
        self,
        flow: Flow,
        status: int | None = 200,
        response: bytes = b'{"reward": 1.0}',
        error: TransportError | None = None,
    ) -> Flow:
        answer = None
        if status is not None:
            flow.status, flow.reason, flow.first_byte_ms = status, "OK", 1.5
            flow.response_headers = (("content-type", "application/json"),)
            flow.response_body = response
            answer = self.body(response)
        flow.ended_ms, flow.error = 2.5, error
        self.writer.ended(flow, self.body(flow.request_body or b""), answer)
        return flow


@pytest.fixture
def scribe(tmp_path: Path, request: pytest.FixtureRequest) -> Scribe:
    return make_scribe(tmp_path / "capture", request)


@pytest.fixture
def new_scribe(request: pytest.FixtureRequest) -> Callable[[Path], Scribe]:
    return lambda directory: make_scribe(directory, request)


def make_scribe(directory: Path, request: pytest.FixtureRequest) -> Scribe:
    writer = CaptureWriter.create(directory, command=("gym", "eval", "run"))
    request.addfinalizer(writer.close)
    return Scribe(writer)
