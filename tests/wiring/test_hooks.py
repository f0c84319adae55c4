"""The hooks set themselves in any process, whatever it imports first; one that is not Gym's hardly notices."""

import os
import subprocess
import sys

import pytest

from gymtap.proxy.wiring.environment import Parts, wiring_variables

_FIRST = [
    *("asyncio", "email.utils", "http.client", "http.server", "importlib.metadata", "logging.handlers"),
    *("multiprocessing.connection", "socket", "socketserver", "ssl", "urllib.request", "xmlrpc.client"),
]


def _python(code: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | wiring_variables("http://127.0.0.1:1", "token", Parts(), os.environ)
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("first", _FIRST)
def test_socket_is_hooked_whatever_imports_it(first: str) -> None:
    """Some of these load `socket` while what the hooks need is half imported: nothing is said, `bind` is ours."""
    ran = _python(f"import {first}, socket; print(socket.socket.bind.__module__)")
    assert (ran.stdout, ran.stderr) == ("_gymtap_takeover\n", "")


def test_a_process_of_another_program_loads_nothing_that_talks() -> None:
    """Not before a Gym server binds is the way to the tap imported."""
    ran = _python("import socket, sys; print({'http.client', 'asyncio', 'json'} & set(sys.modules))")
    assert (ran.stdout, ran.stderr) == ("set()\n", "")
