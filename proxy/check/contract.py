"""A row against the request model of the resources server that it will meet, read from its OpenAPI document.

Only what the row itself must bring is asked for: `response` and Gym's own `_ng_` fields come later. FastAPI
reads with pydantic, which turns "3" into 3 where an integer is wanted, so a mismatch that it mends is a warning.
"""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson

from gymtap.proxy.check.tools import PARAMS
from gymtap.proxy.core.contracts.finding import Path as Place
from gymtap.proxy.core.contracts.finding import finding
from gymtap.proxy.core.errors import UsageError
from gymtap.schemas import Finding, Severity

ADDED_BY_GYM = frozenset({"response"})
"""Fields of /verify's body that are not in a row."""

_FETCH_TIMEOUT_S = 10.0
_MAX_ERRORS = 20
_CLIP = 160


class Contract:
    """The /verify request of one server. Raises UsageError when the document has no such route or is no OpenAPI."""

    def __init__(self, document: Any, name: str = "the resources server") -> None:
        self.name = name
        schema = _verify_schema(document, name)
        try:
            self._validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=False)
        except (ValueError, jsonschema_rs.ReferencingError, jsonschema_rs.ValidationError) as error:
            raise UsageError(f"{name}: its request model cannot be read: {error}") from None

    def check(self, row: Any) -> list[Finding]:
        """What the server would refuse in this row."""
        return [self._finding(error, row) for error in _some(self._validator.iter_errors(row)) if _is_rows_own(error)]

    def _finding(self, error: jsonschema_rs.ValidationError, row: Any) -> Finding:
        path: Place = tuple(error.instance_path)
        missing = re.match(r'"(.+)" is a required property', error.message)
        if missing:
            message = f"{self.name} answers 422 to /verify: {missing[1]} is missing"
            return finding("rows.verify_model", Severity.ERROR, message, (*path, missing[1]), expected="a value")
        mended = _pydantic_mends(error)
        severity = Severity.WARNING if mended else Severity.ERROR
        verb = "coerces this in" if mended else "answers 422 to"
        message = f"{self.name} {verb} /verify: {error.message[:_CLIP]}"
        return finding("rows.verify_model", severity, message, path, found=_at(row, path), expected=_wanted(error))


def _some(errors: Any) -> list[jsonschema_rs.ValidationError]:
    return [error for error, _n in zip(errors, range(_MAX_ERRORS), strict=False)]


def _is_rows_own(error: jsonschema_rs.ValidationError) -> bool:
    """Input items and tools are normalized by Gym before it validates them, so their schema says too much."""
    path = list(error.instance_path)
    return path[:2] not in ([PARAMS, "input"], [PARAMS, "tools"])


def _at(row: Any, path: Place) -> Any:
    for part in path:
        row = row[part]
    return row


def _wanted(error: jsonschema_rs.ValidationError) -> str | None:
    kinds = getattr(error.kind, "types", None)
    return " or ".join(kinds) if kinds else None


def _pydantic_mends(error: jsonschema_rs.ValidationError) -> bool:
    wanted = {str(kind) for kind in getattr(error.kind, "types", ())}
    value = error.instance
    if isinstance(value, str):
        number = re.fullmatch(r"\s*[-+]?\d+(\.0*)?\s*", value)
        if "integer" in wanted and number:
            return True
        if "number" in wanted and re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", value):
            return True
        return "boolean" in wanted and value.lower() in {"true", "false", "yes", "no", "on", "off", "0", "1", "t", "f"}
    return "boolean" in wanted and value in (0, 1)


def _verify_schema(document: Any, name: str) -> dict[str, Any]:
    try:
        body = document["paths"]["/verify"]["post"]["requestBody"]
        schema = body["content"]["application/json"]["schema"]
    except (KeyError, TypeError):
        hint = "it should be the /openapi.json of a resources server"
        raise UsageError(f"{name}: its OpenAPI document has no POST /verify", hint) from None
    components = document.get("components", {})
    own = dict(_resolved(schema, components))
    required = [
        field for field in own.get("required", ()) if field not in ADDED_BY_GYM and not field.startswith("_ng_")
    ]
    kept = {key: value for key, value in own.get("properties", {}).items() if key not in ADDED_BY_GYM}
    return {**own, "required": required, "properties": kept, "components": components}


def _resolved(schema: Mapping[str, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    found: Mapping[str, Any] = components.get("schemas", {}).get(reference.rpartition("/")[2], {})
    return found


def from_file(file: Path) -> Contract:
    """The contract in an OpenAPI file. Raises UsageError."""
    try:
        document = orjson.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{file}: not JSON ({error})") from None
    return Contract(document, file.name)


def from_server(url: str) -> Contract:
    """The contract of a server that runs. Raises UsageError when it does not answer with one."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"{url}: not an http:// address", "name the resources server's address, http://127.0.0.1:8002")
    target = url.rstrip("/") + ("" if url.endswith(".json") else "/openapi.json")
    try:
        with urllib.request.urlopen(target, timeout=_FETCH_TIMEOUT_S) as answer:  # noqa: S310  # http only, see above
            return Contract(json.load(answer), url)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        raise UsageError(f"{target} gives no OpenAPI document: {why}", "is the server up, and a Gym server?") from None
