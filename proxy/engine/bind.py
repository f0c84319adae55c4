"""Binds a listener's port, and says who has it when somebody does."""

import errno
import socket

from gymtap.proxy.core.errors import ListenError
from gymtap.proxy.listening import holder_of

BACKLOG = 4096
"""Thousands of clients may connect at once; the kernel caps it at net.core.somaxconn."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of `host`, at one `port` (0: any free one), as a server of that host would.

    Raises ListenError.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _refused(host, port, error) from None
    bound: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(infos):
            bound += _bind_one(family, (address[0], port, *address[2:]), optional=bool(bound))
            port = bound[0].getsockname()[1]
    except OSError as error:
        for sock in bound:
            sock.close()
        raise _refused(host, port, error) from None
    return bound


def _bind_one(family: int, address: tuple[str | int, ...], *, optional: bool) -> list[socket.socket]:
    """One listening socket; none where it is `optional` and this machine does not have the address (IPv6, say)."""
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if optional and error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
            return []
        raise
    sock.setblocking(False)
    return [sock]


def as_tcp(sock: socket.socket) -> socket.socket:
    """The same socket, known as TCP: asyncio sets TCP_NODELAY only on what it knows to be TCP. `sock` is detached."""
    same = socket.socket(sock.family, sock.type, socket.IPPROTO_TCP, fileno=sock.detach())
    same.setblocking(False)
    return same


def _refused(host: str, port: int, error: OSError) -> ListenError:
    if error.errno != errno.EADDRINUSE:
        return ListenError(f"cannot listen on {host}:{port}: {error.strerror}", "choose another address or port")
    owner = holder_of(port)
    by = f" by {owner}" if owner else ""
    return ListenError(
        f"port {host}:{port} is taken{by}", "stop that process, or choose another port (0 is any free one)"
    )
