"""A server's contract: the request and response models of its routes, read from its OpenAPI document.

A model is compiled when a body first meets it, and once. Input items and tools of a request for a generation are
left out of it: Gym fills them up before it validates them, so that their schema refuses what the server takes.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jsonschema_rs

from gymtap.proxy.core.contracts import formats
from gymtap.proxy.core.contracts.finding import clip
from gymtap.proxy.core.pointer import Path, at, unescaped

CREATE_PARAMS = frozenset({"input", "tools", "tool_choice"})
"""What tells the model of a request for a generation (`NeMoGymResponseCreateParamsNonStreaming` in Gym 0.7)."""

MAX_VIOLATIONS = 20

_ANY_INPUT = {"anyOf": [{"type": "string"}, {"type": "array"}]}
_ANY_TOOLS = {"anyOf": [{"type": "array"}, {"type": "null"}]}
_PARAMETER = re.compile(r"\{[^}]*\}")
_DESCRIPTION_CHARS = 100


class Violation(NamedTuple):
    """A place where a value is not what a model says.

    `kind` is JSON Schema's keyword in its own camel case (`Required`, `Type`); `wanted` the types where it is about
    types; `says` the model's own words about that place.
    """

    path: Path
    kind: str
    message: str
    value: Any
    wanted: tuple[str, ...]
    says: str | None

    @property
    def missing(self) -> bool:
        """Whether the place is not there at all."""
        return self.kind == "Required"


class Model:
    """One request or response model. `name` is its class where it has one."""

    def __init__(self, schema: Mapping[str, Any], components: Mapping[str, Any]) -> None:
        self._root = {**schema, "components": components}
        self.schema: Mapping[str, Any] = resolve(schema, self._root)
        self.name = str(self.schema.get("title") or "its model")
        self._validator: Any = None

    @property
    def required(self) -> tuple[str, ...]:
        """The fields that must be there."""
        found = self.schema.get("required")
        return tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()

    @property
    def properties(self) -> Mapping[str, Any]:
        """The fields that it declares, with their schemas."""
        return _object(self.schema.get("properties"))

    @property
    def forbids_others(self) -> bool:
        """Whether undeclared fields are refused."""
        return self.schema.get("additionalProperties") is False

    def violations(self, value: Any) -> list[Violation]:
        """What in a value the model refuses, at most MAX_VIOLATIONS; nothing where it cannot be compiled."""
        validator = self._compiled()
        if validator is None or validator.is_valid(value):
            return []
        found: dict[Path, Violation] = {}
        for error in validator.iter_errors(value):
            for each in self._read(error, value):
                if each.kind != "Type" or not self._is_read(each):
                    found.setdefault(each.path, each)
            if len(found) >= MAX_VIOLATIONS:
                break
        return list(found.values())[:MAX_VIOLATIONS]

    def says(self, path: Path) -> str | None:
        """The model's own words about a place, where it has any."""
        schema = self._at(path)
        if schema is not None:
            return describe(schema, self._root)
        above = resolve(self._at(path[:-1]), self._root)
        if isinstance(path[-1], str) and above.get("additionalProperties") is False:
            return clip("no other field than " + ", ".join(_object(above.get("properties"))))
        return None

    def _at(self, path: Path) -> Any:
        """The schema of a place; None where the model says nothing of it."""
        schema: Any = self.schema
        for part in path:
            schema = _below(resolve(schema, self._root), part, self._root)
            if schema is None:
                return None
        return schema

    def _is_read(self, one: Violation) -> bool:
        """Whether pydantic reads the value although it is no text, as it reads a time from a number."""
        schema = resolve(self._at(one.path), self._root)
        options = [schema, *(resolve(option, self._root) for option in schema.get("anyOf") or ())]
        return any(formats.reads(str(option.get("format")), one.value) for option in options)

    def _compiled(self) -> Any:
        if self._validator is None:
            try:
                used = _reachable(self._root)
                self._validator = jsonschema_rs.Draft202012Validator(
                    used, validate_formats=True, formats=formats.checkers(), mask="it"
                )
            except (ValueError, jsonschema_rs.ReferencingError, jsonschema_rs.ValidationError):
                self._validator = False
        return self._validator or None

    def _read(self, error: Any, value: Any) -> list[Violation]:
        kind = type(error.kind).__name__.rpartition("_")[2]
        path: Path = tuple(error.instance_path)
        if kind in ("AnyOf", "OneOfNotValid") and (closest := _closest(error.kind.context, path)):
            return [each for inner in closest for each in self._read(inner, value)]
        if kind == "Required":
            path = (*path, error.kind.property)
        names = error.kind.unexpected if kind == "AdditionalProperties" else [None]
        wanted = tuple(str(one) for one in getattr(error.kind, "types", ()))
        return [self._violation(path if name is None else (*path, name), kind, error, wanted, value) for name in names]

    def _violation(self, path: Path, kind: str, error: Any, wanted: tuple[str, ...], value: Any) -> Violation:
        there = None if kind == "Required" else at(value, path)
        return Violation(path, kind, str(error.message), there, wanted, self.says(path))


def _reachable(root: Mapping[str, Any]) -> dict[str, Any]:
    """The root with only the components that it refers to: a compiler reads all that it is given."""
    schemas = _object(_object(root["components"]).get("schemas"))
    found: dict[str, Any] = {}
    waiting: list[Any] = [{key: value for key, value in root.items() if key != "components"}]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict | list):
            waiting += node.values() if isinstance(node, dict) else node
        name = _component(node)
        if name in schemas and name not in found:
            found[name] = schemas[name]
            waiting.append(schemas[name])
    return {**root, "components": {"schemas": found}}


def _component(node: Any) -> str:
    reference = node.get("$ref") if isinstance(node, dict) else None
    return reference.removeprefix("#/components/schemas/") if isinstance(reference, str) else ""


def _closest(context: list[list[Any]], path: Path) -> list[Any]:
    """Of a union's branches the one to speak of: the only one that is not null, or the one that fails furthest in."""
    branches = [branch for branch in context if branch and not _is_null(branch)]
    if len(branches) == 1:
        return branches[0]
    deep = [branch for branch in branches if all(len(error.instance_path) > len(path) for error in branch)]
    return min(deep, key=len) if len(deep) == 1 else []


def _is_null(branch: list[Any]) -> bool:
    return len(branch) == 1 and list(getattr(branch[0].kind, "types", ())) == ["null"]


def resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with its reference into the same document followed; an empty one where that leads nowhere."""
    for _ in range(20):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for part in reference[2:].split("/"):
            schema = schema.get(unescaped(part), {}) if isinstance(schema, dict) else {}
    return schema if isinstance(schema, dict) else {}


def _below(schema: Mapping[str, Any], part: str | int, root: Mapping[str, Any]) -> Any:
    unions = (schema.get(key) for key in ("anyOf", "allOf", "oneOf"))
    options = [schema, *(resolve(one, root) for union in unions if isinstance(union, list) for one in union)]
    for one in options:
        first = one.get("prefixItems")
        if isinstance(part, int) and isinstance(first, list) and part < len(first):
            return first[part]
        if isinstance(part, int) and "items" in one:
            return one["items"]
        if isinstance(part, str):
            found = _object(one.get("properties")).get(part, one.get("additionalProperties"))
            if isinstance(found, dict):
                return found
    return None


def describe(schema: Any, root: Mapping[str, Any]) -> str:
    """`list of object`, `number or null`, `one of "a", "b"`, with the first sentence of a description behind it."""
    own = schema if isinstance(schema, dict) else {}
    text = _kind(own, root, 0)
    about = own.get("description") or resolve(own, root).get("description")
    if isinstance(about, str) and about:
        sentence = about.strip().partition(". ")[0].partition("\n")[0].rstrip(".")
        text += f" ({sentence[:_DESCRIPTION_CHARS]})"
    return text


def _kind(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    found = resolve(schema, root)
    for key in ("anyOf", "oneOf"):
        if (branches := found.get(key)) and isinstance(branches, list) and depth < 4:
            kinds = list(dict.fromkeys(_kind(one, root, depth + 1) for one in branches))
            return " or ".join(kinds) if len(kinds) <= 4 else f"one of {len(kinds)} kinds"
    if (values := found.get("enum")) and isinstance(values, list):
        return "one of " + ", ".join(f'"{one}"' if isinstance(one, str) else str(one) for one in values[:8])
    if "const" in found:
        return f'"{found["const"]}"'
    kind = found.get("type")
    if kind == "array":
        inner = _kind(found.get("items", {}), root, depth + 1) if depth < 2 else "anything"
        return "list" if inner == "anything" else f"list of {inner}"
    if kind == "object" and schema is not found:
        return str(found.get("title", "object"))
    return " or ".join(kind) if isinstance(kind, list) else str(kind or "anything")


class Route(NamedTuple):
    """One route. `template` is its path as OpenAPI has it; a model is None where the document says nothing."""

    template: str
    request: Model | None
    responses: Mapping[str, Model]

    @property
    def catches_all(self) -> bool:
        """Whether any one-part path leads here (`/{path}`)."""
        return _PARAMETER.fullmatch(self.template[1:]) is not None

    def response(self, status: int) -> Model | None:
        """The model of an answer with that status."""
        return self.responses.get(str(status)) or self.responses.get("default")


class Contract:
    """What one server says of its routes. Raises ValueError when the document is no OpenAPI document."""

    def __init__(self, document: Any, server: str) -> None:
        paths = document.get("paths") if isinstance(document, dict) else None
        if not isinstance(paths, dict):
            raise ValueError("it has no paths, so it is no OpenAPI document")  # noqa: TRY004  # of a document's content
        self.server = server
        components = document.get("components")
        self._components = _relaxed(_object(components))
        self._models: dict[str, Model] = {}
        self._routes: dict[str, Route] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        for template, operations in paths.items():
            if isinstance(operations, dict) and isinstance(operations.get("post"), dict):
                self._add(template, operations["post"])
        self._patterns.sort(key=lambda one: (one[1].catches_all, len(_PARAMETER.findall(one[1].template))))

    @property
    def routes(self) -> tuple[Route, ...]:
        """All that is answered to a POST."""
        return tuple(self._routes.values())

    def route(self, path: str) -> Route | None:
        """Where a POST to this path leads; None when the server has nothing there."""
        if path in self._routes:
            return self._routes[path]
        return next((route for pattern, route in self._patterns if pattern.fullmatch(path)), None)

    def _add(self, template: str, operation: Mapping[str, Any]) -> None:
        request = self._model(operation.get("requestBody"))
        models = {status: self._model(answer) for status, answer in _object(operation.get("responses")).items()}
        route = Route(template, request, {status: model for status, model in models.items() if model is not None})
        self._routes[template] = route
        if "{" in template:
            parts = [re.escape(part) for part in _PARAMETER.split(template)]
            # A path parameter of Starlette's kind `path` takes slashes; OpenAPI does not say which are.
            self._patterns.append((re.compile(".+".join(parts) if route.catches_all else "[^/]+".join(parts)), route))

    def _model(self, carrier: Any) -> Model | None:
        schema = _object(_object(_object(_object(carrier).get("content")).get("application/json")).get("schema"))
        if not schema:
            return None
        key = repr(schema)
        if key not in self._models:
            self._models[key] = Model(schema, self._components)
        return self._models[key]


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _relaxed(components: Mapping[str, Any]) -> Mapping[str, Any]:
    schemas = components.get("schemas")
    if not isinstance(schemas, dict):
        return components
    return {**components, "schemas": {name: _relaxed_model(schema) for name, schema in schemas.items()}}


def _relaxed_model(schema: Any) -> Any:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties.keys() >= CREATE_PARAMS:
        return schema
    return {**schema, "properties": {**properties, "input": _ANY_INPUT, "tools": _ANY_TOOLS}}
