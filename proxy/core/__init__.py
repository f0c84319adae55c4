"""Pure functions and small state machines: bytes and values in, records out. No clock, no socket."""
