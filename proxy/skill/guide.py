"""Hands out the guide: lists its files, reads one, installs all of them where coding agents look for skills.

What an installation wrote is remembered beside it, by digest, so that a newer guide replaces an older one and never a
file that somebody edited.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import orjson

from gymtap.proxy.core.errors import GymtapError, UsageError

NAME = "gymtap-debugging"
_MAIN = "SKILL.md"
_MANIFEST = ".written.json"


@dataclass(frozen=True)
class Page:
    """One file of the guide. `name` is what people type; `path` where it lies within the guide."""

    name: str
    path: str
    title: str
    text: str


def pages() -> list[Page]:
    """All pages, the main one first."""
    root = files("gymtap.proxy.skill") / "pages"
    found = [_page(path, file.read_text(encoding="utf-8")) for path, file in _walk(root, "")]
    return sorted(found, key=lambda page: (page.path != _MAIN, page.path))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".md"):
            yield f"{prefix}{entry.name}", entry


def _page(path: str, text: str) -> Page:
    name = "guide" if path == _MAIN else path.rpartition("/")[2].removesuffix(".md")
    title = next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), name)
    return Page(name, path, title, text)


def page(name: str) -> Page:
    """That page. Raises UsageError, with the names there are."""
    known = pages()
    for one in known:
        if one.name == name.removesuffix(".md"):
            return one
    raise UsageError(f"the guide has no page {name}", f"it has {', '.join(one.name for one in known)}")


@dataclass(frozen=True)
class Written:
    """What an installation did to a file: `written`, `replaced` or `unchanged`."""

    path: Path
    how: str


def install(directory: Path, *, force: bool = False) -> list[Written]:
    """Write the guide under `directory`, as `gymtap-debugging/`; nothing at all where that would lose an edit.

    Raises GymtapError for edited files, unless `force`, and for a directory that cannot be written.
    """
    folder = directory / NAME
    known = _manifest(folder)
    edited = [one.path for one in pages() if _is_edited(folder / one.path, one.text, known.get(one.path))]
    if edited and not force:
        raise GymtapError(f"{folder}: {', '.join(edited)} was edited", "--force overwrites it; nothing was written")
    try:
        done = [_write(folder / one.path, one.text) for one in pages()]
        digests = {one.path: _digest(one.text.encode()) for one in pages()}
        (folder / _MANIFEST).write_bytes(orjson.dumps(digests))
    except OSError as error:
        raise GymtapError(f"{folder}: cannot be written: {error.strerror}", "name another directory") from None
    return done


def _manifest(folder: Path) -> dict[str, str]:
    try:
        found = orjson.loads((folder / _MANIFEST).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_edited(path: Path, text: str, written: str | None) -> bool:
    """Whether there is a file that is neither ours now nor what we wrote before."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return content != text.encode() and _digest(content) != written


def _write(path: Path, text: str) -> Written:
    there = path.exists()
    if there and path.read_bytes() == text.encode():
        return Written(path, "unchanged")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return Written(path, "replaced" if there else "written")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
