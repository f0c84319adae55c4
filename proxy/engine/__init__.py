"""Engines: what carries the traffic and tells the tape about it."""
