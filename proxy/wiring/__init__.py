"""Wiring: how a tap gets between the servers of a Gym run."""
