"""Causality inwards: what a request's header says its exchange is, kept for whatever that request causes.

The header is the tap's own, so the application does not see it.
"""

import contextvars

HEADER = "x-gymtap-parent"
PARENT = contextvars.ContextVar("gymtap_parent", default=None)
_RAW = HEADER.encode()


def install(module):
    """Wrap `Starlette.__call__`, through which every request of a FastAPI application passes."""
    original = module.Starlette.__call__

    async def call(self, scope, receive, send):
        if scope["type"] == "http":
            scope = _received(scope)
        await original(self, scope, receive, send)

    module.Starlette.__call__ = call


def _received(scope):
    """The scope without our header; a mounted application is called again, with the header gone already."""
    parent = next((value for name, value in scope["headers"] if name == _RAW), None)
    if parent is None:
        return scope
    PARENT.set(parent.decode("latin-1"))
    return dict(scope, headers=[pair for pair in scope["headers"] if pair[0] != _RAW])
