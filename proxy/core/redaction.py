"""Taking secrets out of what is recorded: headers, targets, bodies, command lines, messages.

Bodies are not parsed: rules look at bytes, knowing how quotes are escaped at any depth of JSON inside strings
inside Python reprs. So a body that is not whole, or not JSON, is treated like any other, everything but the
secrets stays byte for byte, and JSON stays JSON. A secret becomes the fixed text `<redacted>`; a tag by which
equal secrets could be told would let short ones be guessed.

One linear-time pattern (Rust's regex engine, by way of jsonschema-rs) first asks whether a text may hold a
secret at all; it takes a few microseconds for a usual body, and only what it flags is looked at more closely.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jsonschema_rs

from gymtap.schemas import Headers

PLACEHOLDER = "<redacted>"

_MARK = PLACEHOLDER.encode()

# What a field, a flag, a variable or a parameter that holds a secret is called; its name ends so.
_NAME = (
    r"api[-_]?keys?|access[-_]?keys?(?:[-_]?id)?|(?:secret|private|signing|encryption|account|auth|subscription|master"
    r"|service|storage|license|wandb|shared)[-_]?keys?|secrets?|passw(?:or)?d|passphrase|passwd|pwd|credentials?"
    r"|(?:proxy[-_]?)?authorization"
    r"|(?:access|auth|api|refresh|id|session|bearer|security|csrf|xsrf|hf|hub|hugging_?face|github|gitlab|gh|slack|bot|app"
    r"|user|service|personal|private|secret|oauth2?|jwt|wandb|ngc|nvidia|login|client|device|deploy|registry|npm|pypi"
    r"|identity)[-_]?tokens?"
)
# `token` alone may as well be a piece of text with its log probability: there the value has to look like a secret.
_NAMES = rf"(?:{_NAME}|token)"

# Keys that say what they are, wherever they stand: (start, rest).
_SHAPES = (
    r"(?:c?sk|nvapi|glpat|xai|pplx|pypi)-[A-Za-z0-9_*-]{12,}",
    r"(?:[sr]k_(?:live|test)|hf|gsk|r8|fw|npm|whsec|tgp_v1)_[A-Za-z0-9_-]{16,}",
    r"(?:gh[opsur]|github_pat)_[A-Za-z0-9_]{20,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"xapp-[A-Za-z0-9-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"ya29\.[A-Za-z0-9_-]{20,}",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"dapi[0-9a-f]{32}",
)
_JWT = r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"
_SIGNED = r"eyJ[A-Za-z0-9+/_=-]{8,}\.[A-Za-z0-9_-]{5,8}\.[A-Za-z0-9_-]{16,}"
_QUERY_NAMES = r"(?:key|sig|signature|code|token|x-(?:amz|goog)-(?:signature|credential|security-token))"
_SPACE = r"(?:[ \t\r\n]|\\+[nrt])"

_FLAG = "|".join(
    (
        *_SHAPES,
        _JWT,
        _SIGNED,
        rf"(?i:{_NAMES}\\*[\"']?{_SPACE}*[:=])",
        rf"(?i:--?[a-z0-9_.-]*{_NAMES}[ \t])",
        rf"(?i:(?:[?&]|\\u0026|&amp;){_QUERY_NAMES}=)",
        r"(?i:bearer(?:[ \t]|%20|\+))",
        r"PRIVATE KEY-----",
        r"://[^/\s\"'@]+@",
    )
)

# A key begins a word, or follows an escape sequence whose last letters would seem to belong to it.
_BEGIN = rb"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2}))"
_ESCAPED = rb"(?<=\\[bfnrt])|(?<=\\x[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2})"
_TOKEN = re.compile(rb"(?:(?<![A-Za-z0-9_-])|" + _ESCAPED + rb")" + _JWT.encode())  # tried once for each run of letters
_SHAPE = re.compile(_BEGIN + rb"(?:" + "|".join(_SHAPES).encode() + rb")")
_COOKIE = re.compile(
    rb"(?:(?<![A-Za-z0-9+/_-])|"
    + _ESCAPED
    + rb")(eyJ[A-Za-z0-9+/_-]{8,}={0,2}\.[A-Za-z0-9_-]{5,8}\.)[A-Za-z0-9_-]{16,}"
)
_KEYED = re.compile(
    rb"(?P<name>"
    + _NAMES.encode()
    + rb")(?:(?P<close>\\*[\"'])"
    + _SPACE.encode()
    + rb"{0,64}[:=]"
    + _SPACE.encode()
    + rb"{0,64}|[ \t]{0,8}(?P<colon>[:=])[ \t]{0,64}|(?P<space>[ \t]{1,64}))(?P<open>\\*[\"'\[])?",
    re.IGNORECASE,
)
_BEARER = re.compile(rb"(?i:bearer)(?:[ \t]|%20|\+)+(?=[^\s\"']{0,200}[0-9]|[^\s\"']{20})([A-Za-z0-9._~+/=-]{6,})")
_QUERY = re.compile(rb"(?:[?&]|\\u0026|&amp;)(?i:" + _QUERY_NAMES.encode() + rb")=([^&\s\"'\\#<>]+)")
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
_LINE = re.compile(rb"[^\n\r\"\\<]+")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_LINE_START = re.compile(rb"(?:^|[\n\r]|\\[nr])[ \t]*(?:- )?[A-Za-z0-9_.-]*\Z")
_IN_NAME = re.compile(rb"-?-[A-Za-z0-9_.-]*\Z")
_TYPES = re.compile(
    rb"(?:str|string|int|integer|float|number|bool|boolean|bytes|none|null|true|false|optional|any|object|array|list|dict"
    rb"|union|literal|required|field|os|self|secretstr)\b|\$\{",
    re.IGNORECASE,
)  # fmt: skip
_SECRET_VALUE = re.compile(rb"(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])[A-Za-z0-9._~+/=:$!@-]{12,}|[A-Za-z0-9._~+/=-]{32,}")

_HEADER = re.compile(
    rf"(?:{_NAME}|token|signature|x-forwarded-client-cert|auth)\Z|(?:^|-)(?:authorization|credentials?|secret)(?:-|\Z)",
    re.IGNORECASE,
)
_COOKIE_VALUE = re.compile(r'"?([^."]+(?:\.[A-Za-z0-9_-]{5,8}))\.[A-Za-z0-9_-]{16,}"?\Z')
_PARAMETER = re.compile(rf"(?:{_NAMES}|{_QUERY_NAMES})\Z", re.IGNORECASE)
_NAMES_REMEMBERED = 1000
_CARRY_BYTES = 256
_HOLD_BYTES = 16 * 1024
_HOLD_LIMIT_BYTES = 2**20


class _Span(NamedTuple):
    start: int
    end: int
    text: bytes = _MARK


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


def _content(data: bytes, start: int, end: int, *, sure: bool) -> Iterator[_Span]:
    """What of a value is secret: all but the scheme's word. Not `sure`: only what looks like a secret."""
    scheme = _SCHEME.match(data, start, end)
    if scheme is not None:
        start = scheme.end()
    if end > start and (sure or _SECRET_VALUE.fullmatch(data, start, end)):
        yield _Span(start, end)


def _array(data: bytes, start: int, *, sure: bool) -> Iterator[_Span]:
    """The strings of a flat array."""
    while (match := _ITEM.match(data, start)) is not None:
        end = _string_end(data, match.end(), match[2], len(match[1]))
        yield from _content(data, match.end(), end, sure=sure)
        start = end + len(match[1]) + 1


def _bare(data: bytes, match: re.Match[bytes], *, sure: bool) -> Iterator[_Span]:
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


def _keyed(data: bytes, begin: int) -> Iterator[_Span]:
    """Values of fields, variables, flags and YAML lines whose name says that they are secret."""
    position = begin
    while (match := _KEYED.search(data, position)) is not None:
        position = match.end()
        if match["space"] is not None and not _is_flag(data, match.start()):
            continue
        for span in _value(data, match, sure=match["name"].lower() != b"token"):
            yield span
            position = max(position, span.end)


def _is_flag(data: bytes, start: int) -> bool:
    """Whether the name that ends here began as a flag, as in `--api-key VALUE`."""
    return _IN_NAME.search(data, max(0, start - 64), start) is not None


def _value(data: bytes, match: re.Match[bytes], *, sure: bool) -> Iterator[_Span]:
    opening = match["open"]
    if opening is None:
        number = _NUMBER.match(data, match.end()) if match["close"] is not None else None
        if number is not None and sure:
            yield _Span(number.start(), number.end(), match["close"] + _MARK + match["close"])
        elif match["close"] is None:
            yield from _bare(data, match, sure=sure)
    elif opening.endswith(b"["):
        if match["close"] is not None:
            yield from _array(data, match.end(), sure=sure)
    else:
        end = _string_end(data, match.end(), opening[-1:], len(opening) - 1)
        yield from _content(data, match.end(), end, sure=sure)


def _pem(data: bytes, begin: int) -> Iterator[_Span]:
    position = begin
    while (match := _PEM.search(data, position)) is not None:
        end = _PEM_END.search(data, match.end(), match.end() + _PEM_BYTES)
        rest = _PEM_REST.match(data, match.end(), match.end() + _PEM_BYTES)
        position = end.end() if end is not None else rest.end() if rest is not None else match.end()
        yield _Span(match.start(), position)


def _userinfo(data: bytes, begin: int) -> Iterator[_Span]:
    for match in _USERINFO.finditer(data, begin):
        yield _Span(*match.span(2 if match[2] is not None else 3))


def _groups(pattern: re.Pattern[bytes], group: int) -> Callable[[bytes, int], Iterator[_Span]]:
    def spans(data: bytes, begin: int) -> Iterator[_Span]:
        for match in pattern.finditer(data, begin):
            yield _Span(*match.span(group))

    return spans


def _signatures(data: bytes, begin: int) -> Iterator[_Span]:
    """The signatures of session cookies that stand in a body; their payload stays readable."""
    for match in _COOKIE.finditer(data, begin):
        yield _Span(match.end(1), match.end())


_RULES = (_pem, _keyed, _groups(_SHAPE, 0), _groups(_TOKEN, 0), _groups(_BEARER, 1), _groups(_QUERY, 1), _userinfo)


def _merge(spans: list[_Span]) -> list[_Span]:
    """Sorted and disjoint; of those that overlap, the first says the text."""
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = _Span(last.start, max(last.end, span.end), last.text)
        else:
            merged.append(span)
    return merged


class Redactor:
    """Takes secrets out. Each method returns the clean text and how many replacements were made.

    `keep_cookies` leaves cookies as they are, so that a replay can use them. It is idempotent, and linear in the
    size of its input.
    """

    def __init__(self, *, keep_cookies: bool = False) -> None:
        self._keep_cookies = keep_cookies
        self._rules = _RULES if keep_cookies else (*_RULES, _signatures)
        self._secret_headers: dict[str, str] = {}
        self._suspects = jsonschema_rs.validator_for(
            {"pattern": _FLAG}, pattern_options=jsonschema_rs.RegexOptions()
        ).is_valid

    def body(self, content: bytes) -> tuple[bytes, int]:
        """A body, whole; see `stream` for long ones."""
        if not self._suspects(content.decode("latin-1")):
            return content, 0
        return _replace(content, self._spans(content, 0))

    def text(self, text: str) -> tuple[str, int]:
        """A message, a label, a line."""
        if not self._suspects(text.encode("utf-8", "surrogateescape").decode("latin-1")):
            return text, 0
        clean, replaced = self.body(text.encode("utf-8", "surrogateescape"))
        return clean.decode("utf-8", "surrogateescape"), replaced

    def headers(self, headers: Headers) -> tuple[Headers, int]:
        """Header fields: secrets by name; cookies' signatures; in all other values what looks like a secret."""
        suspect = self._suspects("\n".join([value for _, value in headers]))
        clean: list[tuple[str, str]] = []
        total = 0
        for name, value in headers:
            made, replaced = self._header(name, value, suspect=suspect)
            clean.append((name, made))
            total += replaced
        return (tuple(clean), total) if total else (headers, 0)

    def target(self, target: str) -> tuple[str, int]:
        """A request target: query parameters by name, and userinfo where it is a whole URL."""
        path, mark, query = target.partition("?")
        clean_path, total = self.text(path)
        if not mark:
            return clean_path, total
        parts = []
        for part in query.split("&"):
            name, equals, value = part.partition("=")
            if equals and value not in ("", PLACEHOLDER) and _PARAMETER.search(name):
                parts.append(f"{name}={PLACEHOLDER}")
                total += 1
            else:
                made, replaced = self.text(part)
                parts.append(made)
                total += replaced
        return f"{clean_path}?{'&'.join(parts)}", total

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """A command line, argument by argument: `--api-key VALUE`, `++policy_api_key=VALUE`, keys by shape."""
        clean: list[str] = []
        secret_next = False
        for argument in command:
            clean.append(PLACEHOLDER if secret_next else self.text(argument)[0])
            secret_next = argument.startswith("-") and "=" not in argument and bool(_PARAMETER.search(argument))
        return tuple(clean)

    def stream(self) -> "StreamRedactor":
        """For a body that comes in pieces."""
        return StreamRedactor(self)

    def _header(self, name: str, value: str, *, suspect: bool) -> tuple[str, int]:
        said = self._secret_headers.get(name)
        if said is None:
            said = self._learn(name)
        if said == "cookie":
            return (value, 0) if self._keep_cookies else _cookies(value, one=name.lower() == "set-cookie")
        if said:
            content = value.encode("latin-1", "replace")
            return _latin(_replace(content, list(_content(content, 0, len(content), sure=True))))
        return self.text(value) if suspect else (value, 0)

    def _learn(self, name: str) -> str:
        """What a header's name says of its value: `cookie`, `whole` or nothing; remembered for the usual names."""
        lower = name.lower()
        said = "cookie" if lower in ("cookie", "set-cookie") else "whole" if _HEADER.search(lower) else ""
        if len(self._secret_headers) < _NAMES_REMEMBERED:
            self._secret_headers[name] = said
        return said

    def _spans(self, content: bytes, begin: int) -> list[_Span]:
        spans = _merge([span for rule in self._rules for span in rule(content, begin)])
        return [span for span in spans if content[span.start : span.end] != span.text]


def _latin(made: tuple[bytes, int]) -> tuple[str, int]:
    return made[0].decode("latin-1"), made[1]


def _replace(content: bytes, spans: list[_Span]) -> tuple[bytes, int]:
    spans = [span for span in spans if content[span.start : span.end] != span.text]
    pieces: list[bytes] = []
    position = 0
    for span in spans:
        pieces += (content[position : span.start], span.text)
        position = span.end
    pieces.append(content[position:])
    return b"".join(pieces), len(spans)


def _cookies(value: str, *, one: bool) -> tuple[str, int]:
    """Cookies with their names and readable payloads, without signatures; of Set-Cookie the attributes stay."""
    parts = value.split(";")
    total = 0
    for number, part in enumerate(parts[:1] if one else parts):
        name, equals, content = part.partition("=")
        if not equals or not content or content.endswith(PLACEHOLDER):
            continue
        signed = _COOKIE_VALUE.match(content)
        parts[number] = f"{name}={signed[1]}.{PLACEHOLDER}" if signed else f"{name}={PLACEHOLDER}"
        total += 1
    return ";".join(parts), total


class StreamRedactor:
    """Redacts a body that comes in pieces, holding back its end until no secret can lie across it.

    A secret of up to 16 KiB is found wherever the pieces are cut; one that is longer than 1 MiB is cut there.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._context = b""
        self._held = b""
        self.replaced = 0

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; returns what is certainly clean by now, maybe nothing."""
        self._held += piece
        if len(self._held) < 2 * _HOLD_BYTES:
            return b""
        return self._take(len(self._held) - _HOLD_BYTES)

    def end(self) -> bytes:
        """The rest."""
        return self._take(len(self._held))

    def _take(self, wanted: int) -> bytes:
        data, begin = self._context + self._held, len(self._context)
        cut = begin + wanted
        spans: list[_Span] = []
        if self._redactor._suspects(data.decode("latin-1")):  # noqa: SLF001  # the other half of one class
            spans = self._redactor._spans(data, begin)  # noqa: SLF001
        across = next((span for span in spans if span.start < cut <= span.end and cut < len(data)), None)
        if across is not None:
            cut = across.start if len(self._held) < _HOLD_LIMIT_BYTES else across.end
        clean, replaced = _replace(data[begin:cut], [_shift(span, begin) for span in spans if span.end <= cut])
        self.replaced += replaced
        self._context, self._held = data[max(0, cut - _CARRY_BYTES) : cut], data[cut:]
        return clean


def _shift(span: _Span, by: int) -> _Span:
    return _Span(span.start - by, span.end - by, span.text)
