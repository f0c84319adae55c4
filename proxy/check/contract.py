"""A row against the request model of the resources server that it will meet, read from its OpenAPI document.

Only what the row itself must bring is asked for: `response` and Gym's own `_ng_` fields come later. FastAPI
reads with pydantic, which turns "3" into 3 where an integer is wanted, so a mismatch that it mends is a warning.
"""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import orjson

from gymtap.proxy.core.contracts import openapi
from gymtap.proxy.core.contracts.exchange_check import mends
from gymtap.proxy.core.contracts.finding import clip, finding
from gymtap.proxy.core.contracts.openapi import Violation
from gymtap.proxy.core.errors import UsageError
from gymtap.schemas import Finding, Severity

_ADDED_BY_GYM = "response"
_FETCH_TIMEOUT_S = 10.0


class VerifyContract:
    """The /verify request of one server. Raises UsageError when the document has no such route or is no OpenAPI."""

    def __init__(self, document: Any, name: str = "the resources server") -> None:
        self.name = name
        try:
            route = openapi.Contract(document, name).route("/verify")
        except ValueError as error:
            raise UsageError(f"{name}: {error}", "it should be the /openapi.json of a resources server") from None
        if route is None or route.request is None:
            hint = "it should be the /openapi.json of a resources server"
            raise UsageError(f"{name}: its OpenAPI document has no POST /verify", hint)
        self._model = route.request

    def check(self, row: Any) -> list[Finding]:
        """What the server would refuse in this row."""
        return [self._finding(one) for one in self._model.violations(row) if _is_rows_own(one)]

    def _finding(self, one: Violation) -> Finding:
        mended = mends(one)
        verb = "coerces this in" if mended else "answers 422 to"
        what = f"{one.path[-1]} is missing" if one.missing else clip(one.message)
        return finding(
            "rows.verify_model",
            Severity.WARNING if mended else Severity.ERROR,
            f"{self.name} {verb} /verify: {what}",
            one.path,
            found=one.value,
            expected=one.says or " or ".join(one.wanted) or None,
        )


def _is_rows_own(one: Violation) -> bool:
    return not one.path or not (one.path[0] == _ADDED_BY_GYM or str(one.path[0]).startswith("_ng_"))


def from_file(file: Path) -> VerifyContract:
    """The contract in an OpenAPI file. Raises UsageError."""
    try:
        document = orjson.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{file}: not JSON ({error})") from None
    return VerifyContract(document, file.name)


def from_server(url: str) -> VerifyContract:
    """The contract of a server that runs. Raises UsageError when it does not answer with one."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"{url}: not an http:// address", "name the resources server's address, http://127.0.0.1:8002")
    target = url.rstrip("/") + ("" if url.endswith(".json") else "/openapi.json")
    try:
        with urllib.request.urlopen(target, timeout=_FETCH_TIMEOUT_S) as answer:  # noqa: S310  # http only, see above
            document = json.load(answer)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        raise UsageError(f"{target} gives no OpenAPI document: {why}", "is the server up, and a Gym server?") from None
    return VerifyContract(document, url)
