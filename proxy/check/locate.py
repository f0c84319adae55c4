"""Find the place in a schema that an engine refuses, and the smallest change that it accepts, by asking it.

No text of the engine is interpreted: the schema is shrunk, member by member and halves first, for as long as
it is refused for the same reason, until one fault is left; then edits are tried at its deepest place.
The schema itself is never changed: an overlay says what is left out or replaced, so that every pointer
stays a pointer into the original.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymtap.proxy.check.schema_walk import is_keyword, is_schema_place, keyword_at, keyword_path
from gymtap.proxy.check.vllm_rules import dumps
from gymtap.proxy.core.pointer import Path, pointer

MAX_QUESTIONS = 3000
"""Questions per schema; a fault that needs more is reported at the place reached so far."""

MAX_FAULTS = 8

_REPEATS = 128
"""How often xgrammar 0.2.8 repeats a part of a pattern; beyond it, its cache, which vLLM switches on, breaks."""

_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")

_OF_CODE = re.compile(r"type mismatch|<type>|near: .*")
"""What xgrammar says of its own code, and quotes of the document; `type` there is no keyword."""

type Refuses = Callable[[Any], str | None]
"""Gives the reason for which a schema is refused, or None."""

_TYPES: Mapping[str, str] = {
    "str": "string", "text": "string", "char": "string", "varchar": "string", "date": "string", "datetime": "string",
    "int": "integer", "int32": "integer", "int64": "integer", "long": "integer",
    "float": "number", "double": "number", "decimal": "number", "numeric": "number",
    "bool": "boolean", "dict": "object", "map": "object", "struct": "object",
    "list": "array", "tuple": "array", "set": "array", "none": "null", "nil": "null", "nonetype": "null",
    "uuid": "string", "bytes": "string",
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
        edit = self._edit(overlay, small, path, _gist(reason))
        if edit is not None and (edit.path == keyword_path(path) or edit.path != path[: len(edit.path)]):
            path = edit.path
        return Fault(path, keyword_at(path), overlay.at(path), reason, edit, small.build())

    def _edit(self, overlay: Overlay, small: Overlay, path: Path, gist: str) -> Edit | None:
        """The smallest change that clears it: at the place, else at another keyword that the refusal needs.

        Where several keywords are refused, each by itself, the first of them goes, rather than all that holds them;
        the next one is a fault of its own.
        """
        found = self._accepted(small, _edits(overlay, path))
        keyword = keyword_path(path)
        if found is None or not path or len(found.path) >= len(keyword):
            return found
        places = [place for level in small.levels() for place in level if is_keyword(place) and place[-1] != "type"]
        removals = [Edit(place, remove=True) for place in places if _size(overlay, place) < _size(overlay, found.path)]
        if other := self._accepted(small, sorted(removals, key=lambda edit: _size(overlay, edit.path))):
            return other
        first = Edit(keyword, remove=True)
        reason = self.reason(small.apply(first))
        is_branch = bool(found.path) and isinstance(found.path[-1], int)
        return found if is_branch or reason is None or _gist(reason) == gist else first

    def _accepted(self, small: Overlay, edits: Iterable[Edit]) -> Edit | None:
        return next((edit for edit in edits if self.reason(small.apply(edit)) is None), None)

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
        """The deepest keyword that is left, or what it refers to, and there again the deepest."""
        places = [path for level in small.levels() for path in level]
        path = _deepest(places, reason)
        while (target := _target(small, path)) is not None:
            places = [place for place in places if place[: len(target)] == target]
            if not places or path[: len(target)] == target:
                break
            path = _deepest(places, reason)
        return path


def _deepest(places: list[Path], reason: str) -> Path:
    """The place of the deepest keyword; of several, the one that the engine speaks of first, and a `type` last."""
    depth = max((len(keyword_path(path)) for path in places), default=0)
    words = re.findall(r"[$\w-]+", _OF_CODE.sub("", reason))

    def rank(path: Path) -> tuple[int, bool, int]:
        keyword = str(keyword_path(path)[-1])
        return (words.index(keyword) if keyword in words else len(words), keyword == "type", -len(path))

    return min((path for path in places if len(keyword_path(path)) == depth), key=rank, default=())


def _target(small: Overlay, path: Path) -> Path | None:
    """What a `$ref` at this place names inside of the schema; None when it is none, or names nothing there."""
    wanted = small.at(path) if path and path[-1] == "$ref" and keyword_at(path) == "$ref" else None
    if not isinstance(wanted, str) or not wanted.startswith("#/"):
        return None
    target: Path = ()
    for name in wanted[2:].split("/"):
        node = small.at(target)
        part = int(name) if isinstance(node, list) and name.isdecimal() else name
        if not (part in node if isinstance(node, dict) else isinstance(node, list) and part in range(len(node))):
            return None
        target = (*target, part)
    return target


def _gist(reason: str) -> str:
    """A reason without what it quotes, so that it stays the same while the schema shrinks."""
    text = reason.split("\n", 1)[0]
    return re.sub(r"""'[^']*'|"[^"]*"|\d+|#\S*""", "_", text)


def _size(overlay: Overlay, path: Path) -> int:
    """How many values stand at a place, and below it."""
    waiting, size = [overlay.at(path)], 0
    while waiting:
        node = waiting.pop()
        size += 1
        waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return size


def _edits(overlay: Overlay, path: Path) -> Iterator[Edit]:
    """Changes to try at a place, the smallest first."""
    for better in _repairs(overlay, path):
        yield Edit(path, value=better)
    for end in range(len(path), -1, -1):
        if end:
            yield Edit(path[:end], remove=True)
        if is_schema_place(path[:end]):
            yield Edit(path[:end], value={})


def _repairs(overlay: Overlay, path: Path) -> Iterator[Any]:
    """What was probably meant."""
    value, keyword = overlay.at(path), keyword_at(path)
    if is_schema_place(path):
        yield from _meant_schema(value)
    elif keyword == "type":
        yield from _type_names(value)
    elif keyword == "pattern" and isinstance(value, str):
        if (looser := _COUNT.sub(_uncounted, value)) != value:
            yield looser
    elif not is_keyword(path):
        return
    elif keyword == "properties" and value == []:
        yield {}  # PHP's empty array
    elif keyword in ("required", "enum") and isinstance(value, str):
        yield [value]
    elif keyword in _DRAFT_4 and value is True:
        yield from (node for node in [overlay.at(path[:-1]).get(_DRAFT_4[keyword])] if _is_number(node))
    else:
        yield from _numbers(keyword, value)


_DRAFT_4: Mapping[str | None, str] = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""The bound that draft 4's boolean is about; since draft 6 the keyword holds the bound itself."""


def _meant_schema(value: Any) -> Iterator[Any]:
    """A schema for what stands in its place: names of types, or the text of one."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        yield {"type": value}
    if isinstance(value, str):
        yield from ({"type": name} for name in _type_names(value))
        with contextlib.suppress(ValueError):
            yield from (spelt for spelt in [json.loads(value)] if isinstance(spelt, dict | bool))


def _type_names(value: Any) -> Iterator[str]:
    if isinstance(value, str) and (name := _TYPES.get(value.lower())):
        yield name


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _numbers(keyword: str | None, value: Any) -> Iterator[int]:
    """The whole number that was meant, in text or as a float, or the next one that a bound allows; 0 for a negative."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        yield int(value)
    elif _is_number(value) and isinstance(value, float):
        yield (math.ceil if keyword in ("minimum", "exclusiveMaximum") else math.floor)(value)
    elif _is_number(value) and value < 0:
        yield 0


def _uncounted(count: re.Match[str]) -> str:
    """A repetition of a pattern, without a bound that xgrammar 0.2.8 fails over."""
    low, high = int(count[1]), int(count[2] or count[1])
    return f"{{{min(low, _REPEATS)},}}" if max(low, high) > _REPEATS else count[0]


def _short(value: Any, limit: int = 80) -> str:
    text = dumps(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
