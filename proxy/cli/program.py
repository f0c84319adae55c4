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
from typing import Annotated, TextIO

import typer
from typer import exceptions

from gymtap.proxy.cli import (
    addon_path,
    bundle,
    captures,
    causes,
    check,
    demo,
    diff,
    doctor,
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

_COMMANDS = (
    *(
        demo,
        run,
        up,
        env,
        captures,
        tui,
        rows,
        why,
        causes,
        doctor,
        inflight,
        skill,
        tree,
        show,
        tail,
        check,
        replay,
        playback,
        diff,
        note,
        bundle,
    ),
    preflight,
    *(import_, export, serve, addon_path, redirect),
)
_INTERRUPTED = 130
_BROKEN_PIPE = 141
_VERBOSE = "--verbose"


def program() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="gymtap",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(help="See what crosses every boundary of a NeMo Gym run, row by row.")(_globals)
    for command in _COMMANDS:
        command.register(app)
    for info in app.registered_commands:
        info.short_help = _first_paragraph(info.callback)
    return app


def _first_paragraph(command: Callable[..., object] | None) -> str:
    """What the list of commands says of one: whole, where it would be cut to a line otherwise."""
    return " ".join((command.__doc__ or "").partition("\n\n")[0].split()) if command else ""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and only needed here

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
    if own[:1] == ["run"] and not rest:
        return arguments, False
    return [argument for argument in own if argument != _VERBOSE] + rest, _VERBOSE in own


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
        _say(error.format_message(), f"{context.command_path} --help" if context else "gymtap --help")
        return error.exit_code
    text = " ".join(f"{type(error).__name__}: {error}".split())
    _say(text, "" if verbose else "run again with --verbose for the traceback")
    return 1


def _say(message: str, hint: str) -> None:
    screen.note(f"gymtap: {message}")
    if hint:
        screen.note(textwrap.indent(hint, "  "))
