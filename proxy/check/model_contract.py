"""A row against the pydantic class itself, loaded by an interpreter that has Gym; ours never imports it."""

import json
import subprocess
from pathlib import Path
from typing import Any

from gymtap.proxy.core.contracts.pydantic_errors import findings_of
from gymtap.proxy.core.errors import UsageError
from gymtap.schemas import Finding

_WORKER = Path(__file__).with_name("model_worker.py")
_RUN = "import runpy, sys; sys.path = [p for p in sys.path if p]; runpy.run_path(sys.argv.pop(1), run_name='__main__')"


class ModelContract:
    """`target` is `package.module:Class` (a model, or a server whose `verify` names it) or a server's folder.

    Raises UsageError, with the interpreter's own words, when it cannot be loaded or dies.
    """

    def __init__(self, target: str, python: str) -> None:
        self._target = target
        folder = Path(target).is_dir()
        try:
            self._worker = subprocess.Popen(  # noqa: S603  # the interpreter that the user named
                [python, "-c", _RUN, str(_WORKER), str(Path(target).resolve()) if folder else target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            raise UsageError(f"{python} cannot be started: {error.strerror}", "--python takes an interpreter") from None
        first = self._line()
        if "failed" in first:
            self.close()
            hint = f"does {python} have everything that {target} imports?"
            raise UsageError(f"{target} cannot be loaded: {first['failed']}", hint)
        self.name = str(first["loaded"])

    def check(self, row: Any) -> list[Finding]:
        """What pydantic finds in this row, as if the model had answered."""
        assert self._worker.stdin is not None
        try:
            self._worker.stdin.write(json.dumps(row) + "\n")
            self._worker.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        return findings_of(self._line(), row, "rows.verify_model", self.name)

    def close(self) -> None:
        """End the interpreter."""
        self._worker.kill()
        for pipe in (self._worker.stdin, self._worker.stdout):
            if pipe is not None:
                pipe.close()
        self._worker.wait()

    def _line(self) -> Any:
        assert self._worker.stdout is not None
        line = self._worker.stdout.readline()
        if not line:
            raise self._died()
        return json.loads(line)

    def _died(self) -> UsageError:
        status = self._worker.wait()
        return UsageError(f"the interpreter that holds {self._target} ended with status {status}", "run it by hand")
