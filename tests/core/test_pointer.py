from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.pointer import at, escaped, has, pointer, unescaped


@given(st.text())
def test_any_key_comes_back(key: str) -> None:
    """Also one with the two characters that pointers are made of; no token has a slash."""
    assert unescaped(escaped(key)) == key
    assert "/" not in escaped(key)


def test_places_as_the_standard_has_them() -> None:
    """RFC 6901, 5."""
    assert pointer(()) == ""
    assert [pointer((key,)) for key in ("foo", "", "a/b", "m~n", 0)] == ["/foo", "/", "/a~1b", "/m~0n", "/0"]


def test_a_place_is_there_or_not() -> None:
    value = {"a": [{"b": 1}]}
    assert at(value, ("a", 0, "b")) == 1
    assert (has(value, "a"), has(value, 0), has(value["a"], 0), has(value["a"], 1), has("a", "a")) == (
        True, False, True, False, False,
    )  # fmt: skip
