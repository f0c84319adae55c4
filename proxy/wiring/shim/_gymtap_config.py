"""What this process knows of Gym's configuration, read from where Gym 0.4 to 0.7 keeps it.

`nemo_gym.global_config._GLOBAL_CONFIG_DICT` is the resolved configuration, and NEMO_GYM_CONFIG_PATH the name
of this process's own entry in it: `{name: {type: {implementation: {host, port, ...}}}}`. The process that has
no such name is Gym's main one, which serves the head.
"""

import contextlib
import os
import sys

_LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104 - compared with, not bound


def in_gym():
    """Whether this process runs Gym's code."""
    return "nemo_gym" in sys.modules


def _config():
    module = sys.modules.get("nemo_gym.global_config")
    config = getattr(module, "_GLOBAL_CONFIG_DICT", None)
    return {} if config is None else config


def _children(node):
    """The (key, value) pairs of a mapping, without resolving what cannot be resolved."""
    return [(str(key), _value(node, key)) for key in list(node)]


def _value(node, key):
    """A mapping's value; None for a missing (`???`) or broken one, which is Gym's to complain about."""
    try:
        return node[key]
    except Exception:  # noqa: BLE001 - whatever the configuration's library raises
        return None


def _is_mapping(node):
    return hasattr(node, "keys") and hasattr(node, "__getitem__")


def _entry(instance):
    """(type, entry) of a named server, or None when it is not one."""
    for kind, implementations in _children(instance):
        if not _is_mapping(implementations):
            return None
        for _, entry in _children(implementations):
            return (kind, entry) if _is_mapping(entry) and "port" in entry else None
    return None


def servers():
    """{name: (type, entry)} of every server that the configuration names, the head included."""
    found = {}
    for name, instance in _children(_config()):
        if name == "head_server" and _is_mapping(instance) and "port" in instance:
            found[name] = ("head", instance)
        elif _is_mapping(instance):
            entry = _entry(instance)
            if entry is not None:
                found[name] = entry
    return found


def own_name():
    """The name of this process's own entry."""
    return os.environ.get("NEMO_GYM_CONFIG_PATH") or "head_server"


def own_server():
    """(name, type, host, port) that this process is to serve, or None."""
    name = own_name()
    kind, entry = servers().get(name, (None, None))
    if entry is None or not entry.get("host") or not entry.get("port"):
        return None
    return name, kind, str(entry["host"]), int(entry["port"])


def own_type():
    """The type of this process's own entry (`responses_api_models`), or empty."""
    return servers().get(os.environ.get("NEMO_GYM_CONFIG_PATH"), ("",))[0]


def is_gym_address(host, port):
    """Whether the configuration names a server at that address; loopback's names are one."""
    names = _LOOPBACK if host in _LOOPBACK else (host,)
    return any(
        str(entry.get("port")) == str(port) and str(entry.get("host")) in names for _, entry in servers().values()
    )


def mentions(origin, limit=20):
    """The key paths (`policy_model.responses_api_models.vllm_model.base_url`) of values that begin with `origin`."""
    found = []
    with contextlib.suppress(Exception):  # a broken value ends the search; what was found is good
        _search(_config(), (), origin, found, limit)
    return found


def _search(node, path, origin, found, limit):
    if len(found) >= limit:
        return
    if isinstance(node, str):
        rest = node[len(origin) : len(origin) + 1]
        if node.startswith(origin) and rest in ("", "/", "?"):
            found.append(".".join(path))
    elif _is_mapping(node):
        for key, child in _children(node):
            _search(child, (*path, key), origin, found, limit)
    elif hasattr(node, "__iter__") and not isinstance(node, bytes):
        for child in list(node):
            _search(child, path, origin, found, limit)


def judges(limit=20):
    """The names of servers that some entry refers to under a key that says judge."""
    found = set()
    for _, entry in servers().values():
        for key, child in _children(entry):
            if "judge" in key.lower() and _is_mapping(child) and isinstance(child.get("name"), str):
                found.add(child["name"])
    return sorted(found)[:limit]
