"""Reads Gym configurations as they are written: variables and keys that nothing defines, and ports that are taken.

Only what is plainly missing is said. A key may also come from the command line, so one that only a `${key}` names is
a warning; `${oc.env:NAME}` without a default and without the variable cannot resolve in this environment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gymtap.proxy.core.errors import UsageError

_ENVIRONMENT = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)\s*(,)?")
_KEY = re.compile(r"\$\{\s*([A-Za-z_][\w.\-]*)\s*\}")
_MISSING = "???"


@dataclass(frozen=True)
class Flaw:
    """`rule` is a diagnosis rule's id; `where` a file and the dotted path in it."""

    rule: str
    where: str
    text: str
    certain: bool = True


def read_configs(paths: Iterable[Path]) -> tuple[dict[str, Any], list[tuple[str, Any]], list[Flaw]]:
    """(all of them merged at the top, each with its name, what is no YAML). Raises UsageError for what is not there."""
    merged: dict[str, Any] = {}
    each: list[tuple[str, Any]] = []
    flaws: list[Flaw] = []
    for path in paths:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}", "--config takes YAML files") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            place = f"{path.name}:{mark.line + 1}" if mark is not None else path.name
            flaws.append(Flaw("config.yaml", place, f"{place} is not YAML: {getattr(error, 'problem', error)}"))
            continue
        each.append((path.name, content))
        if isinstance(content, dict):
            merged |= content
    return merged, each, flaws


def unresolved(
    each: Iterable[tuple[str, Any]], merged: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[Flaw]:
    """Variables that are not set, keys that are not there, and values left at `???`."""
    for name, content in each:
        for path, text in _strings(content, ""):
            where = f"{name}: {path}"
            for variable, default in _ENVIRONMENT.findall(text):
                if not default and variable not in environment:
                    yield Flaw(
                        "config.credentials_missing", where, f"{where} needs the variable {variable}, not set here"
                    )
            for key in _KEY.findall(text):
                if not _has(merged, key):
                    text_of = f"{where} is ${{{key}}}, which no given file defines"
                    yield Flaw("config.interpolation", where, text_of, certain=False)
            if text == _MISSING and _at(merged, path) == _MISSING:
                yield Flaw("config.interpolation", where, f"{where} is ???, which something must give", certain=False)


def _strings(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, dict):
        for name, item in node.items():
            yield from _strings(item, f"{path}.{name}" if path else str(name))
    elif isinstance(node, list):
        for number, item in enumerate(node):
            yield from _strings(item, f"{path}[{number}]")


def _has(merged: Mapping[str, Any], key: str) -> bool:
    return _at(merged, key) is not None or key.startswith((".", "oc."))


def _at(merged: Mapping[str, Any], dotted: str) -> Any:
    node: Any = merged
    for part in dotted.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def resolved(value: Any, config: Mapping[str, Any], depth: int = 8) -> Any:
    """A value with its whole-key interpolation (`${policy_base_url}`) looked up; as it is where that leads nowhere.

    A head's configuration carries them unresolved (Gym 0.7.0).
    """
    match = _KEY.fullmatch(value) if isinstance(value, str) else None
    found = _at(config, match[1]) if match is not None else None
    return value if found is None or depth == 0 else resolved(found, config, depth - 1)


def entries(config: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(name, type, entry) of every server instance, `{name: {type: {implementation: entry}}}` (Gym 0.5 to 0.7)."""
    for name, instance in config.items():
        for server_type, implementations in instance.items() if isinstance(instance, dict) else ():
            entry = next(iter(implementations.values()), None) if isinstance(implementations, dict) else None
            if isinstance(entry, dict) and str(server_type).startswith(("resources", "responses_api", "environment")):
                yield str(name), str(server_type), entry


def fixed_ports(config: Mapping[str, Any]) -> dict[int, str]:
    """Ports that the configuration fixes, with the server's name."""
    found: dict[int, str] = {}
    head = config.get("head_server")
    if isinstance(head, dict) and isinstance(head.get("port"), int):
        found[head["port"]] = "the head server"
    for name, _, entry in entries(config):
        if isinstance(entry.get("port"), int):
            found[entry["port"]] = name
    return found


def agents_without_servers(config: Mapping[str, Any]) -> Iterator[Flaw]:
    """References `{type: …, name: X}` whose X is no server of the configuration."""
    names = {name for name, _, _ in entries(config)}
    for name, _, entry in entries(config):
        for key, item in entry.items():
            target = item.get("name") if isinstance(item, dict) and {"type", "name"} <= item.keys() else None
            if isinstance(target, str) and "$" not in target and target != _MISSING and target not in names:
                text = f"{name}.{key} refers to {target}, which no given file defines"
                yield Flaw("config.server_name", name, text, certain=False)
