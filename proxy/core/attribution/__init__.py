"""Which row an exchange belongs to: one small pure module per method, and the resolver that combines them."""

from gymtap.proxy.core.attribution.resolver import Resolver

__all__ = ["Resolver"]
