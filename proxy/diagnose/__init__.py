"""Diagnosis: from a failed row to its cause, its layer and the next action."""
