"""The terminal UI: what a capture holds, live or finished, at the speed of keys."""
