"""Takes secrets out of a flow. What is recorded is what this leaves, so it runs before all but identity."""

from http import HTTPStatus

from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.flow import Flow
from gymtap.proxy.core.redaction import Redactor

_PHRASES = frozenset(status.phrase for status in HTTPStatus)


class Redact(Addon):
    """Replaces headers, target, bodies and the error's message; counts replacements in bodies on the flow.

    Give it the writer's redactor, so that both agree on cookies.
    """

    def __init__(self, setup: Setup, redactor: Redactor | None = None) -> None:
        del setup  # it finds nothing out
        self._redactor = redactor or Redactor()

    def opened(self, flow: Flow) -> None:
        """The request's headers and target."""
        flow.request_headers = self._redactor.headers(flow.request_headers)[0]
        flow.target = self._redactor.target(flow.target)[0]

    def requested(self, flow: Flow) -> None:
        """The request's body."""
        if not flow.request_body:
            return
        body, replaced = self._redactor.body(flow.request_body)
        if replaced:
            flow.clean_request(body, replaced)

    def ended(self, flow: Flow) -> None:
        """The response; of an exchange that ended early, what there is of the request's body."""
        if flow.request_done_ms is None:
            self.requested(flow)
        flow.response_headers = self._redactor.headers(flow.response_headers)[0]
        if flow.reason not in _PHRASES:
            flow.reason = self._redactor.text(flow.reason)[0]
        if flow.error is not None:
            message = self._redactor.text(flow.error.message)[0]
            flow.error = flow.error.model_copy(update={"message": message})
        if not flow.response_body:
            return
        body, replaced = self._redactor.body(flow.response_body)
        if replaced:
            flow.clean_response(body, replaced)
