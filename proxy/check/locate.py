"""Find the place in a schema that an engine refuses, and the smallest change that it accepts, by asking it.

No text of the engine is interpreted: the schema is shrunk, member by member and halves first, for as long as
it is refused for the same reason, until one fault is left; then edits are tried at its deepest place.
The schema itself is never changed: an overlay says what is left out or replaced, so that every pointer
stays a pointer into the original.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymtap.proxy.check.schema_walk import is_schema_place, keyword_at, keyword_path
from gymtap.proxy.check.vllm_rules import dumps
from gymtap.proxy.core.contracts.finding import Path, pointer

MAX_QUESTIONS = 3000
"""Questions per schema; a fault that needs more is reported at the place reached so far."""

MAX_FAULTS = 8

_REPEATS = 128
"""How often xgrammar 0.2.8 repeats a part of a pattern; beyond it, its cache, which vLLM switches on, breaks."""

_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")

_OF_CODE = re.compile(r"type mismatch|<type>")
"""What xgrammar's assertions say of its own code; `type` there is no keyword."""

type Refuses = Callable[[Any], str | None]
"""Gives the reason for which a schema is refused, or None."""

_TYPES: Mapping[str, str] = {
    "str": "string", "text": "string", "char": "string", "varchar": "string", "date": "string", "datetime": "string",
    "int": "integer", "int32": "integer", "int64": "integer", "long": "integer",
    "float": "number", "double": "number", "decimal": "number", "numeric": "number",
    "bool": "boolean", "dict": "object", "map": "object", "struct": "object",
    "list": "array", "tuple": "array", "set": "array", "none": "null", "nil": "null",
    **{name: name for name in ("string", "integer", "number", "boolean", "object", "array", "null")},
}  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """`value` is what the place is set to; None with `remove` when it is taken out."""

    path: Path
    remove: bool = False
    value: Any = None

    def __str__(self) -> str:
        place = pointer(self.path) or "the whole schema"
        return f"remove {place}" if self.remove else f"set {place} to {_short(self.value)}"


@dataclass(frozen=True)
class Fault:
    """One refused place: `path` into the schema, the `keyword` it belongs to, and what stands there.

    `edit` is the smallest change found that clears it; None when none was. `smallest` is what is left of the
    schema when everything is taken out that the refusal does not need.
    """

    path: Path
    keyword: str | None
    found: Any
    reason: str
    edit: Edit | None
    smallest: Any = None

    @property
    def pointer(self) -> str:
        """RFC 6901."""
        return pointer(self.path)


@dataclass(frozen=True)
class Overlay:
    """A schema with places left out or replaced."""

    schema: Any
    removed: frozenset[Path] = frozenset()
    replaced: Mapping[Path, Any] = field(default_factory=dict)

    def apply(self, edit: Edit) -> "Overlay":
        """This with one more edit."""
        if edit.remove:
            return Overlay(self.schema, self.removed | {edit.path}, self.replaced)
        return Overlay(self.schema, self.removed, {**self.replaced, edit.path: edit.value})

    def without(self, paths: list[Path]) -> "Overlay":
        """This with more places left out."""
        return Overlay(self.schema, self.removed.union(paths), self.replaced)

    def build(self) -> Any:
        """The schema as it now stands."""
        return self._build(self.schema, ())

    def _build(self, node: Any, path: Path) -> Any:
        if path in self.replaced:
            return self.replaced[path]
        if isinstance(node, dict):
            members = ((key, value) for key, value in node.items() if (*path, key) not in self.removed)
            return {key: self._build(value, (*path, key)) for key, value in members}
        if isinstance(node, list):
            items = ((index, value) for index, value in enumerate(node) if (*path, index) not in self.removed)
            return [self._build(value, (*path, index)) for index, value in items]
        return node

    def levels(self) -> Iterator[list[Path]]:
        """The places that are still there, level by level from the top."""
        level: list[tuple[Path, Any]] = [((), self.schema)]
        while level := [child for path, node in level for child in self._children(path, node)]:
            yield [path for path, _node in level]

    def _children(self, path: Path, node: Any) -> list[tuple[Path, Any]]:
        if path in self.replaced:
            return []
        pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [((*path, key), value) for key, value in pairs if (*path, key) not in self.removed]

    def at(self, path: Path) -> Any:
        """What the original has at a place."""
        node = self.schema
        for part in path:
            node = node[part]
        return node


def faults(schema: Any, refuses: Refuses) -> tuple[Fault, ...]:
    """Every place for which the schema is refused, each with the change that clears it; () when it is accepted.

    The edits taken together make a schema that is accepted, unless one of them is None. A refusal that even
    the empty schema meets has the empty path: it is not about the schema.
    """
    hunt = _Hunt(refuses)
    overlay = Overlay(schema)
    found: list[Fault] = []
    while len(found) < MAX_FAULTS and (reason := hunt.reason(overlay)):
        fault = hunt.fault(overlay, reason)
        found.append(fault)
        if fault.edit is None:
            break
        overlay = overlay.apply(fault.edit)
    return tuple(found)


class _Hunt:
    def __init__(self, refuses: Refuses) -> None:
        self._refuses = refuses
        self._left = MAX_QUESTIONS

    def reason(self, overlay: Overlay) -> str | None:
        self._left -= 1
        return self._refuses(overlay.build())

    def fault(self, overlay: Overlay, reason: str) -> Fault:
        if self._refuses({}) == reason:
            return Fault((), None, None, reason, None)
        small = self._shrunk(overlay, _gist(reason))
        path = self._schema_itself(overlay, self._culprit(small, reason))
        edit = next((edit for edit in _edits(overlay, path) if self.reason(small.apply(edit)) is None), None)
        return Fault(path, keyword_at(path), overlay.at(path), reason, edit, small.build())

    def _schema_itself(self, overlay: Overlay, path: Path) -> Path:
        """The path, cut where a schema should stand but does not: what is inside of that is no place of its own."""
        ends = (path[:end] for end in range(len(path)))
        wrong = (end for end in ends if is_schema_place(end) and not isinstance(overlay.at(end), dict | bool))
        return next(wrong, path)

    def _shrunk(self, overlay: Overlay, gist: str) -> Overlay:
        for _again in range(3):
            before = overlay.removed
            for depth in range(1000):
                level = next((paths for at, paths in enumerate(overlay.levels()) if at == depth), None)
                if level is None:
                    break
                overlay = self._thinned(overlay, level, gist)
            if overlay.removed == before:
                break
        return overlay

    def _thinned(self, overlay: Overlay, level: list[Path], gist: str) -> Overlay:
        """Leave out of one level whatever the refusal does not need, halves first."""
        size = len(level)
        while size and self._left > 0:
            kept: list[Path] = []
            for start in range(0, len(level), size):
                chunk = level[start : start + size]
                fewer = overlay.without(chunk)
                reason = self.reason(fewer)
                if reason is not None and _gist(reason) == gist:
                    overlay = fewer
                else:
                    kept += chunk
            level = kept
            size = min(size // 2, len(level)) if size > 1 else 0
        return overlay

    def _culprit(self, small: Overlay, reason: str) -> Path:
        """The place of the deepest keyword left; of several, the one that the engine speaks of, and a `type` last."""
        places = [path for level in small.levels() for path in level]
        if not places:
            return ()
        depth = max(len(keyword_path(path)) for path in places)
        words = re.findall(r"[$\w-]+", _OF_CODE.sub("", reason))

        def rank(path: Path) -> tuple[int, bool, int]:
            keyword = str(keyword_path(path)[-1])
            return (words.index(keyword) if keyword in words else len(words), keyword == "type", -len(path))

        return min((path for path in places if len(keyword_path(path)) == depth), key=rank)


def _gist(reason: str) -> str:
    """A reason without what it quotes, so that it stays the same while the schema shrinks."""
    text = reason.split("\n", 1)[0]
    return re.sub(r"""'[^']*'|"[^"]*"|\d+|#\S*""", "_", text)


def _edits(overlay: Overlay, path: Path) -> Iterator[Edit]:
    """Changes to try at a place, the smallest first."""
    value = overlay.at(path)
    for better in _repairs(path, value):
        yield Edit(path, value=better)
    for end in range(len(path), 0, -1):
        yield Edit(path[:end], remove=True)
        if is_schema_place(path[:end]):
            yield Edit(path[:end], value={})


def _repairs(path: Path, value: Any) -> Iterator[Any]:
    """What was probably meant."""
    name = _TYPES.get(value.lower()) if isinstance(value, str) else None
    if name and keyword_at(path) == "type":
        yield name
    elif is_schema_place(path) and name:
        yield {"type": name}
    elif is_schema_place(path) and isinstance(value, list) and all(isinstance(item, str) for item in value):
        yield {"type": value}
    elif isinstance(value, str) and keyword_at(path) == "pattern":
        if (looser := _COUNT.sub(_uncounted, value)) != value:
            yield looser
    elif isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        yield int(value)
    elif isinstance(value, int) and not isinstance(value, bool) and value < 0:
        yield 0


def _uncounted(count: re.Match[str]) -> str:
    """A repetition of a pattern, without a bound that xgrammar 0.2.8 fails over."""
    low, high = int(count[1]), int(count[2] or count[1])
    return f"{{{min(low, _REPEATS)},}}" if max(low, high) > _REPEATS else count[0]


def _short(value: Any, limit: int = 80) -> str:
    text = dumps(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
