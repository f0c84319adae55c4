"""The environment variables that put the hooks into a Gym run.

`PYTHONPATH` carries the folder of the `sitecustomize`; Gym keeps what it finds there for the servers that it
starts, and Ray for its workers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SHIM = Path(__file__).parent / "shim"


@dataclass(frozen=True)
class Parts:
    """Which parts of the wiring are on."""

    takeover: bool = True
    causality: bool = True
    egress: bool = True


def wiring_variables(control_url: str, token: str, parts: Parts, base: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to `base`, whose PYTHONPATH is kept behind ours."""
    given = base.get("PYTHONPATH", "")
    behind = [entry for entry in given.split(":") if entry != str(SHIM)] if given else []
    variables = {
        "PYTHONPATH": ":".join([str(SHIM), *behind]),
        "GYMTAP_CONTROL": control_url,
        "GYMTAP_TOKEN": token,
    }
    off = {
        "GYMTAP_NO_TAKEOVER": parts.takeover,
        "GYMTAP_NO_CAUSALITY": parts.causality,
        "GYMTAP_NO_EGRESS": parts.egress,
    }
    return variables | {name: "" if on else "1" for name, on in off.items()}
