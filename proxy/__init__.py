"""The tap: engines, store, wiring, and the faces that show what it kept."""
