"""`gymtap demo` ends with what can be typed next, wherever gymtap is."""

from pathlib import Path

import pytest

from gymtap.proxy.cli.demo import called


def test_a_program_that_no_shell_finds_is_called_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `make demo`, which leaves it in `.venv/bin`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert called(".venv/bin/gymtap") == ".venv/bin/gymtap"
    assert called("/usr/lib/gymtap/__main__.py") == "gymtap"
    (tmp_path / "gymtap").touch()
    (tmp_path / "gymtap").chmod(0o755)
    assert called(".venv/bin/gymtap") == "gymtap"
