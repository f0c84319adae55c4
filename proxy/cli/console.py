"""The console that results are drawn on: rich's, but for one habit."""

from typing import NoReturn

from rich.console import Console


class ResultConsole(Console):
    """A reader that goes away is an ordinary BrokenPipeError, for the program to end quietly on."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise what rich caught; it would end the process with status 1."""
        raise BrokenPipeError
