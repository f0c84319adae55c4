"""Replay: send a row or an exchange again, answer from a capture, compare, and pack what is needed for it."""
