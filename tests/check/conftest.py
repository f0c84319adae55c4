"""The engines, once per run: a child interpreter takes half a second to start."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymtap.proxy.check.engines import Engines


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """The engines of the lock file (`uv sync` installs them, without torch)."""
    with Engines(directory=Path(__file__).parent) as engines:  # a folder without engines: the lock file's are used
        missing = [name for name, version in engines.versions().items() if version is None]
        if missing:
            pytest.skip(f"{', '.join(missing)} not installed: uv sync --group engines")
        yield engines


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter that sees no installed package."""
    script = tmp_path / "bare-python"
    script.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return str(script)
