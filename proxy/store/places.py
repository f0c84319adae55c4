"""Where captures are: the root directory that holds them by default, and finding one by path or name."""

import os
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.store.format import SUFFIX
from gymtap.proxy.store.reader import Capture
from gymtap.schemas import CaptureInfo

_WAY_OUT = "begin one with `gymtap run -- <gym command>`, or see one with `gymtap demo`"


def captures_root(environ: Mapping[str, str] = os.environ) -> Path:
    """GYMTAP_HOME, else `gymtap/captures` in the XDG data directory (XDG Base Directory Specification 0.8).

    Raises CaptureError where there is no home directory.
    """
    home = environ.get("GYMTAP_HOME")
    if home:
        return Path(home)
    data = environ.get("XDG_DATA_HOME")
    try:
        return (Path(data) if data else Path.home() / ".local" / "share") / "gymtap" / "captures"
    except RuntimeError:  # a user without HOME whom the system does not know, as in some containers
        raise CaptureError("no home directory to keep captures in", "set GYMTAP_HOME to a directory") from None


def fresh(root: Path, now_ns: int) -> Path:
    """A name for a new capture: its UTC second and a few random characters. Nothing is made."""
    moment = datetime.fromtimestamp(now_ns / 1e9, tz=UTC)
    return root / f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def is_capture(path: Path) -> bool:
    """Whether the directory holds a writer's file."""
    return path.is_dir() and any(path.glob(f"*{SUFFIX}"))


def captures(root: Path) -> Iterator[CaptureInfo]:
    """What each capture under `root` says of itself, newest first; those that cannot be read are passed over."""
    for path in _by_age(root):
        try:
            with Capture(path) as capture:
                info = capture.info()
        except CaptureError:
            continue
        yield info


def newest(root: Path) -> Path:
    """The capture that was begun last. Raises CaptureError when there is none."""
    for path in _by_age(root):
        return path
    raise CaptureError(f"no captures in {root}", _WAY_OUT)


def resolve(capture: str | Path | None, root: Path | None = None) -> Path:
    """A path, a name (or its unique start) under `root`, or None for the newest.

    Raises CaptureError when there is none, or more than one.
    """
    root = captures_root() if root is None else root
    if capture is None:
        return newest(root)
    path = Path(capture)
    if path.exists():
        return path
    found = sorted(entry for entry in _by_age(root) if entry.name.startswith(str(capture)))
    exact = [entry for entry in found if entry.name == str(capture)]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        raise CaptureError(f"{capture}: {len(found)} captures begin so: {', '.join(entry.name for entry in found[:5])}")
    raise CaptureError(f"{capture}: no such capture", "`gymtap captures` lists them")


def _begun(path: Path) -> tuple[int, str]:
    """When a capture was begun, by its first writer's file, cheaply: for order only."""
    times = [Capture.created_ns(file) for file in path.glob(f"*{SUFFIX}")]
    return min((time for time in times if time is not None), default=0), path.name


def _by_age(root: Path) -> list[Path]:
    try:
        entries = [entry for entry in root.iterdir() if is_capture(entry)]
    except OSError:
        return []
    return sorted(entries, key=_begun, reverse=True)
