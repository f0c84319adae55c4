"""The seam between the recorder and the addons: one small class, and the sink that addons write to.

Addons run on the recorder's thread, never on the event loop, so they cannot delay traffic. One that
raises is skipped for that flow and counted as a gap.
"""

from dataclasses import dataclass, field
from typing import Protocol

from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Attribution, Call, Finding, Gap, Server, ServerKind


class Sink(Protocol):
    """Where addons put what they find out, beside what they set on the flow itself."""

    def attribute(self, exchange: str, attribution: Attribution, parent: str | None, attempt: int) -> None:
        """Set or revise an earlier exchange's row, its parent, and which retry of the same call it is."""

    def classify(self, exchange: str, call: Call) -> None:
        """Set or revise what an earlier exchange asked for."""

    def identify(self, server: str, kind: ServerKind) -> None:
        """Say what a server is, once its traffic shows it."""

    def finding(self, finding: Finding) -> None:
        """Keep a finding."""

    def gap(self, gap: Gap) -> None:
        """Count a gap."""

    def contract(self, server: str, document: bytes | None, problem: str = "") -> None:
        """Keep a server's OpenAPI document; None where there is none, for the reason `problem`."""


@dataclass
class Heard:
    """A sink that remembers what it was told, each kind in order: for the tests of an addon, ours and others'."""

    attributed: list[tuple[str, Attribution, str | None, int]] = field(default_factory=list)
    classified: list[tuple[str, Call]] = field(default_factory=list)
    identified: list[tuple[str, ServerKind]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    contracts: list[tuple[str, bytes | None, str]] = field(default_factory=list)

    def attribute(self, exchange: str, attribution: Attribution, parent: str | None, attempt: int) -> None:
        """Remember it."""
        self.attributed.append((exchange, attribution, parent, attempt))

    def classify(self, exchange: str, call: Call) -> None:
        """Remember it."""
        self.classified.append((exchange, call))

    def identify(self, server: str, kind: ServerKind) -> None:
        """Remember it."""
        self.identified.append((server, kind))

    def finding(self, finding: Finding) -> None:
        """Remember it."""
        self.findings.append(finding)

    def gap(self, gap: Gap) -> None:
        """Remember it."""
        self.gaps.append(gap)

    def contract(self, server: str, document: bytes | None, problem: str = "") -> None:
        """Remember it."""
        self.contracts.append((server, document, problem))


@dataclass(frozen=True)
class Setup:
    """What an addon is built with. Addons keep no globals."""

    sink: Sink


class Addon:
    """Override what you need. Within one flow the calls come in the order below; flows interleave.

    An addon is built by calling its entry point (group `gymtap.addons`) with one `Setup`.
    """

    def listening(self, server: Server) -> None:
        """A boundary was opened, or a server's kind was learned."""

    def opened(self, flow: Flow) -> None:
        """The request's head is known."""

    def requested(self, flow: Flow) -> None:
        """The request is whole: `request_body` is set, or None when it is too large."""

    def ended(self, flow: Flow) -> None:
        """The exchange is over: the response is whole, or `error` is set, or both."""

    def stopped(self) -> None:
        """The tap is stopping; nothing comes after this."""
