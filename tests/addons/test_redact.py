"""The addon leaves flows without secrets, and what other addons read from them afresh."""

import json

from gymtap.addons.redact import Redact
from gymtap.proxy.core.addon import Heard, Setup
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Server, TransportError, TransportErrorKind

SECRET = "Zq9vX7Lm2Tr5Wb8Kc4"


def flow() -> Flow:
    return Flow(
        id="a1",
        server=Server(name="model", listen="", upstream=""),
        started_ns=1,
        method="POST",
        target=f"/x?api_key={SECRET}",
        request_headers=(("Authorization", f"Bearer {SECRET}"), ("Host", "x")),
    )


def test_each_hook_cleans_what_it_brings() -> None:
    redact = Redact(Setup(Heard()))
    one = flow()
    redact.opened(one)
    assert (one.target, one.request_headers) == (
        "/x?api_key=<redacted>",
        (("Authorization", "Bearer <redacted>"), ("Host", "x")),
    )
    one.request_body, one.request_done_ms = json.dumps({"api_key": SECRET, "n": 1}).encode(), 1.0
    assert one.request_json["api_key"] == SECRET
    redact.requested(one)
    assert (one.request_json, one.request_redacted) == ({"api_key": "<redacted>", "n": 1}, 1)
    one.response_headers = (("Set-Cookie", f"a={SECRET}; path=/"),)
    one.response_body, one.reason = json.dumps({"error": f"bad key sk-{SECRET}"}).encode(), f"Bearer {SECRET}"
    one.error = TransportError(kind=TransportErrorKind.TLS, message=f"https://u:{SECRET}@host refused")
    assert SECRET in one.response_json["error"]
    redact.ended(one)
    assert (one.response_json, one.response_redacted) == ({"error": "bad key <redacted>"}, 1)
    assert one.response_headers == (("Set-Cookie", "a=<redacted>; path=/"),)
    assert (one.reason, one.error.message) == ("Bearer <redacted>", "https://u:<redacted>@host refused")


def test_a_request_that_was_never_whole_is_cleaned_at_the_end() -> None:
    redact = Redact(Setup(Heard()))
    one = flow()
    one.request_body = b'{"api_key": "' + SECRET.encode()
    redact.ended(one)
    assert one.request_body == b'{"api_key": "<redacted>'


def test_a_clean_body_stays_the_same_object_and_parsed_once() -> None:
    redact = Redact(Setup(Heard()))
    one = flow()
    one.request_body = body = b'{"n": 1}'
    parsed = one.request_json
    redact.requested(one)
    assert one.request_body is body
    assert one.request_json is parsed
