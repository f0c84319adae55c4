"""Loaded by every Python process of a Gym run: arm the hooks, then run the `sitecustomize` that this one hides.

It costs a process that is not Gym's one small module: each hook waits for the library that it hooks, and
its own code is loaded only then. Whatever fails here leaves the process as it would be without gymtap.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100,PTH120 - pathlib would slow every start

_HOOKS = {
    # the library's module: (the switch that turns it off, our module with `install(module)`)
    "socket": ("GYMTAP_NO_TAKEOVER", "_gymtap_takeover"),
    "starlette.applications": ("GYMTAP_NO_CAUSALITY", "_gymtap_causality"),
    "aiohttp.connector": ("", "_gymtap_aiohttp"),
    "httpx._transports.default": ("", "_gymtap_httpx"),
}


def _say(text):
    sys.stderr.write("gymtap: " + text + "\n")
    sys.stderr.flush()


def _install(name, module):
    try:
        __import__(_HOOKS[name][1])
        sys.modules[_HOOKS[name][1]].install(module)
    except Exception as error:  # noqa: BLE001 - a hook that fails must not fail the process it is in
        _say("cannot hook " + name + ", its traffic is not captured: " + repr(error))


class _AfterImport:
    """A meta path finder that runs a hook once its module has been executed."""

    def __init__(self, names):
        self._waiting = set(names)

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - the import system's signature
        if name not in self._waiting:
            return None
        self._waiting.discard(name)
        import importlib.util  # noqa: PLC0415 - not needed by most processes

        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _install(name, module)

        spec.loader.exec_module = exec_module
        return spec


def _arm():
    names = [name for name, (switch, _) in _HOOKS.items() if not (switch and os.environ.get(switch))]
    present = [name for name in names if name in sys.modules]
    sys.meta_path.insert(0, _AfterImport(set(names) - set(present)))
    for name in present:
        _install(name, sys.modules[name])


def _run_hidden():
    """Run the next `sitecustomize` on the path as if this one were not there; its errors are its own.

    The import system is taken from where the interpreter has it already: `importlib` would cost every start.
    """
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100 - as above
    spec = sys.modules["_frozen_importlib_external"].PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = sys.modules["_frozen_importlib"].module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("GYMTAP_CONTROL"):
    try:
        _arm()
    except Exception as error:  # noqa: BLE001 - the process goes on without us
        _say("the hooks were not set, nothing of this process is captured: " + repr(error))
_run_hidden()
