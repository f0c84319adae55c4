"""httpx, which some of Gym's agents and every OpenAI client use, is carried as aiohttp is."""

import os
import sys
from pathlib import Path

import pytest

from gymtap.proxy.store import Capture
from gymtap.schemas import Call, Method, ServerKind

_GYMTAP = (sys.executable, "-m", "gymtap")


@pytest.fixture
def gym_python() -> str:
    """An interpreter that has httpx: that of Gym's environment."""
    given = os.environ.get("GYMTAP_GYM_VENV")
    python = (Path(given) if given else Path.home() / ".cache" / "gymtap" / "gym" / "venv") / "bin" / "python"
    if not python.exists():
        pytest.skip("no NeMo Gym: `make gym-env` installs it, GYMTAP_GYM_VENV points elsewhere")
    return str(python)


@pytest.mark.gym
@pytest.mark.parametrize("client", ["sync", "async"])
async def test_calls_are_detoured_and_know_their_parent(  # noqa: PLR0917 - fixtures
    spawn, miniature, provider, tmp_path, gym_python, client
) -> None:
    """The application sees the provider's URL; the provider sees neither tap nor header."""
    for name in ("agent", "policy"):
        miniature.entry(name)["options"] = {"httpx": client}
    capture = tmp_path / "capture"
    command = (*_GYMTAP, "run", "-c", str(capture), "--", gym_python, *miniature.main(1)[1:])
    ended = await (await spawn(*command, variables=miniature.variables)).end()
    assert ended.status == 0, ended.err
    exchanges = [item for item in Capture(capture).exchanges() if item.call is not Call.HEALTH]
    (outside,) = [item for item in exchanges if item.kind is ServerKind.PROVIDER]
    assert {item.attribution.method for item in exchanges if item.request.target != "/run"} == {Method.CAUSALITY}
    assert outside.request.target == "/v1/chat/completions"
    assert provider.seen[0]["host"] == provider.url.removeprefix("http://")
    assert "x-gymtap-parent" not in provider.seen[0]
    call = ended.rows[0]["calls"][1]["answer"]["calls"][0]["answer"]["calls"][0]
    assert (call["status"], call["url"]) == (200, f"{provider.url}/v1/chat/completions")
