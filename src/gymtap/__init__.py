"""gymtap: a request-boundary debugging proxy for NeMo Gym."""

__version__ = "0.1.0"
