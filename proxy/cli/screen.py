"""Where output goes: results to stdout, everything else to stderr, JSON as bytes.

Into a pipe or a file, lines are as long as they are: nothing is cut to a width that nobody looks at. Set
COLUMNS to have a width there.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from gymtap.proxy.views.plain import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

_UNLIMITED_COLUMNS = 100_000
_RULE_COLUMNS = 100


def out() -> "Console":
    """The console for results."""
    return _console(sys.stdout)


def err() -> "Console":
    """The console for what is not a result and yet is drawn."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> "Console":
    from gymtap.proxy.cli.console import ResultConsole

    boundless = not stream.isatty() and "COLUMNS" not in os.environ and "FORCE_COLOR" not in os.environ
    width = _UNLIMITED_COLUMNS if boundless else None
    return ResultConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def bar(*columns: "ProgressColumn") -> "Progress":
    """A bar on stderr that goes when it is done; none where nobody watches."""
    from rich.progress import Progress

    console = err()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def rule_width(console: "Console") -> int:
    """How wide a line across may be: the terminal's width, within reason."""
    return min(console.width, _RULE_COLUMNS)


def note(text: str) -> None:
    """A line on stderr that is not a result; what it quotes cannot steer the terminal."""
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def hint(command: str, capture: str | None, about: str = "") -> None:
    """What to type next, on stderr; in the same capture, where one was named."""
    import shlex

    named = f" -c {shlex.quote(capture)}" if capture else ""
    note(f"next: gymtap {command}{named}{about}")


def write_json(value: Any) -> None:
    """One JSON document on stdout, indented."""
    import orjson

    _write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def write_json_line(value: Any) -> None:
    """One line of JSON on stdout, written at once."""
    import orjson

    _write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))


def write_bytes(chunk: bytes) -> None:
    """Bytes on stdout, exactly."""
    _write(chunk)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
