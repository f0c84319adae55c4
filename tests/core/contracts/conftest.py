"""Contracts of the real Gym 0.7 servers (thinned), and flows as a tap would have recorded them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.core.contracts.openapi import Contract
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Call, Server, ServerKind

OPENAPI = Path(__file__).parents[2] / "data" / "openapi"


@pytest.fixture
def chaos() -> Contract:
    """The resources server of the failure environment."""
    return Contract(json.loads((OPENAPI / "chaos.json").read_bytes()), "chaos")


@pytest.fixture
def agent() -> Contract:
    return Contract(json.loads((OPENAPI / "simple_agent.json").read_bytes()), "agent")


type MakeFlow = Callable[..., Flow]


@pytest.fixture
def flow() -> MakeFlow:
    def make(  # noqa: PLR0917  # a transcript reads in order
        call: Call, path: str, asked: Any = None, status: int | None = 200, answer: Any = None, server: str = "chaos"
    ) -> Flow:
        made = Flow(
            id="a1",
            server=Server(name=server, kind=ServerKind.RESOURCES, listen="", upstream=""),
            started_ns=0,
            method="POST",
            target=path,
            request_headers=(),
            request_body=asked if isinstance(asked, bytes) else json.dumps(asked).encode(),
        )
        made.call, made.status = call, status
        made.response_body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return made

    return make
