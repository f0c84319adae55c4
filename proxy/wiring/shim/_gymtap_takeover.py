"""The port takeover: the tap listens at the address that the configuration names, the server at a private one.

The private port is bound on a socket of ours first, and only once the tap listens is it moved under the
server's own file descriptor: so no port is chosen twice, and whatever fails leaves an unbound socket on which
the server binds as it would have.

Whatever imports `socket` first loads this module in the middle of its own import (`email.utils` does, which
`http.client` needs), so what talks to the tap is imported when a Gym server binds, and not before.
"""

import fcntl
import os
import socket as _socket

import _gymtap_config

_LOOPBACK = {_socket.AF_INET: "127.0.0.1", _socket.AF_INET6: "::1"}


class _Takeover:
    """What this process was granted. `private_port` is None until then, `refused` says that it never will be."""

    def __init__(self, bind):
        self._bind = bind
        self._public = None
        self._private_port = None
        self._lease = None
        self._refused = False

    def bind(self, sock, address):
        try:
            own = self._claim(sock, address)
        except Exception as error:  # noqa: BLE001 - a configuration that is read wrongly must not stop a bind
            _say_once(f"the address {address} is not captured: {error!r}")
            own = None
        if own is None:
            return self._bind(sock, address)
        if self._public == own[2:]:
            # the same name resolved to a second address, or a port that was tried before it was used
            return self._bind(sock, (_LOOPBACK[sock.family], self._private_port))
        return self._take(sock, address, own)

    def _claim(self, sock, address):
        """This process's own server when that is what is being bound, or None."""
        if sock.family not in _LOOPBACK or not sock.type & _socket.SOCK_STREAM or self._refused:
            return None
        if not isinstance(address, tuple) or len(address) < 2 or not address[1] or not _gymtap_config.in_gym():
            return None
        own = _gymtap_config.own_server()
        if own is None or own[3] != address[1] or not _names(own[2], address[0]):
            return None
        return own

    def _take(self, sock, address, own):
        name, kind, host, port = own
        try:
            private = self._granted(sock, name, kind, host, port)
        except Exception as error:  # noqa: BLE001 - whatever it is, the server binds as it would have
            self._refused = True
            _say_once(f"{name} at {host}:{port} is not captured: {error}")
            return self._bind(sock, address)
        import _gymtap_relay  # noqa: PLC0415 - see above

        with private:
            _adopt(sock, private)
        _gymtap_relay.guard(name, self._lease, (host, port), sock.getsockname()[:2], self._step_back)
        return None

    def _step_back(self):
        """From now on this process binds what it is told to."""
        self._refused = True

    def _granted(self, sock, name, kind, host, port):
        import _gymtap_control  # noqa: PLC0415 - see above

        private = _socket.socket(sock.family, _socket.SOCK_STREAM)
        try:
            self._bind(private, (_LOOPBACK[sock.family], 0))
            upstream = private.getsockname()[:2]
            message = {"name": name, "type": kind, "host": host, "port": port, "pid": os.getpid()}
            message.update(upstream_host=upstream[0], upstream_port=upstream[1], judges=_gymtap_config.judges())
            self._lease = _gymtap_control.lease("/takeover", message, "granted")
        except BaseException:
            private.close()
            raise
        self._public, self._private_port = (host, port), upstream[1]
        return private


def _say_once(text):
    import _gymtap_control  # noqa: PLC0415 - see above

    _gymtap_control.say_once(text)


def _names(host, address):
    """Whether a configured host name stands for a bound address."""
    if host == address:
        return True
    try:
        return any(found[4][0] == address for found in _socket.getaddrinfo(host, None))
    except OSError:
        return False


def _adopt(sock, private):
    """Put the bound socket under the descriptor of `sock`, which keeps its flags."""
    flags = fcntl.fcntl(sock.fileno(), fcntl.F_GETFL)
    reuse = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR)
    inheritable = os.get_inheritable(sock.fileno())
    os.dup2(private.fileno(), sock.fileno(), inheritable)
    fcntl.fcntl(sock.fileno(), fcntl.F_SETFL, flags)
    sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, reuse)


def install(module):
    """Wrap `socket.socket.bind`."""
    takeover = _Takeover(module.socket.bind)

    def bind(self, address):
        return takeover.bind(self, address)

    module.socket.bind = bind
