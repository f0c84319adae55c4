"""What listens, as the kernel says it, held against sockets that do."""

import socket
import sys
from pathlib import Path

import pytest

from gymtap.proxy.listening import Holder, holder_of, is_listening, listening6

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


def test_nobody_holds_a_free_port(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    assert holder_of(port) is None
    assert holder_of(port, tmp_path) is None


def test_a_holder_that_cannot_be_looked_into_is_not_guessed(tmp_path: Path) -> None:
    """The port is seen to be taken, the process is another user's."""
    (tmp_path / "net").mkdir()
    row = "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4242 1"
    (tmp_path / "net" / "tcp").write_text(f"header\n{row}\n")
    assert holder_of(8080, tmp_path) == Holder(None, "")
    assert str(holder_of(8080, tmp_path)) == "a process of another user"
    descriptors = tmp_path / "17" / "fd"
    descriptors.mkdir(parents=True)
    (descriptors / "3").symlink_to("socket:[4242]")
    (tmp_path / "17" / "cmdline").write_bytes(b"python\0serve\n.py\0")
    assert str(holder_of(8080, tmp_path)) == "pid 17 (python serve .py)"
