"""Places in JSON values, and the pointers that name them (RFC 6901)."""

from collections.abc import Sequence
from typing import Any

type Path = tuple[str | int, ...]
"""A place in a JSON document: keys and indices from its root."""


def pointer(path: Sequence[str | int]) -> str:
    """The pointer of a place; `""` is the whole document."""
    return "".join(f"/{escaped(str(part))}" for part in path)


def escaped(key: str) -> str:
    """A key as it stands in a pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def unescaped(token: str) -> str:
    """The key that a pointer's token names."""
    return token.replace("~1", "/").replace("~0", "~")


def has(value: Any, part: str | int) -> bool:
    """Whether a value has something at that key or index."""
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def at(value: Any, path: Path) -> Any:
    """What stands at a place of a value that has it."""
    for part in path:
        value = value[part]
    return value
