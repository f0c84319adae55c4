"""gymtap: a request-boundary debugging proxy for NeMo Gym."""
