"""Redaction leaves no planted secret, changes nothing else, and can be run over its own work."""

import gzip
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.redaction import PLACEHOLDER, Redactor

SECRET = "Zq9vX7Lm2Tr5Wb8Kc4"
REDACTOR = Redactor()

SHAPES = [
    "sk-" + SECRET,
    "sk-ant-api03-" + SECRET,
    "sk-proj-" + SECRET + "_" + SECRET,
    "nvapi-" + SECRET,
    "hf_" + SECRET,
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + SECRET * 2,
    "github_pat_" + SECRET * 2,
    "glpat-" + SECRET,
    "xoxb-123456789012-" + SECRET,
    "AIza" + SECRET * 2,
    "gsk_" + SECRET,
    "SG." + SECRET + "." + SECRET,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + SECRET,
]
NAMES = [
    "api_key", "apiKey", "policy_api_key", "OPENAI_API_KEY", "x-api-key", "authorization", "Authorization", "password",
    "db_passwd", "client_secret", "secret", "aws_secret_access_key", "access_key", "private_key", "access_token",
    "refreshToken", "hf_token", "HF_TOKEN", "token", "session_token", "credentials", "passphrase", "judge_api_key",
]  # fmt: skip


def gym_error(server: str, inner: str) -> str:
    """As a Gym server answers when the server behind it answered `inner` (NeMo Gym 0.7.0)."""
    return json.dumps(f"Hit an exception in {server} calling an inner server: {inner.encode()!r}")


def body(text: str) -> str:
    clean, _ = REDACTOR.body(text.encode())
    return clean.decode()


WRAPPINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "in JSON": lambda text: json.dumps({"detail": text}),
    "in JSON in JSON": lambda text: json.dumps({"detail": json.dumps({"inner": text})}),
    "in a Gym error": lambda text: gym_error("A___a", text),
    "in a Gym error in a Gym error": lambda text: gym_error("A___a", gym_error("B___b", text)),
    "in an event stream": lambda text: "event: x\ndata: " + json.dumps({"delta": text}) + "\n\n",
    "in a log line": lambda text: f"2026-01-01 ERROR request failed: {text}\n",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS.values(), ids=list(WRAPPINGS))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_key_is_known_by_its_shape(shape: str, wrapping: Callable[[str], str]) -> None:
    for text in (shape, f"key {shape} was refused", f"a\n{shape}\nb", f"x={shape}&y", f"'{shape}'"):
        clean = body(wrapping(text))
        assert SECRET not in clean
        assert "AKIAIOSFODNN7EXAMPLE" not in clean
        assert PLACEHOLDER in clean


@pytest.mark.parametrize("wrapping", WRAPPINGS.values(), ids=list(WRAPPINGS))
@pytest.mark.parametrize("name", NAMES)
def test_a_secret_is_known_by_its_name(name: str, wrapping: Callable[[str], str]) -> None:
    for text in (
        json.dumps({"a": [{name: SECRET, "b": 1}]}),
        json.dumps({name: SECRET}, indent=2),
        repr({name: SECRET, "b": None}),
        json.dumps({"headers": [{"name": name, "value": SECRET}, {"name": "host", "value": "x"}]}),
        f"a: 1\n{name}: {SECRET}\nb: 2\n",
        f"a:\n  - {name}: '{SECRET}'\n",
        f'a:\n  {name}: "{SECRET}"\n',
        f"export {name}={SECRET}",
        f"++{name}={SECRET} ++other=1",
        f"--{name} {SECRET}",
        f"{name}='{SECRET}'",
    ):
        clean = body(wrapping(text))
        assert SECRET not in clean, text
        assert PLACEHOLDER in clean


@pytest.mark.parametrize("wrapping", WRAPPINGS.values(), ids=list(WRAPPINGS))
@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"Authorization: Basic {SECRET}",
        f"curl -H 'Authorization: Bearer {SECRET}' http://x",
        f"Bearer {SECRET}",
        f"headers=<CIMultiDictProxy('Host': 'x', 'Authorization': 'Bearer {SECRET}')>",
        f"https://user:{SECRET}@host/path",
        f"https://{SECRET}@host/path",
        f"https://host/path?key={SECRET}&x=1",
        f"https://host/path?x=1&sig={SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\nMII{SECRET}\n{SECRET}==\n-----END RSA PRIVATE KEY-----\nafter",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
        json.dumps({"secrets": [SECRET, SECRET + "2"], "n": 1}),
        f"password: string-{SECRET}",
    ],
)
def test_a_secret_is_known_by_its_place(text: str, wrapping: Callable[[str], str]) -> None:
    assert SECRET not in body(wrapping(text))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"usage": {"prompt_tokens": 5, "completion_tokens": 7}, "max_tokens": 9, "token_ids": [1, 2]}),
        json.dumps({"logprobs": {"content": [{"token": " internationalization", "logprob": -0.1, "bytes": [1]}]}}),
        json.dumps({"token": "----------------", "eos_token": "<|im_end|>", "token_count": "12", "tokenizer": "x"}),
        json.dumps({"api_key": None, "password": "", "secret": False, "token": 17}),
        json.dumps(
            {"properties": {"password": {"type": "string"}, "token": {"type": "string"}}, "required": ["password"]}
        ),
        "def login(user: str, password: str, token: Optional[str] = None) -> None: ...",
        "The secret of a good password is its length; tokens are cheap, and keys are not.",
        "Use Bearer authentication. The risk-averse task-oriented disk-based design.",
        "see http://127.0.0.1:8000/v1/models?limit=3 and mailto:someone@example.com",
        "x-ratelimit-remaining-tokens: 12",
        "class Login:\n    password: str = field()\n    api_key: SecretStr\n    token: str | None = None\n",
        "rotate with the auto-api-key rotation",
        json.dumps("policy_api_key: EMPTY\nother: 1"),
        json.dumps({"authorization": "Bearer [REDACTED]", "api_key": "EMPTY"}),
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert body(text) == text


def test_the_scheme_and_everything_around_stays() -> None:
    assert body(f'{{"a":1, "Authorization" : "Bearer {SECRET}","z":[]}}') == (
        f'{{"a":1, "Authorization" : "Bearer {PLACEHOLDER}","z":[]}}'
    )
    assert body(json.dumps({"password": 1234, "x": 2})) == f'{{"password": "{PLACEHOLDER}", "x": 2}}'


@pytest.mark.parametrize("name", [name for name in WRAPPINGS if name != "in a log line"])
@pytest.mark.parametrize("value", [f"any {SECRET} and more", f"a<b,{{c}} {SECRET}", f"d(e) [f] {SECRET}"])
def test_a_yaml_value_is_secret_to_the_end_of_its_line(name: str, value: str) -> None:
    clean = body(WRAPPINGS[name](f"password: {value}\nuser: x"))
    assert SECRET not in clean
    assert "user: x" in clean


@pytest.mark.parametrize("name", [name for name in WRAPPINGS if name != "in a log line"])
@pytest.mark.parametrize("below", ["- {0}\n- {0}", "  - '{0}'\n  - {0}", '- "{0}"', "  {0}"])
def test_what_stands_below_a_yaml_name_is_secret_if_it_looks_so(name: str, below: str) -> None:
    """The items of a list, and a block; other items are prose."""
    block = "" if "-" in below else " |-"
    clean = body(WRAPPINGS[name](f"search_api_key:{block}\n{below.format(SECRET)}\nuser: x"))
    assert SECRET not in clean
    assert "user: x" in clean
    prose = WRAPPINGS[name](f"passwords:{block}\n{below.format('rotated')}\nuser: x")
    assert body(prose) == prose


def test_replacements_are_counted() -> None:
    assert REDACTOR.body(json.dumps({"api_key": SECRET, "x": "sk-" + SECRET}).encode())[1] == 2
    assert REDACTOR.body(b'{"x": 1}') == (b'{"x": 1}', 0)


def test_headers_keep_their_names_schemes_and_payloads() -> None:
    signed = "eyJzZXNzaW9uX2lkIjogIjEifQ==.aXYZ12." + SECRET
    attributes = "path=/; Max-Age=1209600; httponly; samesite=lax"
    headers = (
        ("Authorization", f"Bearer {SECRET}"),
        ("Proxy-Authorization", f"Basic {SECRET}"),
        ("X-API-Key", SECRET),
        ("api-key", SECRET),
        ("x-goog-api-key", SECRET),
        ("X-Functions-Key", SECRET),
        ("Idempotency-Key", SECRET),
        ("X-Auth-Token", SECRET),
        ("X-Amz-Security-Token", SECRET),
        ("Cookie", f"a={SECRET}; Chaos___chaos={signed}"),
        ("Set-Cookie", f"Chaos___chaos={signed}; {attributes}"),
        ("X-Note", f"with sk-{SECRET}"),
        ("x-ratelimit-remaining-tokens", "12"),
        ("Content-Type", "application/json"),
    )
    assert REDACTOR.headers(headers) == (
        (
            ("Authorization", "Bearer <redacted>"),
            ("Proxy-Authorization", "Basic <redacted>"),
            ("X-API-Key", "<redacted>"),
            ("api-key", "<redacted>"),
            ("x-goog-api-key", "<redacted>"),
            ("X-Functions-Key", "<redacted>"),
            ("Idempotency-Key", SECRET),
            ("X-Auth-Token", "<redacted>"),
            ("X-Amz-Security-Token", "<redacted>"),
            ("Cookie", "a=<redacted>; Chaos___chaos=eyJzZXNzaW9uX2lkIjogIjEifQ==.aXYZ12.<redacted>"),
            ("Set-Cookie", f"Chaos___chaos={signed.replace(SECRET, '<redacted>')}; {attributes}"),
            ("X-Note", "with <redacted>"),
            ("x-ratelimit-remaining-tokens", "12"),
            ("Content-Type", "application/json"),
        ),
        12,
    )


def test_cookies_stay_when_a_replay_needs_them() -> None:
    keep = Redactor(keep_cookies=True)
    cookie = (("Cookie", f"a=eyJzZXNzaW9uX2lkIjogIjEifQ==.aXYZ12.{SECRET}"),)
    assert keep.headers(cookie) == (cookie, 0)
    content = json.dumps({"cookies": {"a": cookie[0][1]}}).encode()
    assert keep.body(content) == (content, 0)
    assert SECRET.encode() not in REDACTOR.body(content)[0]


def test_targets_lose_secret_parameters_only() -> None:
    assert REDACTOR.target(f"/v1/x%2Fy?key={SECRET}&a=%20b&api_key={SECRET}&token={SECRET}&flag") == (
        "/v1/x%2Fy?key=<redacted>&a=%20b&api_key=<redacted>&token=<redacted>&flag",
        3,
    )
    assert REDACTOR.target(f"/files/sk-{SECRET}") == ("/files/<redacted>", 1)
    assert REDACTOR.target("/v1?max_tokens=5&key=") == ("/v1?max_tokens=5&key=", 0)


def test_command_lines_lose_secrets_in_any_spelling() -> None:
    command = ("gym", "--api-key", SECRET, f"++policy_api_key={SECRET}", f"--hf-token={SECRET}", "sk-" + SECRET, "a=1")
    assert REDACTOR.command(command) == (
        "gym", "--api-key", "<redacted>", "++policy_api_key=<redacted>", "--hf-token=<redacted>", "<redacted>", "a=1",
    )  # fmt: skip


secrets = st.from_regex(re.compile(r"[A-Za-z0-9]{4}Zq9vX7[A-Za-z0-9_-]{10,40}", re.ASCII), fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(
    secret=secrets,
    name=st.sampled_from(NAMES),
    around=values,
    wraps=st.lists(st.sampled_from(sorted(WRAPPINGS)), max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_a_planted_secret_is_never_left(secret: str, name: str, around: object, wraps: list[str]) -> None:
    text = json.dumps({"before": around, "at": [{name: secret}], "after": around})
    for wrap in wraps:
        text = WRAPPINGS[wrap](text)
    clean = body(text)
    assert secret not in clean
    assert body(clean) == clean
    assert REDACTOR.body(clean.encode())[1] == 0


@given(around=values, name=st.sampled_from(NAMES), value=values | st.text(max_size=60), deep=st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_json_stays_json(around: object, name: str, value: object, deep: int) -> None:
    """Whatever stands at a secret's place, and at any depth of JSON in strings, the outermost JSON can be read."""
    text = json.dumps({"a": around, name: value, "z": around})
    for _ in range(deep):
        text = json.dumps({"inner": text})
    json.loads(body(text))


@given(st.text(alphabet=st.sampled_from("\\\"'{}[]:,= \napi_keysecrettokenBearer-sk"), max_size=200))
@settings(max_examples=300, deadline=None)
def test_it_is_idempotent(text: str) -> None:
    once = body(text)
    assert body(once) == once


@given(
    st.lists(
        st.sampled_from([f'"api_key": "{SECRET}", ', "sk-" + SECRET + " ", "lorem ipsum " * 400, "\n", '"x": 1, ']),
        max_size=40,
    ),
    st.integers(1, 5000),
)
@settings(max_examples=60, deadline=None)
def test_a_stream_hides_what_the_whole_hides_wherever_it_is_cut(parts: list[str], step: int) -> None:
    content = "".join(parts).encode()
    stream = REDACTOR.stream()
    out = b"".join(stream.feed(content[at : at + step]) for at in range(0, len(content), step)) + stream.end()
    whole, replaced = REDACTOR.body(content)
    assert SECRET.encode() not in out
    assert (out, stream.replaced) == (whole, replaced)


@pytest.mark.parametrize(
    "hostile",
    [
        "\\" * 200_000 + '"',
        '"api_key": "' + "\\" * 200_000,
        '"api_key": "' + '\\"' * 100_000,
        "eyJ" * 70_000,
        "eyJaaaaaaaa-" * 20_000,
        "-----BEGIN PRIVATE KEY-----" * 8_000,
        "://a" * 50_000,
        "sk-" * 70_000,
        "bearer " * 30_000,
        "secret: " * 25_000,
        "token" * 40_000,
        '"token": "' * 20_000,
        "secret" + " " * 200_000,
        "api_key\\" + "\\n" * 100_000,
        "?key=" * 40_000,
        '"secrets": [' + '"a",' * 50_000,
        "secrets:" + "\n- aaaaaaaaaaa1" * 15_000,
        "secrets:\n- a\n" * 15_000,
        "secrets:\n" * 25_000,
    ],
)
def test_hostile_bodies_cost_linear_time(hostile: str, is_linear: Callable[..., bool]) -> None:
    assert is_linear(lambda text: REDACTOR.body(text.encode()), hostile)


def test_a_body_of_any_bytes_is_taken() -> None:
    content = gzip.compress(b"x" * 1000) + bytes(range(256))
    assert REDACTOR.body(content)[0] == content
