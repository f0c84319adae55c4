"""JSON as a tree that folds: only what is open exists as lines, and a pointer can be opened and pointed at."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from gymtap.proxy.core.pointer import escaped
from gymtap.proxy.tui.lines import Lines
from gymtap.proxy.views.plain import one_line

_PREVIEW_CHARACTERS = 2_000
_LONG_CHARACTERS = 60
_OPEN_DEPTH = 2
_OPEN_ITEMS = 40
_OPEN_LINES = 60
_KEY, _STRING, _NUMBER, _WORD, _DIM = "cyan", "green", "magenta", "yellow", "dim"


@dataclass(slots=True)
class Branch:
    """One line: a value, where it is, and whether what is in it is shown. `name` is its key, or its index."""

    name: str
    value: Any
    pointer: str
    depth: int
    is_open: bool = False


def foldable(value: Any) -> bool:
    """Whether it has something to fold: members, items, or a text that is longer than a line."""
    return (isinstance(value, dict | list) and bool(value)) or (isinstance(value, str) and _is_long(value))


def _is_long(value: str) -> bool:
    return len(value) > _LONG_CHARACTERS or "\n" in value


def children(branch: Branch) -> Iterator[Branch]:
    """What is in it: members, items, the lines of a text, or the JSON that a text is."""
    value, at, depth = branch.value, branch.pointer, branch.depth + 1
    if isinstance(value, dict):
        for name, item in value.items():
            yield Branch(name, item, f"{at}/{escaped(name)}", depth)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield Branch(str(index), item, f"{at}/{index}", depth)


def summary(value: Any) -> Text:
    """One line on a value."""
    if isinstance(value, dict):
        return Text(f"{{{len(value):,}}}" if value else "{}", _DIM)
    if isinstance(value, list):
        return Text(f"[{len(value):,}]" if value else "[]", _DIM)
    if isinstance(value, str):
        return Text(one_line(json.dumps(value[:_PREVIEW_CHARACTERS], ensure_ascii=False)), _STRING)
    if value is None or isinstance(value, bool):
        return Text(json.dumps(value), _WORD)
    return Text(json.dumps(value), _NUMBER)


class JsonTree(Lines):
    """A JSON document. `pointed` is the place of a finding."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "fold", "Fold"),
        Binding("plus", "fold_all(True)", "Unfold beneath", key_display="+", show=False),
        Binding("minus", "fold_all(False)", "Fold", key_display="-", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # textual's own name
        super().__init__(id=id)
        self._branches: list[Branch] = []
        self.pointed: str | None = None

    def put(self, value: Any, pointed: str | None = None) -> None:
        """Show another document, open to a few levels, or as far as it is short, and as far as `pointed`."""
        self._branches = [Branch("", value, "", 0)]
        self.pointed = None
        self._open_to(_OPEN_DEPTH)
        self._open_few()
        self.reload()
        if pointed is not None:
            self.pointed = self._open_deepest(pointed)
        self.refresh()

    def _open_few(self) -> None:
        """Open level after level, for as long as that makes few lines."""
        depth, before = _OPEN_DEPTH, 0
        while before < len(self._branches) < _OPEN_LINES:
            before, kept, depth = len(self._branches), list(self._branches), depth + 1
            self._open_to(depth)
            if len(self._branches) > _OPEN_LINES:
                for branch in kept:
                    branch.is_open = branch.is_open and branch.depth < depth - 1
                self._branches = kept

    def _open_to(self, depth: int) -> None:
        index = 0
        while index < len(self._branches):
            branch = self._branches[index]
            few = not isinstance(branch.value, dict | list) or len(branch.value) <= _OPEN_ITEMS
            if branch.depth < depth and (few or branch.depth == 0) and isinstance(branch.value, dict | list):
                self._open(index)
            index += 1

    def count(self) -> int:
        """How many lines are open."""
        return len(self._branches)

    def line(self, index: int, width: int) -> Text:
        """A key and its value."""
        branch = self._branches[index]
        mark = ("▾ " if branch.is_open else "▸ ") if foldable(branch.value) else "  "
        line = Text.assemble(("  " * branch.depth, ""), (mark, _DIM))
        if branch.depth:
            line.append(one_line(branch.name), _KEY).append(": ", _DIM)
        if branch.is_open and isinstance(branch.value, str):
            line.append(f"{len(branch.value):,} characters", _DIM)
        else:
            line.append_text(summary(branch.value))
        if branch.pointer == self.pointed:
            line.truncate(width - 4, overflow="ellipsis")
            line.append(" ◀", "bold")
            line.stylize("bold underline")
        return line

    @property
    def branch(self) -> Branch | None:
        """What the cursor is on."""
        return self._branches[self.cursor] if self._branches else None

    # Folding

    def action_fold(self) -> None:
        """Open what is closed, close what is open."""
        if self._branches:
            (self._close if self._branches[self.cursor].is_open else self._open)(self.cursor)
            self.reload()

    def action_fold_all(self, opened: bool) -> None:
        """Open everything beneath, or close it."""
        at = self.cursor
        if not self._branches:
            return
        self._close(at)
        depth = self._branches[at].depth
        index = at
        while opened and index < len(self._branches) and (index == at or self._branches[index].depth > depth):
            if isinstance(self._branches[index].value, dict | list):
                self._open(index)
            index += 1
        self.reload()

    def _open(self, index: int) -> None:
        branch = self._branches[index]
        if branch.is_open or not foldable(branch.value):
            return
        branch.is_open = True
        self._branches[index + 1 : index + 1] = [*children(branch), *self._text_lines(branch)]

    def _text_lines(self, branch: Branch) -> Iterator[Branch]:
        """A long text, line by line, each no wider than the screen."""
        if isinstance(branch.value, str):
            room = max(self.size.width - 2 * branch.depth - 8, 20)
            for number, text in enumerate(branch.value.split("\n")):
                for start in range(0, max(len(text), 1), room):
                    yield Branch(
                        str(number + 1) if not start else "", _Part(text[start : start + room]), "", branch.depth + 1
                    )

    def _close(self, index: int) -> None:
        branch = self._branches[index]
        end = index + 1
        while end < len(self._branches) and self._branches[end].depth > branch.depth:
            end += 1
        branch.is_open = False
        del self._branches[index + 1 : end]

    # Pointing

    def open_pointer(self, pointer: str) -> bool:
        """Open all that is around a place, and go there; False when there is no such place."""
        index = 0
        while index < len(self._branches):
            branch = self._branches[index]
            if branch.pointer == pointer and not isinstance(branch.value, _Part):
                self.reload()
                self.cursor = index
                return True
            if pointer.startswith(f"{branch.pointer}/") and isinstance(branch.value, dict | list):
                self._open(index)
            index += 1
        self.reload()
        return False

    def _open_deepest(self, pointer: str) -> str:
        """Open a place; of one that is not there, the innermost that is there and would hold it."""
        while not self.open_pointer(pointer):
            pointer = pointer.rpartition("/")[0]
        return pointer

    def find(self, text: str, by: int) -> str | None:
        """The next place, from the cursor's on, whose key or value has the text (in lower case), folded away or not."""
        if not self._branches:
            return None
        told = list(_walk(self._branches[0]))
        here = self._branches[self.cursor].pointer
        now = next((number for number, (place, _) in enumerate(told) if place == here), 0)
        order = [*told[now + 1 :], *told[: now + 1]] if by > 0 else [*told[:now][::-1], *told[now:][::-1]]
        return next((place for place, words in order if text in words), None)


class _Part(str):
    """A piece of a long text, which is no value of its own."""

    __slots__ = ()


def _walk(branch: Branch) -> Iterator[tuple[str, str]]:
    """Every place with its words, in lower case."""
    stack = [branch]
    while stack:
        one = stack.pop()
        told = (
            one.value
            if isinstance(one.value, str)
            else ""
            if isinstance(one.value, dict | list)
            else json.dumps(one.value)
        )
        yield one.pointer, f"{one.name} {told}".lower()
        if isinstance(one.value, dict | list):
            stack += reversed(list(children(one)))
