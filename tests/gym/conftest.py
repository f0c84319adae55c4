"""The real NeMo Gym, where it is installed (`make gym-env`, or GYMTAP_GYM_VENV)."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def gym_python() -> Path:
    """The interpreter of Gym's environment; skips where there is none."""
    given = os.environ.get("GYMTAP_GYM_VENV")
    venv = Path(given) if given else Path.home() / ".cache" / "gymtap" / "gym" / "venv"
    if not (venv / "bin" / "gym").exists():
        pytest.skip(f"no NeMo Gym in {venv}: `make gym-env` installs it, GYMTAP_GYM_VENV points elsewhere")
    return venv / "bin" / "python"
