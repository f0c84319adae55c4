"""The grammar check of one schema: vLLM's verdict, and where it is a refusal, the place and the way out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.locate import Fault, faults
from gymtap.proxy.check.verdict import Verdict, judge
from gymtap.proxy.check.vllm_rules import Backend, Route


@dataclass(frozen=True)
class GrammarCheck:
    """`faults` is empty unless the verdict is a refusal; the edits of all of them together make it compile."""

    name: str
    route: Route
    backend: Backend
    verdict: Verdict
    faults: tuple[Fault, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The documented JSON; `changes` is what makes it compile, in order."""
        first = self.faults[0] if self.faults else None
        verdict = "unknown" if self.verdict.ok is None else "ok" if self.verdict.ok else "reject"
        return {
            "name": self.name,
            "path": str(self.route),
            "backend": str(self.backend),
            "verdict": verdict,
            "status": self.verdict.status,
            "keyword": first.keyword if first else None,
            "pointer": first.pointer if first else None,
            "reason": (first.reason if first else self.verdict.reason) or None,
            "shown": self.verdict.shown or None,
            "judge": self.verdict.judge,
            "smallest": first.smallest if first else None,
            "changes": [str(fault.edit) for fault in self.faults if fault.edit],
        }


def check_grammar(
    engines: Engines, name: str, parameters: Any, routes: Iterable[Route] = Route, backend: Backend = Backend.AUTO
) -> tuple[GrammarCheck, ...]:
    """One answer per route for a tool of this name with these parameters, alone in its request."""
    return tuple(_one(engines, name, parameters, route, backend) for route in routes)


def _one(engines: Engines, name: str, parameters: Any, route: Route, backend: Backend) -> GrammarCheck:
    def refuses(schema: Any) -> str | None:
        verdict = judge(engines, [(name, schema)], route, backend)
        return verdict.reason if verdict.refused else None

    verdict = judge(engines, [(name, parameters)], route, backend)
    found = faults(parameters, refuses) if verdict.refused else ()
    return GrammarCheck(name, route, backend, verdict, found)
