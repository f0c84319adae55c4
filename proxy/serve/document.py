"""The OpenAPI 3.1 document, made of the routes and of the nouns' own schemas."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gymtap.proxy.serve.route import Parameter, Route, Schema
from gymtap.schemas import CaptureInfo, Diagnosis, Exchange, Finding, Row

_MODELS: tuple[type[BaseModel], ...] = (CaptureInfo, Diagnosis, Exchange, Finding, Row)
_TEMPLATE = "#/components/schemas/{model}"
_ERROR: Schema = {
    "type": "object",
    "required": ["error", "hint"],
    "properties": {"error": {"type": "string"}, "hint": {"type": "string"}},
}
_DESCRIPTIONS = {
    "capture": "A capture's name, as /v1/captures lists it.",
    "row": "A row's label, as in 12.3.",
    "exchange": "An exchange's id, as in a42.",
    "side": "`request` or `response`.",
}


def reference(model: type[BaseModel]) -> Schema:
    """A noun's schema, by its name."""
    return {"$ref": _TEMPLATE.format(model=model.__name__)}


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The whole document."""
    _, schemas = models_json_schema([(model, "serialization") for model in _MODELS], ref_template=_TEMPLATE)
    return {
        "openapi": "3.1.0",
        "info": {"title": "gymtap", "version": version, "description": "Captures, read only."},
        "paths": {route.path: {"get": _operation(route)} for route in routes},
        "components": {
            "schemas": schemas["$defs"] | {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    said: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [*_in_path(route.path), *_in_query(route.parameters)],
        "responses": {
            "200": {"description": route.summary, "content": {route.media_type: {"schema": route.answer}}},
            "default": {
                "description": "What went wrong, and the way out.",
                "content": {"application/json": {"schema": {"$ref": _TEMPLATE.format(model="Error")}}},
            },
        },
    }
    return said | ({"security": []} if route.open else {})


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": _DESCRIPTIONS[name]}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _in_query(parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "in": "query", "schema": one.schema, "description": one.description} for one in parameters
    ]
