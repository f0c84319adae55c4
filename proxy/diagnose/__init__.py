"""From nested errors, or a silent zero, to the cause, its layer and what to do: `diagnose` and `findings`."""

from gymtap.proxy.diagnose.classify import diagnose, findings
from gymtap.proxy.diagnose.evidence import Material, Seen, SeenFile
from gymtap.proxy.diagnose.fingerprint import fingerprint, normalise
from gymtap.proxy.diagnose.rules import all_rules
from gymtap.proxy.diagnose.sources import from_case, from_exchanges

__all__ = [
    "Material",
    "Seen",
    "SeenFile",
    "all_rules",
    "diagnose",
    "findings",
    "fingerprint",
    "from_case",
    "from_exchanges",
    "normalise",
]
