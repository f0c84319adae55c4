"""Reads tracebacks of what Gym does before anything is sent: it reads its options and the rows, and stops.

No exchange can show such a failure. Whose it is follows from where it was raised and from its type: Gym words its own
complaints about options, while a row that is not as Gym expects makes Python itself raise.
"""

import re

from gymtap.proxy.diagnose.failures import Failure
from gymtap.schemas import Layer

_MODULES = (
    r"rollout_collection|train_data_utils|task_data|task_materialization|prompt|dataset_orchestrator|dataset_metrics|"
    r"global_config|config_types|_config_aliases|benchmarks|\w*registry"
)
_FRAME = re.compile(r"File \"[^\"\n]*nemo_gym/(?:[\w/]+/)?(?P<module>\w+)\.py\", line \d+")
_RAISED = re.compile(r"^(?:[\w.]+\.)?(?P<name>[A-Z]\w*)(?:: (?P<message>[\s\S]*))?\Z", re.MULTILINE)
_STUMBLED = frozenset(
    {
        "KeyError",
        "TypeError",
        "AttributeError",
        "IndexError",
        "JSONDecodeError",
        "UnicodeDecodeError",
        "ValidationError",
    }
)
_WORDED = re.compile(r"^(?:ValueError|Config\w*Error|\w*ServerError|\w*NotFoundError|TaskDataSchemaError)$")
_OF_ROWS = re.compile(
    r"malformed|offending|\b(?:examples?|samples?|records?)\b|\bat line \d|\bline \d+ column|\bfields?\b|task_input|"
    r"dataset row|violating rows|must be an object",
    re.IGNORECASE,
)
_MISSING = re.compile(r"^'(\w+)'$")


def before_sending(failure: Failure) -> tuple[Layer, str] | None:
    """The layer of a failure before the first request, and what it says in one line; None for any other failure."""
    if failure.source != "log" or not failure.said.startswith("Traceback"):
        return None
    frames = _FRAME.findall(failure.said)
    raised = _last_raised(failure.said)
    if not frames or raised is None or not re.fullmatch(_MODULES, frames[-1]):
        return None
    name, message = raised
    missing = _MISSING.match(message)
    told = f"a row has no `{missing[1]}`" if missing and name == "KeyError" else f"{name}: {message}"
    if name in _STUMBLED or (_WORDED.match(name) and _OF_ROWS.search(message)):
        return Layer.DATA_SCHEMA, told
    return (Layer.CONFIG, told) if _WORDED.match(name) else None


def _last_raised(traceback: str) -> tuple[str, str] | None:
    """The type and the message of what a traceback ends with."""
    last = max((m.start() for m in re.finditer(r"^[A-Za-z_][\w.]*(?::|$)", traceback, re.MULTILINE)), default=None)
    match = _RAISED.match(traceback[last:]) if last is not None else None
    return (match["name"], " ".join((match["message"] or "").split())) if match else None
