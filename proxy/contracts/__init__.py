"""Contracts over a whole capture, when it is there: what live checks say of one exchange at a time."""
