"""Captures over HTTP on loopback, for other tools: docs/serve.md."""

from gymtap.proxy.serve.server import Serving, serve

__all__ = ["Serving", "serve"]
