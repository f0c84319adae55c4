"""A miniature of Gym's servers and a stub provider, to see the tap at work without Gym."""
