"""A mapping that does not parse says which part is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.wiring.mapping import parse_mapping
from gymtap.schemas import ServerKind


@pytest.mark.parametrize(
    ("text", "name", "kind", "listen", "upstream"),
    [
        ("policy=8001->http://127.0.0.1:8000", "policy", "unknown", "http://127.0.0.1:8001", "http://127.0.0.1:8000"),
        ("p:provider=:8001->8000", "p", "provider", "http://127.0.0.1:8001", "http://127.0.0.1:8000"),
        (
            "j:Judge = 0.0.0.0:1 -> https://judge.example.com",
            "j",
            "judge",
            "http://0.0.0.0:1",
            "https://judge.example.com:443",
        ),
        ("a=http://[::1]:1->host:2", "a", "unknown", "http://[::1]:1", "http://host:2"),
        ("a=[::1]:1->[::1]:2", "a", "unknown", "http://[::1]:1", "http://[::1]:2"),
        ("a=0->9", "a", "unknown", "http://127.0.0.1:0", "http://127.0.0.1:9"),
    ],
)
def test_reads_short_and_long_forms(text: str, name: str, kind: str, listen: str, upstream: str) -> None:
    """Loopback and http are what is not written."""
    mapping = parse_mapping(text)
    server = mapping.server
    assert (server.name, server.kind, server.listen, server.upstream) == (name, ServerKind(kind), listen, upstream)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("policy", "has no '='"),
        ("policy=8001", "has no '->'"),
        ("=8001->8000", "has no name"),
        (":model=8001->8000", "has no name"),
        ("p:modell=8001->8000", "unknown kind 'modell'"),
        ("p=https://127.0.0.1:1->8000", "listen with TLS"),
        ("p=host->8000", "no port in LISTEN 'host'"),
        ("p=[::1]->8000", "no port in LISTEN"),
        ("p=127.0.0.1:99999->8000", "unusable LISTEN '127.0.0.1:99999'"),
        ("p=->8000", "unusable LISTEN ''"),
        ("p=8001->", "unusable UPSTREAM ''"),
        ("p=8001->http://host:1/v1", "unusable UPSTREAM 'http://host:1/v1'"),
        ("p=8001->ftp://host", "unusable UPSTREAM 'ftp://host'"),
    ],
)
def test_says_which_part_is_wrong(text: str, reason: str) -> None:
    """One line that names the part, and a hint that shows the form."""
    with pytest.raises(UsageError) as caught:
        parse_mapping(text)
    assert reason in str(caught.value)
    assert caught.value.hint


@given(st.text() | st.from_regex(r"[a-z:]*=[0-9a-z:\[\]/.]*->[0-9a-z:\[\]/.]*", fullmatch=True))
def test_any_text_is_a_mapping_or_a_usage_error(text: str) -> None:
    """No text whatever raises anything else."""
    try:
        mapping = parse_mapping(text)
    except UsageError:
        return
    assert mapping.listen.scheme == "http"
