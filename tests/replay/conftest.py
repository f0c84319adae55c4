"""A recorded row by hand, and the miniature Gym: recorded through a real tap, then running on without one."""

import asyncio
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.demo.dataset import rows
from gymtap.proxy.demo.miniature import KINDS as SERVERS
from gymtap.proxy.demo.miniature import Miniature, miniature
from gymtap.proxy.engine import CAUSALITY_HEADER, Causality
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.schemas import (
    Attribution,
    Body,
    Call,
    Exchange,
    Headers,
    Request,
    Response,
    RowKey,
    Server,
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


@dataclass
class Running:
    """The miniature, running in a thread of its own. `stub_port` is free: a stub may stand there."""

    miniature: Miniature
    capture: Path
    stub_port: int
    loop: asyncio.AbstractEventLoop

    def call[T](self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something in the miniature's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(50)

    @property
    def stub(self) -> str:
        return f"127.0.0.1:{self.stub_port}"

    def with_provider(self, there: bool) -> None:
        """Let the model server call the real provider, or the place where a stub may stand."""
        url = self.miniature.private["provider"] if there else f"http://{self.stub}"
        self.miniature.egress.addresses["provider"] = url


async def _stand_before(tap: Tap, gym: Miniature) -> None:
    """Put a tap in front of every server of the miniature."""
    for name, kind in SERVERS.items():
        causality = Causality.STRIP if kind is ServerKind.PROVIDER else Causality.INJECT
        server = Server(name=name, kind=kind, listen="http://127.0.0.1:0", upstream=gym.private[name])
        gym.egress.addresses[name] = (await tap.listen(server, causality=causality)).server.listen


@pytest.fixture(scope="session")
def stand_before() -> Any:
    """`await stand_before(tap, miniature)`."""
    return _stand_before


async def _record(gym: Miniature, capture: Path) -> None:
    async with Tap(TapSettings(capture=capture)) as tap:
        await _stand_before(tap, gym)
        await gym.collector.get("provider", "/v1/models")
        await gym.collect(rows(), 4)
    gym.egress.addresses.update(gym.private)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The miniature after its twenty rows were recorded; the tap is gone, the servers are still there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stack = AsyncExitStack()

    async def start() -> Running:
        gym = await stack.enter_async_context(miniature(CAUSALITY_HEADER))
        capture = tmp_path_factory.mktemp("replay") / "capture"
        await _record(gym, capture)
        return Running(gym, capture, _free_port(), loop)

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(50)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(50)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def checksums(directory: Path) -> dict[str, str]:
    """Every file of a directory."""
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def gym(running: Running) -> Iterator[Running]:
    """The running miniature with its provider; afterwards its capture is what it was."""
    running.with_provider(there=True)
    before = checksums(running.capture)
    yield running
    assert checksums(running.capture) == before


@pytest.fixture
def gymtap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: Callable[..., Any]) -> Callable[..., Any]:
    """`gymtap("replay", "3.0", …)` in this process, with an empty home; nobody is there to answer questions."""
    monkeypatch.setenv("GYMTAP_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return command_line
