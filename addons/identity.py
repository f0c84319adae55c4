"""Identity: what each exchange asks for, which row it belongs to, and where in the row's call tree it stands.

It comes first, before redaction, because cookies and ids are the evidence; of secrets it remembers digests only.
"""

from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.attribution import Resolver
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Server


class Identity(Addon):
    """Sets call, attribution, parent and attempt of every flow, and revises those of earlier exchanges."""

    def __init__(self, setup: Setup) -> None:
        self._sink = setup.sink
        self._resolver = Resolver()

    def listening(self, server: Server) -> None:
        """Learn a server's kind."""
        self._resolver.listening(server)

    def opened(self, flow: Flow) -> None:
        """Read the head."""
        self._resolver.opened(flow)
        self._publish(flow)

    def requested(self, flow: Flow) -> None:
        """Read the body, unless the causality header has said it all."""
        self._resolver.requested(flow)
        self._publish(flow)

    def ended(self, flow: Flow) -> None:
        """Read what the answer says about this and earlier exchanges."""
        self._resolver.ended(flow)
        self._publish(flow)

    def _publish(self, current: Flow) -> None:
        for server, kind in self._resolver.guessed().items():
            self._sink.identify(server, kind)
        for verdict in self._resolver.drain():
            flow = current if verdict.exchange == current.id else verdict.flow
            if flow is not None:
                flow.call, flow.attribution = verdict.call, verdict.attribution
                flow.parent, flow.attempt = verdict.parent, verdict.attempt
            if flow is not current:
                self._sink.classify(verdict.exchange, verdict.call)
                self._sink.attribute(verdict.exchange, verdict.attribution, verdict.parent, verdict.attempt)
