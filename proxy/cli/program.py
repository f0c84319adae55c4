"""Assembles the command line from its commands, runs it, and turns every ending into an exit status.

Commands register themselves and import what they need when they run, so that `gymtap --help` is quick.
An error is one line and the way out; the traceback is kept for `--verbose`.
"""

import contextlib
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TextIO

import typer
from typer import exceptions
from typer.core import TyperArgument, TyperCommand, TyperGroup

from gymtap.proxy.cli import (
    addon_path,
    bundle,
    captures,
    causes,
    check,
    demo,
    diff,
    doctor,
    engines,
    env,
    export,
    import_,
    inflight,
    note,
    playback,
    preflight,
    redirect,
    replay,
    rows,
    run,
    screen,
    serve,
    show,
    skill,
    tail,
    tree,
    tui,
    up,
    why,
)
from gymtap.proxy.core.errors import GymtapError

_COMMANDS = {
    "Record": (demo, run, up, env, redirect, addon_path),
    "What happened": (captures, tui, rows, tree, show, note, inflight, tail),
    "Why": (why, causes, doctor, skill),
    "What does not fit": (check, preflight, engines),
    "Again": (replay, playback, diff, bundle),
    "Elsewhere": (import_, export, serve),
}
"""Every command, under what it is for, as in the README."""
_INTERRUPTED = 130
_BROKEN_PIPE = 141
_VERBOSE = "--verbose"
_WHOLE = 1_000
"""Longer than any summary of a command."""


def program() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="gymtap",
        cls=_Program,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(help="See what crosses every boundary of a NeMo Gym run, row by row.")(_globals)
    for section, commands in _COMMANDS.items():
        known = len(app.registered_commands), len(app.registered_groups)
        for command in commands:
            command.register(app)
        for one in app.registered_commands[known[0] :]:
            one.rich_help_panel = section
        for group in app.registered_groups[known[1] :]:
            group.rich_help_panel = section
    for one in app.registered_commands:
        one.cls = _Command
        one.short_help = _first_paragraph(one.callback)
    return app


class _Program(TyperGroup):
    """The list of commands by what they are for, in our order."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's method
        """Write the list, each command's first paragraph whole."""
        for section in _COMMANDS:
            commands = [one for one in self.commands.values() if getattr(one, "rich_help_panel", "") == section]
            with formatter.section(section):
                formatter.write_dl([(one.name or "", one.get_short_help_str(_WHOLE)) for one in commands])


class _Command(TyperCommand):
    """A capture that a command takes by its place may also be given with `-c`, as others take it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put it in its place."""
        placed = any(isinstance(param, TyperArgument) and param.name == "capture" for param in self.params)
        if placed and args[-1:] in (["-c"], ["--capture"]):
            ctx.fail(f"{args[-1]} needs a capture.")
        return super().parse_args(ctx, [part for arg in args for part in _in_place(arg)] if placed else args)


def _in_place(argument: str) -> list[str]:
    if argument in {"-c", "--capture"}:
        return []
    return [argument.removeprefix("--capture=")]


def _first_paragraph(command: Callable[..., object] | None) -> str:
    """What the list of commands says of one: whole, where it would be cut to a line otherwise."""
    return " ".join((command.__doc__ or "").partition("\n\n")[0].split()) if command else ""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"gymtap {version('gymtap')}")
        raise typer.Exit


def _globals(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    _verbose: Annotated[bool, typer.Option(_VERBOSE, help="Show a traceback where there is one.")] = False,
) -> None:
    """Both options are done with by now: the version is shown, and `--verbose` is off the command line."""


def execute(arguments: Sequence[str]) -> int:
    """Run one command line (without the program's name); the exit status."""
    own, verbose = _without_verbose(list(arguments))
    _open_closed()
    _forgive_encodings()
    try:
        command = typer.main.get_command(program())
        with command.make_context("gymtap", own or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except exceptions.Exit as ending:
        return ending.exit_code
    except BrokenPipeError:
        _silence(sys.stdout)
        return _BROKEN_PIPE
    except (KeyboardInterrupt, exceptions.Abort):
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: everything else was named above
        return _told(error, verbose)
    return 0


def _without_verbose(arguments: list[str]) -> tuple[list[str], bool]:
    """Take `--verbose` off wherever it stands before `--`; what `gymtap run` wraps keeps its own."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own, rest = arguments[:end], arguments[end:]
    if not rest and "run" in own and set(own[: own.index("run")]) <= {_VERBOSE}:
        end = own.index("run")
        own, rest = own[:end], own[end:]
    return [argument for argument in own if argument != _VERBOSE] + rest, _VERBOSE in own


def _open_closed() -> None:
    """A stream that was closed for us (`>&-`) is None: what is written there goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for the process's life


def _forgive_encodings() -> None:
    """Where the locale cannot say a character, write `?` instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a replaced stream, in a test or a notebook
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # only TextIOWrapper has it


def _silence(stream: TextIO) -> None:
    """Nobody reads any more: keep the interpreter from complaining when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _told(error: Exception, verbose: bool) -> int:
    if verbose and not isinstance(error, exceptions.TyperException):
        traceback.print_exception(error)
    if isinstance(error, GymtapError):
        _say(str(error), error.hint)
        return error.exit_code
    if isinstance(error, exceptions.TyperException):
        context = getattr(error, "ctx", None)
        said = error.format_message().replace("Value error, ", "")  # pydantic's word before the reason
        _say(said, f"{context.command_path} --help" if context else "gymtap --help")
        return error.exit_code
    _say(_in_a_line(error), "" if verbose else _way_out(error))
    return 1


def _way_out(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "run as its owner, or on a copy"
    return "run again with --verbose for the traceback"


def _in_a_line(error: Exception) -> str:
    """The system's own words where it refused; a name of ours for anything else."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())


def _say(message: str, hint: str) -> None:
    screen.note(f"gymtap: {message}")
    if hint:
        screen.note(textwrap.indent(hint, "  "))
