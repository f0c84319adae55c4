"""Origins are read as people write them, and compared as the network does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.wiring.origin import Origin


@pytest.mark.parametrize(
    ("text", "url", "authority"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("https://api.example.com", "https://api.example.com:443", "api.example.com"),
        ("https://api.example.com/", "https://api.example.com:443", "api.example.com"),
        ("http://API.example.com:80", "http://api.example.com:80", "api.example.com"),
        ("http://[::1]:9", "http://[::1]:9", "[::1]:9"),
    ],
)
def test_reads_what_people_write(text: str, url: str, authority: str) -> None:
    """The port is the scheme's own unless it is given, and the authority shows it only where it is not."""
    origin = Origin.parse(text)
    assert (origin.url, origin.authority) == (url, authority)
    assert Origin.parse(origin.url) == origin


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("127.0.0.1:8000", "does not begin with http"),
        ("ftp://host", "does not begin with http"),
        ("http://", "names no host"),
        ("http://host/v1", "more than scheme://host:port"),
        ("http://host?x=1", "more than scheme://host:port"),
        ("http://user:secret@host", "more than scheme://host:port"),
        ("http://host:99999", "no usable port"),
        ("http://host:http", "no usable port"),
        ("http://[::1", "Invalid IPv6"),
    ],
)
def test_says_what_is_wrong(text: str, reason: str) -> None:
    """What is not an origin is refused with its reason."""
    with pytest.raises(ValueError, match=reason):
        Origin.parse(text)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("http://127.0.0.2:1", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("http://127.example.com:1", False),
        ("http://0.0.0.0:1", False),
        ("http://10.0.0.1:1", False),
    ],
)
def test_knows_what_only_this_machine_reaches(text: str, local: bool) -> None:
    """A name that begins like a loopback address is none."""
    assert Origin.parse(text).loopback is local


@given(st.text())
def test_refuses_any_text_with_a_value_error(text: str) -> None:
    """No text whatever raises anything but ValueError."""
    try:
        origin = Origin.parse(text)
    except ValueError:
        return
    assert origin.scheme in ("http", "https")


@pytest.mark.parametrize(
    ("client", "listener", "arrives"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1", True),
        ("http://localhost:1", "http://127.0.0.1:1", True),
        ("http://127.0.0.1:1", "http://0.0.0.0:1", True),
        ("http://10.0.0.1:1", "http://10.0.0.1:1", True),
        ("http://10.0.0.1:1", "http://127.0.0.1:1", False),
        ("http://127.0.0.1:1", "http://127.0.0.1:2", False),
        ("https://127.0.0.1:1", "http://127.0.0.1:1", False),
    ],
)
def test_knows_which_listener_a_connection_arrives_at(client: str, listener: str, arrives: bool) -> None:
    """Loopback's names are one address; other hosts are not."""
    assert Origin.parse(client).reaches(Origin.parse(listener)) is arrives
