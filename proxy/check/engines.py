"""The grammar engines that vLLM itself compiles with, in a child interpreter of their own.

They live in a child because xgrammar needs stand-ins for torch in `sys.modules`, and because native code
that loops or crashes must not take the caller along. Which installation answers is explicit: this one,
a private directory made by `gymtap engines install`, or a vLLM environment's own interpreter.
"""

import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gymtap.proxy.core.errors import GymtapError, UsageError

_WORKER = Path(__file__).with_name("engine_worker.py")
ANSWER_TIMEOUT_S = 300.0
"""How long one question may take by the clock, should the worker's own limit on CPU time not end it before."""

MAX_REMEMBERED = 10_000
"""Answers kept; beyond it all are forgotten, so that a dataset of ever new tools does not grow the memory."""

PINS: Mapping[str, tuple[str, ...]] = {
    "0.32": (
        "xgrammar==0.2.8",
        "llguidance==1.7.6",
        "outlines-core==0.2.14",
        "apache-tvm-ffi>=0.1.11",
        "numpy",
        "typing-extensions>=4.9",
        "pydantic>=2.12",
        "pydantic-core",
        "annotated-types",
        "typing-inspection",
    )
}
"""What to install, without dependencies, to answer as a vLLM release does (from the requirements of its wheel)."""


@dataclass(frozen=True)
class Reply:
    """`missing` says why the engine gave no answer; `error` is its refusal in its own words; both None is a yes."""

    error: str | None = None
    missing: str | None = None
    extra: str | None = None


def private_directory(version: str = "0.32") -> Path:
    """Where `gymtap engines install` puts the engines of a vLLM release, for this Python version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return cache / "gymtap" / "engines" / f"vllm-{version}-{tag}"


def install(version: str = "0.32", target: Path | None = None) -> Path:
    """Install a release's engines, without torch, into a private directory, and return it.

    Raises UsageError for a release that is not known, GymtapError when no installer is found or it fails.
    """
    if version not in PINS:
        raise UsageError(f"the engines of vLLM {version} are not known", f"known: {', '.join(PINS)}")
    directory = target or private_directory(version)
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(_installer(directory, PINS[version]), capture_output=True, text=True, check=False)  # noqa: S603  # our own words
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise GymtapError(f"the engines could not be installed: {why}", f"by hand: {' '.join(done.args)}")
    return directory


def _installer(directory: Path, pins: tuple[str, ...]) -> list[str]:
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable]
    else:
        raise GymtapError("neither pip nor uv is here to install the engines with", "install uv, or pip, and try again")
    return [*command, "--no-deps", "--target", str(directory), *pins]


class Engines:
    """A worker with the engines in it, started at the first question and asked one question at a time.

    `python` is the interpreter that has them (None: this one, plus the private directory where it exists);
    answers are remembered, since shrinking a schema asks much of the same again.
    """

    def __init__(self, python: str | None = None, directory: Path | None = None) -> None:
        self._python = python
        self._directory = directory or (None if python else _existing(private_directory()))
        self._worker: subprocess.Popen[bytes] | None = None
        self._replies: dict[tuple[str, ...], Reply] = {}
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        if self._worker is None:
            return
        self._worker.kill()
        for pipe in (self._worker.stdin, self._worker.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._worker.wait()
        self._worker = None
        self._buffer = b""

    def xgrammar(self, text: str, *, kind: str = "schema", stage: str = "parse") -> Reply:
        """`kind` is `schema` or `tag`; `parse` is what vLLM's API server does, `compile` what its engine does next."""
        return self._remembered("xgrammar", text, kind, stage)

    def llguidance(self, text: str) -> Reply:
        """Validate a schema as vLLM's guidance backend does."""
        return self._remembered("llguidance", text, "schema", "parse")

    def outlines(self, text: str, *, stage: str = "parse") -> Reply:
        """`extra` is the regex that the schema becomes, after `parse`."""
        return self._remembered("outlines", text, "schema", stage)

    def versions(self) -> dict[str, str | None]:
        """The version of each engine; None where it cannot be loaded."""
        return {name: self._version(name) for name in ("xgrammar", "llguidance", "outlines")}

    def _version(self, name: str) -> str | None:
        reply = self._remembered(name, "", "schema", "version")
        return None if reply.missing else (reply.extra or "unknown")

    def _remembered(self, engine: str, text: str, kind: str, stage: str) -> Reply:
        key = (engine, text, kind, stage)
        if len(self._replies) >= MAX_REMEMBERED:
            self._replies.clear()
        if key not in self._replies:
            self._replies[key] = self._ask({"ask": engine, "text": text, "kind": kind, "stage": stage})
        return self._replies[key]

    def _ask(self, question: dict[str, str]) -> Reply:
        worker = self._worker or self._start()
        assert worker.stdin is not None
        try:
            worker.stdin.write(json.dumps(question).encode() + b"\n")
            worker.stdin.flush()
            line = self._line(worker)
        except TimeoutError:
            self.close()
            return _TOO_LONG
        except BrokenPipeError:
            status = worker.wait()
            self.close()
            return _TOO_LONG if status == -signal.SIGXCPU else Reply(error="the engine crashed on this schema")
        answer = json.loads(line)
        if answer.get("stuck"):
            self.close()
        return _reply(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if self._directory is not None:
            environment["PYTHONPATH"] = str(self._directory)
        command = [self._python or sys.executable, "-c", _RUN, str(_WORKER)]
        try:
            self._worker = subprocess.Popen(  # noqa: S603  # the interpreter that the user named
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                bufsize=0,
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror}", "name a Python interpreter") from None
        return self._worker

    def _line(self, worker: subprocess.Popen[bytes]) -> bytes:
        assert worker.stdout is not None
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([worker.stdout], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(worker.stdout.fileno(), 1 << 16)
            if not piece:
                raise BrokenPipeError
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


_TOO_LONG = Reply(missing="it took too long on this schema")
"""No refusal: vLLM itself gives its engine the time that it needs."""

_RUN = "import runpy, sys; sys.path = [p for p in sys.path if p]; runpy.run_path(sys.argv[1], run_name='__main__')"
"""Runs the worker without its folder, or the current one, on the import path."""


def _existing(directory: Path) -> Path | None:
    return directory if directory.is_dir() else None


def _reply(answer: dict[str, Any]) -> Reply:
    return Reply(
        error=answer.get("error"), missing=answer.get("missing"), extra=answer.get("regex") or answer.get("version")
    )
