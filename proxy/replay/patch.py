"""JSON pointers (RFC 6901) and patches (RFC 6902) over values read from JSON.

Applying never changes its input. `assign`, behind `--set`, is `add` with one more kindness: on an array an
index that exists is replaced, not pushed along. Errors name the deepest part of the pointer that exists.
"""

import copy
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.pointer import pointer as pointer_of
from gymtap.proxy.core.pointer import unescaped

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "(absent)", "__deepcopy__": lambda self, _: self})()
"""What is not there, where None is a JSON null."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")

type Operation = dict[str, Any]


def split(pointer: str) -> list[str]:
    """The reference tokens of a pointer; "" is the whole document. Raises UsageError when it is not one."""
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise UsageError(
            f"{pointer!r} is not a JSON pointer", "write it with a leading slash: /verifier_metadata/answer"
        )
    return [unescaped(token) for token in pointer[1:].split("/")]


def read(document: Any, pointer: str) -> Any:
    """The value at `pointer`, or MISSING."""
    value = document
    for token in split(pointer):
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and _is_index(token, len(value)):
            value = value[int(token)]
        else:
            return MISSING
    return value


def assign(document: Any, pointer: str, value: Any) -> Any:
    """A copy of `document` with `value` at `pointer`: replaced where something is there, added where not."""
    present = read(document, pointer) is not MISSING
    operation = {"op": "replace" if present else "add", "path": pointer, "value": value}
    return apply(document, [operation])


def apply(document: Any, operations: Sequence[Operation]) -> Any:
    """A copy of `document` after all operations, in order.

    Raises UsageError at the first operation that is malformed or does not apply; then nothing is applied.
    """
    result = copy.deepcopy(document)
    for number, operation in enumerate(operations, start=1):
        try:
            result = _apply(result, operation)
        except UsageError as error:
            where = f"operation {number}: " if len(operations) > 1 else ""
            raise UsageError(f"{where}{error}", error.hint) from None
    return result


def parse(text: bytes | str) -> list[Operation]:
    """Operations from a patch document. Raises UsageError when it is not a JSON array of objects with `op`."""
    try:
        operations = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the patch is not JSON: {error}") from None
    if not isinstance(operations, list) or not all(isinstance(one, dict) and "op" in one for one in operations):
        raise UsageError(
            "the patch is not an array of operations", 'RFC 6902: [{"op": "add", "path": "/a", "value": 1}]'
        )
    return operations


def _apply(document: Any, operation: Operation) -> Any:
    known: dict[str, Callable[[Any, Operation], Any]] = {
        "add": lambda doc, op: _add(doc, _member(op, "path"), copy.deepcopy(_value(op))),
        "remove": lambda doc, op: _remove(doc, _member(op, "path"))[0],
        "replace": lambda doc, op: _replace(doc, _member(op, "path"), copy.deepcopy(_value(op))),
        "move": _move,
        "copy": lambda doc, op: _add(doc, _member(op, "path"), copy.deepcopy(_present(doc, _member(op, "from")))),
        "test": _test,
    }
    name = operation.get("op")
    if name not in known:
        raise UsageError(f"{name!r} is not a patch operation", "one of " + ", ".join(known))
    return known[name](document, operation)


def _member(operation: Operation, name: str) -> str:
    pointer = operation.get(name)
    if not isinstance(pointer, str):
        raise UsageError(f"a patch operation `{operation.get('op')}` needs {name!r}")
    return pointer


def _value(operation: Operation) -> Any:
    if "value" not in operation:
        raise UsageError(f"a patch operation `{operation.get('op')}` needs 'value'")
    return operation["value"]


def _present(document: Any, pointer: str) -> Any:
    value = read(document, pointer)
    if value is MISSING:
        raise _absent(document, pointer)
    return value


def _add(document: Any, pointer: str, value: Any) -> Any:
    tokens = split(pointer)
    if not tokens:
        return value
    parent, last = _parent(document, tokens), tokens[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif _is_index(last, len(parent) + 1):
        parent.insert(int(last), value)
    else:
        raise _absent(document, pointer)
    return document


def _remove(document: Any, pointer: str) -> tuple[Any, Any]:
    removed = _present(document, pointer)
    tokens = split(pointer)
    if not tokens:
        return None, removed
    parent = _parent(document, tokens)
    del parent[tokens[-1] if isinstance(parent, dict) else int(tokens[-1])]
    return document, removed


def _replace(document: Any, pointer: str, value: Any) -> Any:
    _present(document, pointer)
    tokens = split(pointer)
    if not tokens:
        return value
    parent = _parent(document, tokens)
    parent[tokens[-1] if isinstance(parent, dict) else int(tokens[-1])] = value
    return document


def _move(document: Any, operation: Operation) -> Any:
    source, target = _member(operation, "from"), _member(operation, "path")
    if target.startswith(source + "/"):
        raise UsageError(f"{source!r} cannot be moved into itself")
    document, value = _remove(document, source)
    return _add(document, target, value)


def _test(document: Any, operation: Operation) -> Any:
    pointer, expected = _member(operation, "path"), _value(operation)
    found = _present(document, pointer)
    if not same(found, expected):
        raise UsageError(f"the patch tests {pointer!r} for {shown(expected)}, but it is {shown(found)}")
    return document


def same(one: Any, other: Any) -> bool:
    """JSON equality: 1 equals 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return bool(one == other)


def shown(value: Any, limit: int = 80) -> str:
    """A value as one bounded line."""
    text = repr(value) if value is MISSING else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _parent(document: Any, tokens: list[str]) -> Any:
    parent = read(document, pointer_of(tokens[:-1]))
    if not isinstance(parent, dict | list):
        raise _absent(document, pointer_of(tokens))
    return parent


def _absent(document: Any, pointer: str) -> UsageError:
    tokens = split(pointer)
    while tokens and read(document, pointer_of(tokens)) is MISSING:
        tokens.pop()
    found = read(document, pointer_of(tokens))
    where = pointer_of(tokens) or "the body"
    if isinstance(found, dict):
        return UsageError(f"there is no {pointer} in the body", f"{where} has: {', '.join(found) or 'nothing'}")
    if isinstance(found, list):
        return UsageError(f"there is no {pointer} in the body", f"{where} is an array of {len(found)}")
    return UsageError(f"there is no {pointer} in the body", f"{where} is {shown(found)}")


def _is_index(text: str, length: int) -> bool:
    return _INDEX.fullmatch(text) is not None and int(text) < length
