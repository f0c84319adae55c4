"""Errors that a person meets: what happened, the way out, and the exit status.

    GymtapError            1   anything the user can act on
    ├── UsageError         2   the command line or a file it names is wrong
    ├── CaptureError       3   a capture that cannot be read: not one, newer, or damaged
    └── ListenError        4   a port that cannot be bound

A subclass exists only where someone acts differently on it.
"""


class GymtapError(Exception):
    """`str(error)` is one line; `hint` is the way out, one line, or empty."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(GymtapError):
    """The command line, or a file it names, is wrong."""

    exit_code = 2


class CaptureError(GymtapError):
    """A capture cannot be read."""

    exit_code = 3


class ListenError(GymtapError):
    """A port cannot be bound."""

    exit_code = 4
