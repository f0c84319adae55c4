"""The wheel is made from the top-level folders; the links in src/ are for editable installs only."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("proxy", "addons", "schemas")


def sources() -> set[str]:
    """Every file that git tracks or would track in the three folders, under its name in the package."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return {f"gymtap/{name}" for name in listed if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_exactly_the_tree(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert packed == sources() | {"gymtap/__init__.py", "gymtap/__main__.py", "gymtap/py.typed"}


def test_links_point_at_the_folders() -> None:
    for folder in FOLDERS:
        link = ROOT / "src" / "gymtap" / folder

        assert link.is_symlink()
        assert link.resolve() == ROOT / folder
        assert not link.readlink().is_absolute()


def test_every_dependency_has_its_reason_beside_it() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    requirements = [line for line in lines if line.startswith('  "') and any(mark in line for mark in (">=", "=="))]

    assert len(requirements) > 10
    assert [line for line in requirements if "  # " not in line] == []
