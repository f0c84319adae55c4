"""A recorded row by hand: a session with a tool, two model calls and a verify."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gymtap.proxy.replay.recorded import Recorded
from gymtap.schemas import (
    Attribution,
    Body,
    Call,
    Exchange,
    Headers,
    Request,
    Response,
    RowKey,
    ServerKind,
    State,
    TransportError,
)

type Make = Callable[..., Recorded]

ROW = RowKey(task=3, rollout=0)
KINDS = {
    Call.RUN: (ServerKind.AGENT, "agent", "/run"),
    Call.SEED_SESSION: (ServerKind.RESOURCES, "weather", "/seed_session"),
    Call.VERIFY: (ServerKind.RESOURCES, "weather", "/verify"),
    Call.CLOSE_SESSION: (ServerKind.RESOURCES, "weather", "/close_session"),
    Call.TOOL: (ServerKind.RESOURCES, "weather", "/get_weather"),
    Call.RESPONSES: (ServerKind.AGENT, "agent", "/v1/responses"),
    Call.MODEL: (ServerKind.MODEL, "policy", "/v1/responses"),
    Call.PROVIDER: (ServerKind.PROVIDER, "provider", "/v1/chat/completions"),
    Call.HEALTH: (ServerKind.PROVIDER, "provider", "/v1/models"),
}


def _encoded(body: Any) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()


@pytest.fixture
def make() -> Make:
    """Make a recorded exchange: `make("a1", Call.VERIFY, {...}, {...}, at=5, lasting=1)`; times are in ms."""

    def made(
        name: str,
        call: Call,
        asked: Any = None,
        answered: Any = None,
        *,
        at: int = 0,
        lasting: int = 1,
        status: int | None = 200,
        headers: Headers = (("Content-Type", "application/json"),),
        answer_headers: Headers = (("content-type", "application/json"),),
        error: TransportError | None = None,
        method: str = "POST",
        target: str | None = None,
        server: str | None = None,
        row: RowKey | None = ROW,
        **more: Any,
    ) -> Recorded:
        kind, callee, path = KINDS[call]
        request, response = _encoded(asked), _encoded(answered)
        exchange = Exchange(
            id=name,
            server=server or callee,
            kind=kind,
            call=call,
            state=State.FAILED if error else State.DONE,
            started_ns=1_000_000_000 + at * 1_000_000,
            duration_ms=lasting,
            request=Request(
                method=method,
                target=target or path,
                headers=headers,
                body=None if request is None else Body(digest="00", size_bytes=len(request)),
            ),
            response=None
            if status is None
            else Response(
                status=status,
                reason="OK",
                headers=answer_headers,
                body=None if response is None else Body(digest="01", size_bytes=len(response)),
                first_byte_ms=0.5,
                ended_ms=None if error else lasting,
            ),
            error=error,
            attribution=Attribution(row=row),
            **more,
        )
        return Recorded(exchange, request, response)

    return made


@pytest.fixture
def row(make: Make) -> list[Recorded]:
    """A whole row: seed, a model call that asks for a tool, the tool, a second model call, a verify that fails."""
    fields = {"task": "weather", "expected": "cold", "_ng_task_index": 3, "_ng_rollout_index": 0}
    session = (("set-cookie", "Weather___weather=eyJz.old.sig; path=/; HttpOnly"),)
    cookie = (("Content-Type", "application/json"), ("Cookie", "Weather___weather=eyJz.old.sig"))
    both = (("Content-Type", "application/json"), ("Cookie", "Weather___weather=eyJz.old.sig; Policy___policy=p.q.r"))
    detail = {"detail": [{"type": "missing", "loc": ["body", "answer"], "msg": "Field required", "input": fields}]}
    messages = [{"role": "user", "content": "weather?"}]
    tool_call = {"role": "assistant", "tool_calls": [{"id": "call_1a2b3c4d5e", "function": {"name": "get_weather"}}]}
    turn = [*messages, tool_call, {"role": "tool", "tool_call_id": "call_1a2b3c4d5e", "content": "cold"}]
    model = {"model": "m", "messages": messages}
    return [
        make("a1", Call.RUN, fields, "wrapped", at=0, lasting=100, status=500),
        make("a2", Call.SEED_SESSION, fields, {}, at=1, answer_headers=session),
        make("a3", Call.RESPONSES, {"input": messages}, {"output": []}, at=10, lasting=60, headers=cookie),
        make("a4", Call.MODEL, {"input": messages}, {"output": []}, at=11, lasting=10, parent="a3"),
        make("a5", Call.PROVIDER, model, {"choices": [tool_call]}, at=12, lasting=5, parent="a4"),
        make("a6", Call.TOOL, {"city": "sf"}, {"weather": "cold"}, at=30, headers=cookie, answer_headers=session),
        make("a7", Call.MODEL, {"input": turn}, {"output": []}, at=40, lasting=10, parent="a3"),
        make("a8", Call.PROVIDER, {"model": "m", "messages": turn}, {"choices": [{}]}, at=41, lasting=5, parent="a7"),
        make(
            "a9",
            Call.VERIFY,
            {**fields, "response": {"id": "resp_0123456789"}},
            detail,
            at=80,
            status=422,
            headers=both,
        ),
    ]
