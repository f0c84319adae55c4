"""Programs outside: the person's pager and editor, on a body in a private file that is gone when they end."""

import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.tui.byte_lines import Bytes


def pager(environ: Mapping[str, str]) -> str:
    """$PAGER, or less."""
    return environ.get("PAGER") or "less"


def editor(environ: Mapping[str, str]) -> str:
    """$VISUAL, $EDITOR, or vi."""
    return environ.get("VISUAL") or environ.get("EDITOR") or "vi"


def look(program: str, data: Bytes, suffix: str = ".txt") -> bytes:
    """Run a program on the data; what the file holds when it has ended. Raises UsageError when it cannot be run."""
    with tempfile.TemporaryDirectory(prefix="gymtap-") as directory:
        file = Path(directory) / f"body{suffix}"
        with file.open("wb") as out:
            out.write(data)
        try:
            ended = subprocess.run([*shlex.split(program), str(file)], check=False)  # noqa: S603  # the user's own
        except (OSError, ValueError) as error:
            raise UsageError(f"{program!r} cannot be started: {error}", "set PAGER or EDITOR") from error
        if ended.returncode:
            raise UsageError(f"{program!r} ended with {ended.returncode}")
        return file.read_bytes()


def suffix(data: Bytes) -> str:
    """What the file's name ends in, so that an editor colours it."""
    return ".json" if data[:64].lstrip()[:1] in {b"{", b"["} else ".txt"
