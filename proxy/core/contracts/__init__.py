"""Contracts: what a server's own models say about a body, as pure functions from values to findings."""
