"""What tests of several parts share."""

import asyncio
import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from gymtap.proxy.cli.program import execute
from gymtap.proxy.demo.play import play
from gymtap.schemas import (
    Attribution,
    Body,
    Call,
    Confidence,
    Exchange,
    Method,
    Request,
    Response,
    RowKey,
    ServerKind,
    State,
)

settings.register_profile("any machine", deadline=None)  # a busy one is no failure
settings.load_profile("any machine")

ROOT = Path(__file__).parents[1]
START_NS = 1_796_000_000_000_000_000
_KINDS = {
    Call.RUN: ServerKind.AGENT,
    Call.RESPONSES: ServerKind.AGENT,
    Call.MODEL: ServerKind.MODEL,
    Call.PROVIDER: ServerKind.PROVIDER,
}


def _attributed(task: int = 5, **said: Any) -> Attribution:
    row = RowKey(task=task, rollout=0)
    return Attribution(**{"row": row, "method": Method.BODY, "confidence": Confidence.CERTAIN} | said)


def _exchange(
    number: int,
    call: Call,
    parent: int | None = None,
    status: int | None = 200,
    at_ms: float | None = None,
    **said: Any,
) -> Exchange:
    """Exchange `a<number>`; `status` None leaves it open; it begins `at_ms` (else its number) after START_NS."""
    kind = _KINDS.get(call, ServerKind.RESOURCES)
    started_ns = START_NS + int((number if at_ms is None else at_ms) * 1e6)
    headers = (("Content-Type", "application/json"),)
    response = None
    if status is not None:
        body = Body(digest=None, size_bytes=number * 100)
        response = Response(status=status, reason="", headers=headers, body=body, first_byte_ms=1.0, ended_ms=2.0)
    values: dict[str, Any] = {
        "id": f"a{number}",
        "server": str(kind),
        "kind": kind,
        "call": call,
        "state": State.OPEN if status is None else State.DONE,
        "started_ns": started_ns,
        "request": Request(method="POST", target=f"/{call}", headers=headers, body=Body(digest=None, size_bytes=12)),
        "response": response,
        "duration_ms": None if status is None else 2.0,
        "parent": None if parent is None else f"a{parent}",
        "attribution": _attributed(),
    }
    return Exchange(**values | said)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is as wide and as colourful as into a pipe, whatever terminal the tests run in."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def attributed() -> Any:
    """`attributed(task, **fields)`: an attribution that is certain, unless it says otherwise."""
    return _attributed


@pytest.fixture(scope="session")
def exchange() -> Any:
    """`exchange(number, call, parent, status, at_ms, **fields)`: see `_exchange`."""
    return _exchange


@pytest.fixture(scope="session")
def start_ns() -> int:
    """When exchange 0 would have begun."""
    return START_NS


class Said(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def command_line(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Said]:
    """`command_line("rows", path, "--json")` in this process: its exit status and what it wrote."""

    def call(*arguments: object) -> Said:
        code = execute([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(errors="surrogateescape"), err.decode())

    return call


@pytest.fixture
def gym_python() -> Path:
    """The interpreter of Gym's environment; skips where there is none."""
    given = os.environ.get("GYMTAP_GYM_VENV")
    venv = Path(given) if given else Path.home() / ".cache" / "gymtap" / "gym" / "venv"
    if not (venv / "bin" / "gym").exists():
        pytest.skip(f"no NeMo Gym in {venv}: `make gym-env` installs it, GYMTAP_GYM_VENV points elsewhere")
    return venv / "bin" / "python"


@pytest.fixture(scope="session")
def tmux_screen() -> Any:
    """`TmuxScreen` of tools/tmux_screen.py, a program in a real terminal; skips where there is no tmux."""
    if shutil.which("tmux") is None:
        pytest.skip("no tmux: `apt install tmux` brings it")
    spec = importlib.util.spec_from_file_location("tmux_screen", ROOT / "tools" / "tmux_screen.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TmuxScreen


@pytest.fixture(scope="session")
def demo_capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished capture of the demo's twenty rows: real servers, a real tap. Read it, do not change it."""
    return asyncio.run(play(tmp_path_factory.mktemp("demo") / "capture"))
