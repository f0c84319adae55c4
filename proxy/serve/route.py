"""A route of the API, from which both the application and its OpenAPI document are made, so that they cannot differ."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

type Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
type Schema = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A query parameter."""

    name: str
    schema: Schema
    description: str


@dataclass(frozen=True)
class Route:
    """`path` has its parameters in braces; `answer` is the JSON Schema of a 200, for `media_type`."""

    path: str
    summary: str
    handler: Handler
    answer: Schema
    parameters: tuple[Parameter, ...] = ()
    media_type: str = "application/json"
    open: bool = False
    """Whether it needs no token."""
