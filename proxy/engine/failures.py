"""Puts the system's errors into the record's words."""

import errno
import re
import socket
import ssl

from gymtap.proxy.engine.open_files import OUT_OF_FILES
from gymtap.proxy.engine.tls import explain
from gymtap.schemas import TransportError, TransportErrorKind

_ERRNO = re.compile(r"\[Errno (\d+)\]")


def connect_error(error: OSError | ValueError, host: str) -> TransportError:
    """Why there is no connection to `host`; ValueError is what asyncio raises for a name that cannot be one."""
    if isinstance(error, ssl.SSLError):
        return TransportError(kind=TransportErrorKind.TLS, message=explain(error, host))
    if isinstance(error, socket.gaierror | ValueError):
        return TransportError(
            kind=TransportErrorKind.UNREACHABLE, message=f"{host} does not resolve: {_one_line(error)}"
        )
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return TransportError(kind=TransportErrorKind.RESET, message=_one_line(error))
    if error.errno in OUT_OF_FILES:
        own = f"{_one_line(error)}: the tap's own; start it again with a higher `ulimit -n`"
        return TransportError(kind=TransportErrorKind.UNREACHABLE, message=own)
    # Several addresses tried: asyncio joins their errors into one text without a number.
    numbers = set(_ERRNO.findall(str(error)))
    if isinstance(error, ConnectionRefusedError) or numbers == {str(errno.ECONNREFUSED)}:
        return TransportError(kind=TransportErrorKind.REFUSED, message=_one_line(error))
    return TransportError(kind=TransportErrorKind.UNREACHABLE, message=_one_line(error))


def lost_error(error: Exception, host: str) -> TransportError:
    """Why the connection to `host` ended, where it did not end in order."""
    if isinstance(error, ssl.SSLError):
        return TransportError(kind=TransportErrorKind.TLS, message=explain(error, host))
    return TransportError(kind=TransportErrorKind.RESET, message=_one_line(error))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
