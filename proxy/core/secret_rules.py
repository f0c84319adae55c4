"""Where the secrets in a text are: by the names of fields, by the shapes of keys, by their place in a URL.

Rules look at bytes and know how quotes are escaped at any depth of JSON inside strings inside Python reprs. Each
is linear in the size of its input: it begins at literals that are found fast, and looks around them a bounded way.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

MARK = b"<redacted>"

# What a field, a flag, a variable or a parameter that holds a secret is called; its name ends so.
NAME = (
    r"api[-_]?keys?|access[-_]?keys?(?:[-_]?id)?|(?:secret|private|signing|encryption|account|auth|subscription|master"
    r"|service|storage|license|wandb|shared)[-_]?keys?|secrets?|passw(?:or)?ds?|passphrase|passwd|pwd|credentials?"
    r"|(?:proxy[-_]?)?authorization"
    r"|(?:access|auth|api|refresh|id|session|bearer|security|csrf|xsrf|hf|hub|hugging_?face|github|gitlab|gh|slack|bot|app"
    r"|user|service|personal|private|secret|oauth2?|jwt|wandb|ngc|nvidia|login|client|device|deploy|registry|npm|pypi"
    r"|identity)[-_]?tokens?"
)
# `token` alone may as well be a piece of text with its log probability: there the value has to look like a secret.
NAMES = rf"(?:{NAME}|token)"

# Keys that say what they are: what each begins with, and the whole.
_SHAPES = (
    *((start, r"[A-Za-z0-9_*-]{12,}") for start in ("sk-", "csk-", "nvapi-", "glpat-", "xai-", "pplx-", "pypi-")),
    *((start, r"[A-Za-z0-9_-]{16,}") for start in ("hf_", "gsk_", "r8_", "fw_", "npm_", "whsec_", "tgp_v1_")),
    *((start, r"[A-Za-z0-9_-]{16,}") for start in ("sk_live_", "rk_live_", "sk_test_", "rk_test_")),
    *((start, r"[A-Za-z0-9_]{20,}") for start in ("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_")),
    ("xox", r"[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("xapp-", r"[A-Za-z0-9-]{10,}"),
    *((start, r"[A-Z0-9]{16}") for start in ("AKIA", "ASIA")),
    ("AIza", r"[A-Za-z0-9_-]{30,}"),
    ("ya29.", r"[A-Za-z0-9_-]{20,}"),
    ("SG.", r"[A-Za-z0-9_-]{16,256}\.[A-Za-z0-9_-]{16,}"),
    ("dapi", r"[0-9a-f]{32}"),
)
_JWT = r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"
_SIGNED = r"[A-Za-z0-9+/_-]{8,}={0,2}\.[A-Za-z0-9_-]{5,8}\.[A-Za-z0-9_-]{16,}"
QUERY_NAMES = r"(?:key|sig|signature|token|x-(?:amz|goog)-(?:signature|credential|security-token))"
_SPACE = r"(?:[ \t\r\n]|\\+[nrt])"
_VALUE_FIELD = rf"\\*[\"']{_SPACE}{{0,64}},{_SPACE}{{0,64}}\\*[\"']value\\*[\"']{_SPACE}{{0,64}}:"  # as HAR has headers

SUSPECT = "|".join(
    (
        *(re.escape(start) + rest for start, rest in _SHAPES),
        rf"eyJ(?:{_JWT}|{_SIGNED})",
        rf"(?i:{NAMES}\\*[\"']?{_SPACE}*[:=])",
        rf"(?i:{NAMES}{_VALUE_FIELD})",
        rf"(?i:--?[a-z0-9_.-]*{NAMES}[ \t])",
        rf"(?i:(?:[?&]|\\u0026|&amp;){QUERY_NAMES}=)",
        r"(?i:bearer(?:[ \t]|%20|\+))",
        r"PRIVATE KEY-----",
        r"://[^/\s\"'@]+@",
    )
)

"""What a text that may hold a secret matches, in the syntax of Rust's regex engine; all rules below are within it."""

# A key begins a word, or follows an escape sequence whose last letters would seem to belong to it.
_ESCAPED = rb"(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2})"


def _key(start: str, rest: str, before: bytes = rb"A-Za-z0-9") -> re.Pattern[bytes]:
    return re.compile(rb"(?:(?<![" + before + rb"])|" + _ESCAPED + rb")" + re.escape(start).encode() + rest.encode())


# The two that begin with eyJ are tried once for each run of their letters, else they were quadratic.
_SHAPED = (
    *((start.encode(), _key(start, rest)) for start, rest in _SHAPES),
    (b"eyJ", _key("eyJ", _JWT, rb"A-Za-z0-9_-")),
)
_COOKIE = _key("eyJ", r"([A-Za-z0-9+/_-]{8,}={0,2}\.[A-Za-z0-9_-]{5,8}\.)[A-Za-z0-9_-]{16,}", rb"A-Za-z0-9+/_-")

_STEMS = (b"key", b"secret", b"passw", b"passphrase", b"pwd", b"credential", b"authorization", b"token")
_NAME_BYTES = 32
_NAMED = re.compile(NAMES.encode() + rb"\Z")
_KEYED = re.compile(
    rb"(?P<stem>(?:key(?:[-_]?id)?|secret|password|passwd|passwrd|passphrase|pwd|credential|authorization|token)s?)"
    rb"(?:(?P<close>\\*[\"'])(?:"
    + _SPACE.encode()
    + rb"{0,64},"
    + _SPACE.encode()
    + rb"{0,64}\\*[\"']value\\*[\"'])?"
    + _SPACE.encode()
    + rb"{0,64}[:=]"
    + _SPACE.encode()
    + rb"{0,64}|[ \t]{0,8}(?P<colon>[:=])[ \t]{0,64}|(?P<space>[ \t]{1,64}))(?P<open>\\*[\"'\[])?",
    re.IGNORECASE,
)
_BEARER = re.compile(rb"(?i:bearer)(?:[ \t]|%20|\+)+(?=[^\s\"']{0,200}[0-9]|[^\s\"']{20})([A-Za-z0-9._~+/=-]{6,})")
_QUERY = re.compile(rb"(?:[?&]|\\u0026|&amp;)(?i:" + QUERY_NAMES.encode() + rb")=([^&\s\"'\\#<>]+)")
_USERINFO = re.compile(rb"://(?:([^/\s\"'@:\\?#]{0,128}):([^/\s\"'@\\?#]{1,256})|([^/\s\"'@:\\?#]{16,256}))@")
_PEM = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_PEM_REST = re.compile(rb"(?:[A-Za-z0-9+/=\s:,.-]|\\+[nrt])*")
_PEM_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_PEM_BYTES = 32 * 1024

_SCHEME = re.compile(
    rb"(?:basic|bearer|digest|negotiate|token|apikey|key|aws4-hmac-sha256)(?:[ \t]|%20|\+)+", re.IGNORECASE
)
_BACKSLASH = ord("\\")
_QUOTE = re.compile(rb"[\"'\n]")
_ITEM = re.compile(rb"[\s,]*(?:\\+[nrt][\s,]*)*(\\*)([\"'])")
_WORD = re.compile(rb"[^\s\"'\\,;&<>{}\[\]()|`]+")
_LINE = re.compile(rb"(?:[^\n\r\"\\]|\\(?![nrt\"\\]))+")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_LINE_START = re.compile(rb"(?:^|[\n\r\"']|\\[nr])[ \t]*(?:- )?[A-Za-z0-9_.-]*\Z")
_IN_NAME = re.compile(rb"(?:^|[\s\"'=(\[,]|\\n)--?[A-Za-z0-9_.-]*\Z")
_TYPES = re.compile(
    rb"(?:(?:str|string|int|integer|float|number|bool|boolean|bytes|none|null|true|false|optional|any|object|array|list"
    rb"|dict|union|literal|required|secretstr)(?=[ \t]*(?:[,)\]}=|;\[\"'\\\r\n]|\Z))|(?:os|self)\.|field\(|\$\{)",
    re.IGNORECASE,
)  # what stands there in source code and schemas
_NO_SECRET = re.compile(rb"EMPTY|\[?REDACTED\]?")  # what vLLM's users write for no key at all, and others' placeholder
_SECRET_VALUE = re.compile(rb"(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])[A-Za-z0-9._~+/=:$!@-]{12,}|[A-Za-z0-9._~+/=-]{32,}")


class Span(NamedTuple):
    """A place to replace, and by what."""

    start: int
    end: int
    text: bytes = MARK


def _places(data: bytes, literals: tuple[bytes, ...]) -> Iterator[int]:
    """Where any of the literals stands; finding them one by one is many times faster than one pattern."""
    for literal in literals:
        place = data.find(literal)
        while place >= 0:
            yield place
            place = data.find(literal, place + len(literal))


def _matches(data: bytes, literal: bytes, pattern: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
    """Disjoint matches of a pattern that begins with a literal."""
    place = data.find(literal)
    while place >= 0:
        match = pattern.match(data, place)
        if match is not None:
            yield match
        place = data.find(literal, place + len(literal) if match is None else match.end())


def _string_end(data: bytes, start: int, quote: bytes, depth: int) -> int:
    """Where a string's content ends that was opened by `depth` backslashes and `quote`.

    At the top, an even run of backslashes belongs to the content (RFC 8259). Deeper, Python reprs and JSON may be
    mixed, so only a run of at most the opening's length ends it; a shorter one ends a string around it.
    """
    for match in _QUOTE.finditer(data, start):
        found, end = match[0], match.start()
        run = 0
        while end - run > start and data[end - run - 1] == _BACKSLASH:
            run += 1
        if found == quote and depth == 0 and run % 2 == 0:
            return end
        if (found == quote and depth and run <= depth) or found == b"\n" or (found == b'"' and quote == b"'"):
            return end - run
    return len(data)


def _content(data: bytes, start: int, end: int, *, sure: bool) -> Iterator[Span]:
    """What of a value is secret: all but the scheme's word. Not `sure`: only what looks like a secret."""
    scheme = _SCHEME.match(data, start, end)
    if scheme is not None:
        start = scheme.end()
    if _NO_SECRET.fullmatch(data, start, end):
        return
    if end > start and (sure or _SECRET_VALUE.fullmatch(data, start, end)):
        yield Span(start, end)


def _array(data: bytes, start: int, *, sure: bool) -> Iterator[Span]:
    """The strings of a flat array."""
    while (match := _ITEM.match(data, start)) is not None:
        end = _string_end(data, match.end(), match[2], len(match[1]))
        yield from _content(data, match.end(), end, sure=sure)
        start = end + len(match[1]) + 1


def _bare(data: bytes, match: re.Match[bytes], *, sure: bool) -> Iterator[Span]:
    """A value without quotes: a YAML line's rest, else one word."""
    start = match.end()
    scheme = _SCHEME.match(data, start)
    if scheme is not None:
        start = scheme.end()
    line_start = _LINE_START.search(data, max(0, match.start() - 64), match.start())
    whole_line = line_start is not None and match["colon"] == b":"
    found = (_LINE if whole_line and sure else _WORD).match(data, start)
    if found is None or _TYPES.match(data, start) or data[found.end() : found.end() + 1] in (b"(", b"["):
        return
    end = start + len(found[0].rstrip())
    yield from _content(data, start, end, sure=sure)


def _keyed(data: bytes) -> Iterator[Span]:
    """Values of fields, variables, flags and YAML lines whose name says that they are secret."""
    lower = data.lower()
    done = 0
    for start in sorted(_places(lower, _STEMS)):
        match = _KEYED.match(data, start)
        if match is None or start < done:
            continue
        name = _NAMED.search(lower, max(0, start - _NAME_BYTES), match.end("stem"))
        if name is None or (match["space"] is not None and not _is_flag(data, name.start())):
            continue
        for span in _value(data, match, sure=name[0] != b"token"):
            yield span
            done = max(done, span.end)


def _is_flag(data: bytes, start: int) -> bool:
    """Whether the name that ends here began as a flag, as in `--api-key VALUE`."""
    return _IN_NAME.search(data, max(0, start - 64), start) is not None


def _value(data: bytes, match: re.Match[bytes], *, sure: bool) -> Iterator[Span]:
    opening = match["open"]
    if opening is None:
        number = _NUMBER.match(data, match.end()) if match["close"] is not None else None
        if number is not None and sure:
            yield Span(number.start(), number.end(), match["close"] + MARK + match["close"])
        elif match["close"] is None:
            yield from _bare(data, match, sure=sure)
    elif opening.endswith(b"["):
        if match["close"] is not None:
            yield from _array(data, match.end(), sure=sure)
    else:
        end = _string_end(data, match.end(), opening[-1:], len(opening) - 1)
        yield from _content(data, match.end(), end, sure=sure)


def _pem(data: bytes) -> Iterator[Span]:
    position = 0
    while (match := _PEM.search(data, position)) is not None:
        end = _PEM_END.search(data, match.end(), match.end() + _PEM_BYTES)
        rest = _PEM_REST.match(data, match.end(), match.end() + _PEM_BYTES)
        position = end.end() if end is not None else rest.end() if rest is not None else match.end()
        yield Span(match.start(), position)


def _userinfo(data: bytes) -> Iterator[Span]:
    for match in _USERINFO.finditer(data):
        yield Span(*match.span(2 if match[2] is not None else 3))


def _shapes(data: bytes) -> Iterator[Span]:
    """Keys that say what they are, wherever they stand."""
    for literal, pattern in _SHAPED:
        for match in _matches(data, literal, pattern):
            yield Span(*match.span())


def _bearers(data: bytes) -> Iterator[Span]:
    for match in _BEARER.finditer(data):
        yield Span(*match.span(1))


def _parameters(data: bytes) -> Iterator[Span]:
    """Values of query parameters, in URLs anywhere."""
    for match in _QUERY.finditer(data):
        yield Span(*match.span(1))


def signatures(data: bytes) -> Iterator[Span]:
    """The signatures of session cookies that stand in a body; their payload stays readable."""
    for match in _matches(data, b"eyJ", _COOKIE):
        yield Span(match.end(1), match.end())


RULES = (_pem, _keyed, _shapes, _bearers, _parameters, _userinfo)
"""All but `signatures`, which a capture that keeps cookies leaves out."""


def value_spans(data: bytes) -> Iterator[Span]:
    """What is secret of a value that is known to be so: all but a scheme's word."""
    return _content(data, 0, len(data), sure=True)


def merge(spans: list[Span]) -> list[Span]:
    """Sorted and disjoint; of those that overlap, the first says the text."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, span.end), last.text)
        else:
            merged.append(span)
    return merged
