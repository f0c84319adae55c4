"""What listens, as the kernel says it, held against sockets that do."""

import socket
import sys

import pytest

from gymtap.proxy.mitm.listening import is_listening, listening6

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tables are Linux's")


def test_a_port_listens_while_a_socket_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_listening(port)
        assert port not in listening6(port, port)
    assert not is_listening(port)


def test_over_ipv6() -> None:
    """A socket of both families counts, one of mapped IPv4 addresses does not, nor one outside the range."""
    try:
        both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        mapped = socket.create_server(("::ffff:127.0.0.1", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with both, mapped:
        port, other = both.getsockname()[1], mapped.getsockname()[1]
        assert port in listening6(1, 65535)
        assert other not in listening6(1, 65535)
        assert listening6(port + 1, port) == set()
        assert is_listening(other)
