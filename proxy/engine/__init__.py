"""The default engine: an HTTP/1.1 reverse proxy, one listener per boundary. It must be fast, and change nothing."""

from gymtap.proxy.engine.boundary import CAUSALITY_HEADER, Causality
from gymtap.proxy.engine.listener import Engine, Listener
from gymtap.proxy.engine.tls import tls_context

__all__ = ["CAUSALITY_HEADER", "Causality", "Engine", "Listener", "tls_context"]
