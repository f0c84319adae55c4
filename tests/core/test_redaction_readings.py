"""Secrets in other clothes: escaped, wide, in elements, parts, pairs and cookies, packed, and streamed in deltas."""

import base64
import gzip
import html
import json
import re
import urllib.parse
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.redaction import PLACEHOLDER, Redactor

SECRET = "Zq9vX7Lm2Tr5Wb8Kc4"
REDACTOR = Redactor()
JSON = json.dumps({"a": "text", "api_key": SECRET, "n": [1, 2]})


def body(text: str) -> str:
    return REDACTOR.body(text.encode())[0].decode()


def dotnet(text: str) -> str:
    """JSON in a string of JSON, as encoders write it that escape quotes and all that HTML could misread."""
    return '{"detail":"' + re.sub(r"[\"'<>&+]", lambda found: f"\\u{ord(found[0]):04X}", text) + '"}'


def all_escaped(text: str) -> str:
    """Every letter, digit and underline within the strings of JSON as an escape."""
    return re.sub(r"(?<=[^\\])[A-Za-z0-9_](?=[^:,]*\")", lambda found: f"\\u{ord(found[0]):04x}", text)


ESCAPES: dict[str, Callable[[str], str]] = {
    "an underline": lambda text: text.replace("_", "\\u005f"),
    "all": all_escaped,
    "quotes": dotnet,
    "quotes twice": lambda text: dotnet(dotnet(text).replace("\\", "\\\\")),
    "HTML": lambda text: f"<pre>{html.escape(text)}</pre>",
    "HTML in JSON": lambda text: json.dumps({"page": f"<pre>{html.escape(text)}</pre>"}),
    "a URL": lambda text: "q=1&data=" + urllib.parse.quote(text),
    "a URL in a URL": lambda text: "u=" + urllib.parse.quote("http://x/?d=" + urllib.parse.quote(text)),
    "JavaScript": lambda text: "var x = '" + text.replace('"', "\\x22") + "';",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=list(ESCAPES))
@pytest.mark.parametrize(
    "text", [JSON, json.dumps({"u": f"https://me:{SECRET}@host/x"}), json.dumps({"t": f"sk-{SECRET}"})]
)
def test_escapes_hide_nothing(escape: Callable[[str], str], text: str) -> None:
    escaped = escape(text)
    clean = body(escaped)
    assert PLACEHOLDER in clean
    for reading in (clean, html.unescape(clean), urllib.parse.unquote(urllib.parse.unquote(clean))):
        assert SECRET not in reading
        assert SECRET not in re.sub(r"\\+u00(..)", lambda found: chr(int(found[1], 16)), reading)
    assert body(clean) == clean


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    "text", [JSON, '{"password": "' + SECRET + '", "名": "😀"}', f"policy_api_key: {SECRET}\nb: 1\n"]
)
def test_wide_text_stays_wide_text(codec: str, text: str) -> None:
    """RFC 8259 wants UTF-8; older servers write what their platform has."""
    clean, replaced = REDACTOR.body(text.encode(codec))
    assert replaced == 1
    assert clean.decode(codec) == text.replace(SECRET, PLACEHOLDER)
    assert REDACTOR.body(clean) == (clean, 0)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("<a><api_key>{}</api_key><b>x</b></a>", True),
        ("<ns:Password xsi:type='xsd:string'>{}</ns:Password>", True),
        ("<ClientSecret>\n  {}\n</ClientSecret>", True),
        ("<password><![CDATA[{}]]></password>", True),
        ('<login user="me" password="{}"/>', True),
        ('<add key="ApiKey" value="{}"/>', True),
        ('<param name="access_token">{}</param>', True),
        ("<key>password</key>\n<string>{}</string>", True),
        ("<token>{}</token>", True),
    ],
)
@pytest.mark.parametrize("wrap", [str, lambda text: json.dumps({"xml": text}), dotnet])
def test_elements_and_attributes_are_names(text: str, clean: bool, wrap: Callable[[str], str]) -> None:
    made = body(wrap(text.format(SECRET)))
    assert (SECRET not in made) is clean
    assert PLACEHOLDER in made


FORM = (
    '--b1\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    '--b1\r\nContent-Disposition: form-data; name="{name}"{more}\r\nContent-Type: text/plain\r\n\r\n{value}\r\n'
    '--b1\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--b1--\r\n'
)


@pytest.mark.parametrize("name", ["api_key", "user[password]", "client-secret", "token", "PASSWORD"])
@pytest.mark.parametrize("more", ["", '; filename="key.pem"'])
@pytest.mark.parametrize("wrap", [str, lambda text: json.dumps({"postData": {"text": text}})])
def test_parts_of_a_form_are_names(name: str, more: str, wrap: Callable[[str], str]) -> None:
    text = wrap(FORM.format(name=name, more=more, value=SECRET))
    assert body(text) == text.replace(SECRET, PLACEHOLDER)


@pytest.mark.parametrize(
    "text",
    [
        f"user%5Bpassword%5D={SECRET}&x=1",
        f"api%5Fkey={SECRET}&x=1",
        f"grant_type=password&client_secret={SECRET}",
        f"a=1&user[password]={SECRET}",
        f'os.environ["OPENAI_API_KEY"] = "{SECRET}"',
        f"config['db_password'] = '{SECRET}'",
        f"def f(password: str = '{SECRET}'): ...",
        f'{{:password => "{SECRET}"}}',
        f"client := New(apiKey: '{SECRET}')",
        f"{{'api_key': b'{SECRET}'}}",
        f"[(b'Host', b'x'), (b'x-api-key', b'{SECRET}')]",
        f'[["Host", "x"], ["X-Api-Key", "{SECRET}"]]',
        f"headers=[(b'authorization', b'Bearer {SECRET}')]",
        f"File x.py, line 3\n  h = {{'Authorization': 'Token {SECRET}'}}\nTypeError: {{'Authorization': '{SECRET}'}}",
        f"Invalid API key: {SECRET}",
        f"Incorrect API key provided: {SECRET}. You can find yours at",
        "curl -H 'Authorization: Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode() + "' http://x",
        "sent Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode() + " and was refused",
        f"Cookie: theme=dark; sessionid={SECRET}; a=b",
        f"Set-Cookie: sessionid={SECRET}; Path=/; HttpOnly",
        json.dumps({"headers": {"Cookie": f"sid={SECRET}"}}),
        json.dumps({"headers": [{"name": "Cookie", "value": f"sid={SECRET}"}]}),
        f"redis://:{SECRET}@cache:6379/0",
        f"postgresql+psycopg2://me:{SECRET}@db/x",
        f"https:\\/\\/me:{SECRET}@host\\/x",
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET}==;EndpointSuffix=core",
        f"https://a.blob.core.windows.net/c?sv=2022&se=2026&sig={SECRET}%3D",
        f"ANTHROPIC_KEY={SECRET}",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{SECRET}\n-----END PGP PRIVATE KEY BLOCK-----",
        json.dumps({"private_key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"}),
    ],
)
def test_a_secret_is_known_by_its_place(text: str) -> None:
    for wrapped in (text, json.dumps({"m": text}), json.dumps({"m": json.dumps(text)})):
        clean = body(wrapped)
        assert SECRET not in clean
        assert base64.b64encode(f"me:{SECRET}".encode()).decode()[4:-4] not in clean
        assert body(clean) == clean


@pytest.mark.parametrize(
    "key",
    [
        "sk-or-v1-" + SECRET, "ASIAIOSFODNN7EXAMPLE", "GOCSPX-" + SECRET, "ya29.a0" + SECRET * 2, "1//0g" + SECRET,
        "dckr_pat_" + SECRET, "Abc8Q~" + "x" * 31 + "9Yz", "A" * 52 + "JQQJ99BCACAAAAAA" + "b" * 16,
        "lsv2_pt_" + SECRET, "tvly-dev-" + SECRET,
        "123456789:AA" + "q1W2e3" * 5 + "r4t", "https://hooks.slack.com/services/T00000000/B00000000/" + SECRET,
        "eyJhbGciOiJkaXIifQ.." + "Zq9vX7Lm2Tr5Wb8K." + SECRET + "." + SECRET, "glrt-" + SECRET,
    ],
)  # fmt: skip
def test_a_key_is_known_by_its_shape(key: str) -> None:
    for text in (f"with {key} in it", json.dumps({"x": key}), f"k={key}\n"):
        clean = body(text)
        assert PLACEHOLDER in clean
        assert key[-24:] not in clean


CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def stream(texts: list[str], index: int = 0) -> list[str]:
    choices = [[{"index": index, "delta": {"content": text}, "finish_reason": None}] for text in texts]
    return ["data: " + json.dumps({**CHUNK, "choices": choice}) + "\n\n" for choice in choices]


def said(events: str, index: int = 0) -> str:
    """The text that a client puts together."""
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    return "".join(
        choice["delta"]["content"] for chunk in chunks for choice in chunk["choices"] if choice["index"] == index
    )


def test_a_secret_that_is_streamed_piece_by_piece_is_found() -> None:
    events = stream(["Use", " sk", "-", SECRET[:5], SECRET[5:], " with", " care", ".\n", 'api_key = "', SECRET, '"'])
    clean, replaced = REDACTOR.body("".join(events).encode())
    assert said(clean.decode()) == f'Use {PLACEHOLDER} with care.\napi_key = "{PLACEHOLDER}"'
    assert replaced > 1
    assert REDACTOR.body(clean) == (clean, 0)


def test_streams_that_take_turns_are_put_together_each_for_itself() -> None:
    one, two = (
        stream(["pass", "word=", SECRET[:9], SECRET[9:], " end"], 0),
        stream(["all", " is", " well", " here", "."], 1),
    )
    events = "".join(event for pair in zip(one, two, strict=True) for event in pair)
    clean = body(events)
    assert said(clean, 0) == f"password={PLACEHOLDER} end"
    assert said(clean, 1) == "all is well here."


def test_arguments_of_a_streamed_call_are_put_together() -> None:
    pieces = ['{"us', 'er": "me", "pass', 'word": "', SECRET[:7], SECRET[7:], '", "n": 1}']
    events = [
        "event: response.function_call_arguments.delta\ndata: "
        + json.dumps({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": piece})
        + "\n\n"
        for piece in pieces
    ]
    clean = body("".join(events))
    deltas = [json.loads(line[6:])["delta"] for line in clean.splitlines() if line.startswith("data: ")]
    assert json.loads("".join(deltas)) == {"user": "me", "password": PLACEHOLDER, "n": 1}


@pytest.mark.parametrize("step", [7, 1000, 40_000])
def test_a_long_event_stream_is_cut_anywhere(step: int) -> None:
    words = ["lorem ", "ipsum "] * 200
    content = "".join(
        stream(
            [
                *words,
                "sk",
                "-",
                SECRET[:6],
                SECRET[6:] + " ",
                *words,
                "password: ",
                SECRET[:4],
                SECRET[4:] + "\n",
                *words,
            ]
        )
    )
    redactor = REDACTOR.stream()
    data = content.encode()
    out = b"".join(redactor.feed(data[at : at + step]) for at in range(0, len(data), step)) + redactor.end()
    assert said(out.decode()) == "".join([*words, PLACEHOLDER + " ", *words, "password: ", PLACEHOLDER + "\n", *words])


def test_a_slow_event_stream_is_settled_but_for_its_last_word() -> None:
    """What a draft has on disk never ends within a key."""
    redactor = REDACTOR.stream()
    out = b""
    for event in stream(["Use", " it", " sk", "-", SECRET[:9]]):
        out += redactor.feed(event.encode()) + redactor.settle()
    assert said(out.decode()) == "Use it"
    out += redactor.feed(stream([SECRET[9:] + " now"])[0].encode()) + redactor.settle() + redactor.end()
    assert said(out.decode()) == f"Use it {PLACEHOLDER} now"


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [(gzip.compress, gzip.decompress), (zstandard.compress, zstandard.decompress)],
    ids=["gzip", "zstd"],
)
def test_what_is_packed_and_does_not_say_so_stays_packed(
    pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]
) -> None:
    clean, replaced = REDACTOR.body(pack(JSON.encode()))
    assert (unpack(clean).decode(), replaced) == (JSON.replace(SECRET, PLACEHOLDER), 1)
    whole = pack(b'{"x": 1}')
    assert REDACTOR.body(whole) == (whole, 0)
    assert REDACTOR.body(whole[:-4] + b"\0\0\0\0")[1] == 0


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"user_tokens": 512, "session_tokens": [1, 2], "api_tokens": 7, "secrets": 3, "id_tokens": 1.5}),
        json.dumps(
            {"content": [{"token": "=" * 64, "logprob": -0.1, "bytes": [61]}, {"token": "-" * 40, "logprob": 0}]}
        ),
        json.dumps({"token": ".translatesAutoresizingMaskIntoConstraints", "logprob": -0.1, "bytes": [46]}),
        json.dumps({"token": " v1.2.3-beta-4x", "logprob": -0.1}),
        json.dumps({"required": ["api_key", "address_line_1"], "enum": ["password", "one_time_code_2"]}),
        "if password == other and token != 5: return api_key == key",
        "headers[hdrs.AUTHORIZATION] = await self.encode(); environ[PASSWORD] = auth",
        'headers = {"Authorization": f"Bearer {self.api_key}", "X-Api-Key": "${API_KEY}", "token": "{{token}}"}',
        "use -p <password> to log in as <user>, or --token <token> for a service",
        '<label for="password">Password</label><input type="password" name="password">',
        "Cookie: chocolate chip. The cookie = sweet; and a cookie: yes",
        "basic internationalization, basic principles of Basic Authentication",
        "Enter your API key: it is on the settings page",
        "100%20 of a%2Fb and \\u0041 \\x41 &amp; &lt;b&gt; &#65; http:\\/\\/x\\/y",
        "data: one\n\ndata: two\n\ndata: [DONE]\n\n",
        json.dumps({"tokens": ["a", "b"], "token_ids": [5, 6], "max_tokens": 5, "stop_token_ids": [151643]}),
        json.dumps({"usage": {"input_tokens_details": {"cached_tokens": 0}, "output_tokens": 9}, "bos_token_id": 1}),
        'Content-Disposition: form-data; name="purpose"\r\n\r\nassistants\r\n--b',
        "passengers passed the pass: a passive compass; the db pass",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert body(text) == text
    wrapped = json.dumps({"m": text})
    assert body(wrapped) == wrapped


@pytest.mark.parametrize(
    "text", ["Enter the password: ", "api_key = ", 'and then {"token":', "secret: ", "it is 'password':"]
)
@pytest.mark.parametrize("deep", [0, 1, 2])
def test_a_string_that_ends_with_a_name_stays_json(text: str, deep: int) -> None:
    content = json.dumps({"content": text, "next": [{"x": 1}], "last": text})
    for _ in range(deep):
        content = json.dumps({"content": content, "n": 1})
    assert body(content) == content


secrets = st.from_regex(re.compile(r"[A-Za-z0-9]{4}Zq9vX7[A-Za-z0-9_-]{10,40}", re.ASCII), fullmatch=True)


@given(secret=secrets, name=st.sampled_from(["api_key", "clientSecret", "password", "access_token"]), cut=st.data())
@settings(max_examples=60, deadline=None)
def test_however_a_stream_is_cut_into_deltas_the_secret_is_not_left(secret: str, name: str, cut: st.DataObject) -> None:
    text = f'see {{"{name}": "{secret}", "n": 1}} end'
    cuts = sorted(cut.draw(st.sets(st.integers(1, len(text) - 1), max_size=12)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    clean = body("".join(stream(pieces)))
    assert said(clean) == text.replace(secret, PLACEHOLDER)


@given(st.text(max_size=60), st.sampled_from(["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]))
@settings(max_examples=60, deadline=None)
def test_wide_text_without_a_secret_is_left_alone(text: str, codec: str) -> None:
    content = json.dumps({"text": text}, ensure_ascii=False).encode(codec, "surrogatepass")
    clean = REDACTOR.body(content)[0]
    assert clean == content or PLACEHOLDER in clean.decode(codec, "surrogatepass")


@given(st.text(alphabet=st.sampled_from("\\\"'{}:=, \nu005f22%5F&quot;<>/apiskey_-Zq9"), max_size=200))
@settings(max_examples=200, deadline=None)
def test_it_is_idempotent_over_escapes(text: str) -> None:
    once = body(text)
    assert body(once) == once


@given(
    before=st.text(max_size=20), value=st.text(max_size=40), name=st.sampled_from(["api_key", "token", "x"]),
    deep=st.integers(0, 2),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_json_with_escapes_stays_json(before: str, value: str, name: str, deep: int) -> None:
    text = json.dumps({"a": before, name: value})
    for _ in range(deep):
        text = dotnet(text.replace("\\", "\\\\"))
    json.loads(body(text))


@pytest.mark.parametrize(
    "hostile",
    [
        "\\" * 200_000 + "u005f",
        "\\u005f" * 40_000 + '"api_key": "',
        "%25" * 70_000,
        "&quot;api_key" * 15_000,
        "<api_key>" * 22_000,
        '<a password="' * 15_000,
        "form-data; name=" * 12_000,
        'form-data; name="api_key"\r\n\r\n' * 6_000,
        "cookie: a=" * 20_000,
        "cookie: " + "a=b;" * 50_000,
        "basic aaaaaaaaaaaaaaaa" * 9_000,
        "data: " + '{"content":"x"}' * 14_000,
        'data: {"index":1,"content":"x"}\n' * 6_000,
        '"api_key", ' * 18_000,
        "a:AA" * 50_000,
    ],
)
def test_hostile_bodies_cost_linear_time(hostile: str, is_linear: Callable[..., bool]) -> None:
    assert is_linear(lambda text: REDACTOR.body(text.encode()), hostile)
