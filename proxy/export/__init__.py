"""Captures in everyone else's formats: see docs/exports.md for each schema."""

from gymtap.proxy.export.select import Chosen, Wanted

__all__ = ["Chosen", "Wanted"]
