"""Validate rows with a server's own pydantic class, in the server's own interpreter: JSON lines in and out.

Run as a script by a Gym environment's Python, with `package.module:Class` or a resources server's folder as its
argument; it imports nothing of gymtap. Each input line is a row; each output line lists pydantic's errors.
The first output line says what was loaded, or why nothing was.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import typing
from typing import Any

RESPONSE = {
    "id": "resp_0",
    "created_at": 0.0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
"""Stands for what the model will have answered, so that validators of the whole model run."""

INPUT_MAX_CHARS = 200


def _from_folder(folder: str) -> Any:
    """The model of `verify` in a resources server's app.py."""
    sys.path[:0] = [folder, os.path.dirname(os.path.dirname(os.path.abspath(folder)))]  # noqa: PTH120, PTH100  # no pathlib needed for this
    spec = importlib.util.spec_from_file_location("app", os.path.join(folder, "app.py"))  # noqa: PTH118  # as above
    if spec is None or spec.loader is None:
        raise ImportError("app.py cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["app"] = module
    spec.loader.exec_module(module)
    servers = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == "app" and callable(getattr(value, "verify", None))
    ]
    if not servers:
        raise ImportError("app.py defines no class with a verify method")
    return _verify_model(servers[-1])


def _verify_model(server: Any) -> Any:
    hints = typing.get_type_hints(server.verify)
    for name, hint in hints.items():
        if name != "return" and hasattr(hint, "model_validate"):
            return hint
    raise ImportError(f"{server.__name__}.verify takes no pydantic model")


def _from_name(name: str) -> Any:
    module, _, attribute = name.partition(":")
    found = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    if not hasattr(found, "model_validate"):
        found = _verify_model(found)
    return found


def _errors(model: Any, row: Any, validation_error: Any) -> list[dict[str, Any]]:
    given = {**row, "response": RESPONSE} if isinstance(row, dict) and "response" not in row else row
    try:
        model.model_validate(given)
    except validation_error as refusal:
        return [_plain(error) for error in refusal.errors(include_url=False) if error["loc"][:1] != ("response",)]
    except Exception as error:  # noqa: BLE001  # a validator of the model may raise anything; the server would answer 500
        return [{"loc": [], "type": type(error).__name__, "msg": str(error)[:INPUT_MAX_CHARS]}]
    return []


def _plain(error: dict[str, Any]) -> dict[str, Any]:
    return {"loc": list(error["loc"]), "type": error["type"], "msg": error["msg"][:INPUT_MAX_CHARS]}


def main() -> None:
    """Load the model, then answer one line per line until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what the server's modules print must not look like an answer
    target = sys.argv[1]
    try:
        model = _from_folder(target) if os.path.isdir(target) else _from_name(target)  # noqa: PTH112  # as above
        from pydantic import ValidationError  # noqa: PLC0415  # the environment's own
    except BaseException as error:  # noqa: BLE001  # importing a server's module may raise or exit; say which
        answers.write(json.dumps({"failed": f"{type(error).__name__}: {error}"}) + "\n")
        return
    answers.write(json.dumps({"loaded": f"{model.__module__}.{model.__qualname__}"}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(_errors(model, json.loads(line), ValidationError)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
