"""What tests of several parts share."""

import asyncio
from pathlib import Path

import pytest

from gymtap.proxy.demo.play import play


@pytest.fixture(scope="session")
def demo_capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished capture of the demo's twenty rows: real servers, a real tap. Read it, do not change it."""
    return asyncio.run(play(tmp_path_factory.mktemp("demo") / "capture"))
