"""Session tokens."""

import base64

from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.attribution import sessions


def cookie(session: str, time: str = "awzfew", more: str = "") -> str:
    payload = base64.b64encode(f'{{"session_id": "{session}"{more}}}'.encode()).decode()
    return f"{payload}.{time}.signature"


def test_reissue_is_the_same_session() -> None:
    """A cookie issued again, later, quoted, or with more in it, is the same session; another's id is not."""
    first = sessions.from_cookie("Tools___tools", cookie("one"))
    later = sessions.from_cookie("Tools___tools", f'"{cookie("one", "bxxxxx", ', "agent_session_id": "x"')}"')
    assert first == later is not None
    assert first != sessions.from_cookie("Tools___tools", cookie("two"))
    assert first != sessions.from_cookie("Tools___others", cookie("one"))


def test_tokens_keep_no_secret() -> None:
    """Nothing of a session id or a signature is left in a token."""
    session = sessions.from_cookie("Tools___tools", cookie("one-secret-id"))
    assert session is not None
    assert b"one-secret-id" not in session.token
    assert len(session.token) == 16


def test_request_and_response() -> None:
    """All cookies of a request, and every Set-Cookie of a response, are read; those that are not Gym's are not."""
    one, two = cookie("one"), cookie("two")
    request = (("cookie", f"A___a={one}; other=1; B___b={two}"),)
    response = (("set-cookie", f"A___a={one}; path=/; httponly"), ("Set-Cookie", f"B___b={two}"), ("Set-Cookie", "x=y"))
    assert [session.name for session in sessions.from_request(request)] == ["A___a", "B___b"]
    assert sessions.from_response(response) == sessions.from_request(request)


def test_body_hands_sessions_on() -> None:
    """Gym 0.7's agent sessions carry session ids and the resources server's cookie in their body."""
    accesses = [{"kind": "direct_http", "cookies": {"A___a": cookie("one")}}, "odd"]
    found = sessions.from_body({"agent_session_id": "s", "tool_accesses": accesses})
    assert [session.name for session in found] == ["agent_session_id", "A___a"]
    assert found[1] == sessions.from_cookie("A___a", cookie("one"))
    assert sessions.from_body({"resources_cookies": {"A___a": cookie("one")}}) == found[1:]


@settings(deadline=None, derandomize=True)
@given(name=st.text(), value=st.text())
def test_any_cookie_is_read(name: str, value: str) -> None:
    """No cookie, however odd, raises; without Gym's name it is no session."""
    session = sessions.from_cookie(name, value)
    assert session is None or "___" in name
