"""Talk to the tap's control server from inside a Gym process, and to the person, in one line.

Plain `http.client`: no proxy variable, no retry, a short time-out, because a Gym process must never wait
long for a tap that is not there.
"""

import http.client
import json
import os
import sys

TIMEOUT_S = 10.0
_said = set()


class ControlError(Exception):
    """The tap did not answer, or said no; its text is the reason."""


def say_once(text):
    """One line on stderr, the same text once per process."""
    if text not in _said:
        _said.add(text)
        sys.stderr.write("gymtap: " + text + "\n")
        sys.stderr.flush()


def _open(path, message):
    address = os.environ.get("GYMTAP_CONTROL", "").partition("://")[2].rstrip("/")
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("GYMTAP_TOKEN", "")}
    try:
        connection.request("POST", path, json.dumps(message), headers)
        return connection, connection.getresponse()
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()
        raise ControlError(f"the tap's control server at {address} does not answer ({error})") from None


def _read(response, line, key):
    """The reply, a dict that has `key`: whatever else may listen at that port does not answer so."""
    try:
        reply = json.loads(line)
    except ValueError:
        reply = None
    if not isinstance(reply, dict) or not (key in reply or "error" in reply):
        raise ControlError(f"what answers at {os.environ.get('GYMTAP_CONTROL')} is not a tap")
    if response.status != 200 or key not in reply:
        raise ControlError(reply.get("error") or f"the tap answered {response.status}")
    return reply


def ask(path, message, key):
    """POST `message` and return the reply, a dict that has `key`. Raises ControlError."""
    connection, response = _open(path, message)
    try:
        return _read(response, response.read(), key)
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"the tap's control server broke off ({error})") from None
    finally:
        connection.close()


def lease(path, message, key):
    """POST `message`; return the connection and the response, which stay open, once the reply has `key`.

    The tap holds what it granted for as long as this connection lives, so that the kernel gives it back
    however this process ends. Raises ControlError.
    """
    connection, response = _open(path, message)
    try:
        _read(response, response.readline(), key)
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise ControlError(f"the tap's control server broke off ({error})") from None
    except ControlError:
        connection.close()
        raise
    if connection.sock is not None:
        connection.sock.settimeout(None)
    return connection, response
