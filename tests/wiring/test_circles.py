"""Routes that come back to themselves."""

import pytest

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.wiring.circles import Route, check_circles
from gymtap.proxy.wiring.origin import Origin


def route(name: str, listen: str, upstream: str) -> Route:
    return Route(name, Origin.parse(f"http://{listen}"), Origin.parse(upstream))


def test_one_that_calls_itself() -> None:
    """Whatever loopback is called, and with TLS or without."""
    for upstream in ("http://localhost:9", "https://[::1]:9"):
        with pytest.raises(UsageError, match="a would call itself"):
            check_circles([route("a", "127.0.0.1:9", upstream)])


def test_some_that_call_each_other() -> None:
    """They are named in order; another that only leads into the circle is not blamed for it."""
    entry = route("entry", "127.0.0.1:5", "http://127.0.0.1:6")
    circle = [route("a", "127.0.0.1:6", "http://127.0.0.1:7"), route("b", "0.0.0.0:7", "http://127.0.0.1:6")]
    with pytest.raises(UsageError, match="in a circle: a -> b -> a") as caught:
        check_circles([entry, *circle])
    assert "lead to a server" in caught.value.hint


def test_chains_are_none() -> None:
    check_circles([route("a", "127.0.0.1:6", "http://127.0.0.1:7"), route("b", "127.0.0.1:7", "http://10.0.0.1:6")])
    check_circles([])
