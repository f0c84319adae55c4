"""Where a tap leaves its control address and token for `gymtap env`: `control.json` in its capture, mode 0600."""

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from gymtap.proxy.core.errors import UsageError
from gymtap.schemas._model import Model

_NAME = "control.json"


class ControlAddress(Model):
    """How processes reach a tap's control server."""

    url: str
    token: str
    pid: int


def check_none_stands(capture: Path) -> None:
    """Raises UsageError where another tap takes over into the capture: `gymtap env` could name one of them only."""
    try:
        held = read_control(capture)
    except UsageError:
        return
    if _answers(held.url):
        way_out = "use that one (gymtap env), stop it, or give this one a capture of its own"
        raise UsageError(f"a tap already takes over into {capture}: pid {held.pid}", way_out)


def write_control(capture: Path, address: ControlAddress) -> None:
    """Write it so that nobody else can read it at any moment."""
    handle = os.open(capture / _NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(address.model_dump_json())


def _answers(url: str) -> bool:
    at = urlsplit(url)
    try:
        socket.create_connection((at.hostname or "", at.port or 0), timeout=1.0).close()
    except OSError:
        return False
    return True


def remove_control(capture: Path) -> None:
    """Take it away: the tap has ended."""
    (capture / _NAME).unlink(missing_ok=True)


def read_control(capture: Path) -> ControlAddress:
    """Read it back. Raises UsageError when no tap stands there."""
    try:
        return ControlAddress.model_validate_json((capture / _NAME).read_bytes())
    except FileNotFoundError:
        hint = "start one with: gymtap up --takeover"
        raise UsageError(f"no standing tap records into {capture}", hint) from None
    except (OSError, ValidationError) as error:
        raise UsageError(f"cannot read {capture / _NAME}: {type(error).__name__}", "start the tap again") from None
