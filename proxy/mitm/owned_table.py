"""The redirection as a table of nftables' that a socket of this process owns: the kernel drops it with the process.

It is written to the kernel directly (Linux 5.12 or later, include/uapi/linux/netfilter/nf_tables.h), since `nft` cannot
hold a table for others, and nothing has to be installed then. What the proxy itself sends is told by its group, and
goes where it was meant to.

IPv4 is redirected as a whole range. Over IPv6 only ports at which something listens are: a client of `localhost` tries
::1 first, and has to be refused there, as without a tap, to go on to 127.0.0.1.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator

from gymtap.proxy.mitm.rules import Redirection, RuleError

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 10  # NFNL_SUBSYS_NFTABLES
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE, _NEW_SET, _NEW_ELEMENT, _DELETE_ELEMENT = 0, 3, 6, 9, 12, 14
_INET = 1  # NFPROTO_INET: both families in one table
_OWNED = 2  # NFT_TABLE_F_OWNER
_OUTPUT, _BEFORE_ROUTING = 3, -100  # NF_INET_LOCAL_OUT, NF_IP_PRI_NAT_DST
_REGISTER = 1
_EQUAL, _OTHER, _UP_TO, _FROM = 0, 1, 3, 5
_OUT_NAME, _GROUP, _FAMILY, _PROTOCOL = 7, 11, 15, 16  # NFT_META_...
_ERROR = 2  # NLMSG_ERROR, also of an acknowledgement
_CHAIN, _PORTS = "output", "listening6"
_UNKNOWN = {errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.ENOENT}


class UnsupportedError(RuleError):
    """This kernel has no tables that are owned."""


class OwnedTable:
    """The rule, from `open` to `close` or to the end of this process, however it ends. Use it on one thread."""

    def __init__(self, redirection: Redirection, to_port6: int | None = None) -> None:
        """Over IPv6 connections go to `to_port6`; None: they are not redirected."""
        self._redirection = redirection
        self._to_port6 = to_port6
        self._name = f"gymtap-{os.getpid()}"
        self._socket: socket.socket | None = None
        self._ports6: frozenset[int] = frozenset()

    def open(self) -> None:
        """Make the table. Raises UnsupportedError where the kernel cannot, RuleError where it refuses."""
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
            self._socket.bind((0, 0))
            self._send(*self._table())
        except OSError as error:
            self.close()
            kind = UnsupportedError if error.errno in _UNKNOWN else RuleError
            raise kind(f"the kernel refuses a table of nftables': {error.strerror}") from None

    def redirect6(self, ports: Iterable[int]) -> None:
        """The ports that are redirected over IPv6 from now on. Raises RuleError."""
        wanted = frozenset(ports)
        changes = [(_DELETE_ELEMENT, self._ports6 - wanted), (_NEW_ELEMENT, wanted - self._ports6)]
        messages = [self._elements(kind, numbers) for kind, numbers in changes if numbers]
        if not messages:
            return
        try:
            self._send(*messages)
        except OSError as error:
            raise RuleError(f"the kernel refuses to change the table {self._name}: {error.strerror}") from None
        self._ports6 = wanted

    def close(self) -> None:
        """Give up the socket, and with it the table. Twice is harmless."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _table(self) -> list[bytes]:
        named = _text(1, self._name)
        hook = _nested(4, _number(1, _OUTPUT) + _number(2, _BEFORE_ROUTING))
        ports = (
            _text(2, _PORTS) + _number(3, 0) + _number(4, 13) + _number(5, 2) + _number(10, 1)
        )  # `type inet_service`
        return [
            _message(_NEW_TABLE, named + _number(2, _OWNED)),
            _message(_NEW_CHAIN, named + _text(3, _CHAIN) + hook + _text(7, "nat")),
            _message(_NEW_SET, named + ports),
            *(_message(_NEW_RULE, named + _text(2, _CHAIN) + _nested(4, rule)) for rule in self._rules()),
        ]

    def _rules(self) -> Iterator[bytes]:
        what = self._redirection
        low, high = (_compare(_port(number), how) for number, how in ((what.low, _FROM), (what.high, _UP_TO)))
        yield self._rule(socket.AF_INET, low + high, what.to_port)
        if self._to_port6 is not None:
            listening = _expression("lookup", _text(1, _PORTS) + _number(2, _REGISTER) + _number(4, 1))
            yield self._rule(socket.AF_INET6, listening, self._to_port6)

    def _rule(self, family: socket.AddressFamily, ports: bytes, to_port: int) -> bytes:
        """New connections over loopback, of processes of other groups, to those ports."""
        matched = _meta(_FAMILY, bytes([family])) + _meta(_OUT_NAME, b"lo\0")
        matched += _meta(_PROTOCOL, bytes([socket.IPPROTO_TCP]))
        matched += _meta(_GROUP, struct.pack("=I", self._redirection.gid), _OTHER)
        port = _expression("immediate", _number(1, _REGISTER) + _nested(2, _attribute(1, _port(to_port))))
        return matched + _DESTINATION + ports + port + _expression("redir", _number(1, _REGISTER))

    def _elements(self, kind: int, ports: Iterable[int]) -> bytes:
        keys = b"".join(_nested(1, _nested(1, _attribute(1, _port(port)))) for port in ports)
        return _message(kind, _text(1, self._name) + _text(2, _PORTS) + _nested(3, keys))

    def _send(self, *messages: bytes) -> None:
        """All of them or none. Raises OSError with the kernel's reason."""
        assert self._socket is not None
        batch = [_packet(_BATCH_BEGIN, _REQUEST, _SUBSYSTEM), *messages, _packet(_BATCH_END, _REQUEST, _SUBSYSTEM)]
        self._socket.send(b"".join(batch))
        answered = 0
        while answered < len(messages):
            for failure in _acknowledged(self._socket.recv(2**16)):
                if failure:
                    raise OSError(failure, os.strerror(failure))
                answered += 1


def _acknowledged(data: bytes) -> Iterator[int]:
    """An errno, or 0, for each acknowledgement in what the kernel said."""
    while data:
        length, kind = struct.unpack_from("=IH", data)
        if kind == _ERROR:
            yield -struct.unpack_from("=i", data, 16)[0]
        data = data[_aligned(length) :]


def _message(kind: int, attributes: bytes) -> bytes:
    flags = _REQUEST | _ACK | _CREATE | (_APPEND if kind == _NEW_RULE else 0)
    return _packet(_SUBSYSTEM << 8 | kind, flags, 0, _INET, attributes)


def _packet(kind: int, flags: int, resource: int, family: int = 0, attributes: bytes = b"") -> bytes:
    """A netlink header, nfnetlink's own, and the attributes."""
    body = struct.pack(">BBH", family, 0, resource) + attributes
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(_aligned(length) - length)


def _nested(kind: int, value: bytes) -> bytes:
    return _attribute(kind | 0x8000, value)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack(">i", value))


def _port(number: int) -> bytes:
    return struct.pack(">H", number)


def _expression(name: str, attributes: bytes) -> bytes:
    return _nested(1, _text(1, name) + _nested(2, attributes))


def _compare(value: bytes, how: int = _EQUAL) -> bytes:
    data = _nested(3, _attribute(1, value))
    return _expression("cmp", _number(1, _REGISTER) + _number(2, how) + data)


def _meta(key: int, value: bytes, how: int = _EQUAL) -> bytes:
    return _expression("meta", _number(1, _REGISTER) + _number(2, key)) + _compare(value, how)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


_DESTINATION = _expression(  # the TCP header's bytes 2 and 3, where NFT_PAYLOAD_TRANSPORT_HEADER is 2
    "payload", _number(1, _REGISTER) + _number(2, 2) + _number(3, 2) + _number(4, 2)
)
