"""The command as people start it: a process of its own, with pipes, colours, widths and signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from gymtap.proxy.cli import program
from gymtap.proxy.cli.program import execute
from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import Call, Exchange

_COMMAND = [sys.executable, "-m", "gymtap"]


def _run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_COMMAND, *arguments], env=_environ(**environ), capture_output=True, text=True, timeout=50, check=False
    )


def _environ(**added: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}}
    return kept | added


def test_no_command_is_a_question_for_help() -> None:
    asked = _run()
    assert asked.returncode == 0
    assert "What happened:" in asked.stdout
    assert asked.stdout == _run("--help").stdout


def test_the_version_is_one_line() -> None:
    assert _run("--version").stdout.split() == ["gymtap", version("gymtap")]


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from gymtap.proxy.cli.program import execute; execute(['--help']);"
        "print([name for name in ('pydantic', 'rich', 'aiohttp', 'sqlite3', 'zstandard') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


def test_rows_load_no_network() -> None:
    script = (
        "import sys; from gymtap.proxy.cli.program import execute; execute(['rows']);"
        "print([name for name in ('aiohttp', 'asyncio', 'llguidance', 'mitmproxy') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["rows", "tree", "show"])
def test_eighty_columns_suffice(capture: Path, command: str) -> None:
    named = {"rows": [], "tree": ["5.0", "-c"], "show": ["a2", "-c"]}[command]
    said = _run(command, *named, str(capture), COLUMNS="80")
    assert max(len(line) for line in said.stdout.splitlines()) <= 80
    assert said.returncode == 0


def test_into_a_pipe_nothing_is_cut_and_nothing_is_coloured(capture: Path) -> None:
    said = _run("rows", str(capture))
    assert "\x1b" not in said.stdout
    assert "…" not in said.stdout
    assert all(line == line.rstrip() for line in said.stdout.splitlines())


def test_colour_is_given_when_asked_for_and_withheld_when_unwanted(capture: Path) -> None:
    assert "\x1b[" in _run("rows", str(capture), FORCE_COLOR="1").stdout
    assert "\x1b[3" not in _run("rows", str(capture), FORCE_COLOR="1", NO_COLOR="1").stdout


def test_a_locale_that_cannot_say_a_mark_gets_a_question_mark(capture: Path) -> None:
    said = _run("rows", str(capture), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert said.returncode == 0
    assert "? failed" in said.stdout


def test_a_reader_that_goes_away_is_no_error(capture: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    said = subprocess.run(
        [*_COMMAND, "show", "a6", "--full", "-c", str(capture)],
        stdout=writing, stderr=subprocess.PIPE, env=_environ(), text=True, timeout=50, check=False,
    )  # fmt: skip
    os.close(writing)
    assert said.returncode == 141
    assert "Traceback" not in said.stderr
    assert "Broken" not in said.stderr


def _tail(writer: CaptureWriter, *options: str) -> subprocess.Popen[str]:
    command = [*_COMMAND, "tail", str(writer.file.parent), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environ(), text=True)


def test_an_interrupt_ends_a_tail_quietly(live_writer: CaptureWriter) -> None:
    with _tail(live_writer, "--from-start") as tail:
        assert tail.stdout is not None
        assert "a1" in tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        _, told = tail.communicate(timeout=50)
    assert tail.returncode == 130
    assert "Traceback" not in told


def test_a_tail_tells_what_comes_and_ends_with_the_tap(
    live_writer: CaptureWriter, exchange: Callable[..., Any]
) -> None:
    with _tail(live_writer, "--from-start", "--json") as tail:
        assert tail.stdout is not None
        ids = [Exchange.model_validate_json(tail.stdout.readline()).id for _ in range(11)]
        live_writer.add(exchange(12, Call.VERIFY))
        live_writer.commit()
        ids.append(Exchange.model_validate_json(tail.stdout.readline()).id)
        live_writer.close()
        tail.communicate(timeout=50)
    assert ids == [f"a{number}" for number in range(1, 13)]
    assert tail.returncode == 0


def test_an_unexpected_error_hides_its_traceback_until_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        @staticmethod
        def register(app: Any) -> None:
            def command() -> None:
                raise RuntimeError("the moon\nis down")

            app.command("broken")(command)
            app.command("other")(lambda: None)

    monkeypatch.setattr(program, "_COMMANDS", {"Why": (Broken,)})
    assert execute(["broken"]) == 1
    quiet = capsys.readouterr().err
    assert quiet == "gymtap: RuntimeError: the moon is down\n  run again with --verbose for the traceback\n"
    assert execute(["broken", "--verbose"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_value_that_is_refused_is_told_without_the_library_s_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["rows", "--sort", "size"], ["causes", "--since", "yesterday"]):
        assert execute(arguments) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"gymtap: Invalid value for '{arguments[1]}': '{arguments[2]}' ")
        assert told.endswith(f"\n  gymtap {arguments[0]} --help\n")


def test_what_may_not_be_read_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shut:
        @staticmethod
        def register(app: Any) -> None:
            def command() -> None:
                raise PermissionError(13, "Permission denied", "/captures/a.sqlite")

            app.command("shut")(command)
            app.command("other")(lambda: None)

    monkeypatch.setattr(program, "_COMMANDS", {"Why": (Shut,)})
    assert execute(["shut"]) == 1
    assert capsys.readouterr().err == (
        "gymtap: /captures/a.sqlite: Permission denied\n  run as its owner, or on a copy\n"
    )


def test_what_run_wraps_keeps_its_own_verbose() -> None:
    taken: Callable[[list[str]], tuple[list[str], bool]] = program._without_verbose
    assert taken(["rows", "--verbose"]) == (["rows"], True)
    assert taken(["run", "--verbose", "--", "gym", "--verbose"]) == (["run", "--", "gym", "--verbose"], True)
    assert taken(["run", "gym", "--verbose"]) == (["run", "gym", "--verbose"], False)


def test_the_list_of_commands_is_whole_and_never_cut() -> None:
    """Every command stands in one section, in our order."""
    listed = _run("--help", COLUMNS="60").stdout.partition("Record:")[2]
    assert "..." not in listed
    known = typer.main.get_command(program.program())
    assert isinstance(known, TyperGroup)
    shown = [line.split()[0] for line in listed.splitlines() if re.match(r"  \S", line)]
    assert sorted(shown) == sorted(known.commands)
    assert shown[:2] == ["demo", "run"]


@pytest.mark.parametrize("given", [["-c", "{}"], ["--capture", "{}"], ["--capture={}"], ["{}"]])
def test_a_capture_may_be_named_the_same_way_everywhere(given, tmp_path) -> None:
    """With -c, also where its place would say what it is."""
    arguments = [part.format(tmp_path) for part in given]
    told = _run("rows", *arguments, "--failed")
    assert (told.returncode, told.stdout) == (3, "")
    assert f"{tmp_path}: not a capture" in told.stderr


def test_an_option_that_names_no_capture_is_not_the_newest() -> None:
    """Nor is an empty name, which a shell makes of an unset variable."""
    assert _run("rows", "--failed", "-c").returncode == 2
    assert "name is empty" in _run("tree", "2.0", "-c", "").stderr


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_stream_that_was_closed_is_no_error(stream, tmp_path) -> None:
    command = f"{sys.executable} -m gymtap captures {'>&-' if stream == 'stdout' else '2>&-'}"
    ended = subprocess.run(["bash", "-c", command], env={**os.environ, "GYMTAP_HOME": str(tmp_path)}, check=False)
    assert ended.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_output_that_cannot_be_written_is_one_line_in_the_systems_words() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "gymtap", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("gymtap: No space left on device\n")
