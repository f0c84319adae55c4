"""Where the secrets in a text are by their names: of fields, flags, variables, elements, parts, parameters, cookies.

Rules look at bytes and know how quotes are escaped at any depth of JSON inside strings inside Python reprs. Each
is linear in the size of its input: it begins at literals that are found fast, and looks around them a bounded way.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from gymtap.proxy.core.secret_shapes import (
    SUSPECT_SHAPES,
    Span,
    bearers,
    begun,
    marked,
    pem,
    places,
    signature,
    signatures,
)

# What a field, a flag, a variable or a parameter that holds a secret is called; its name ends so.
NAME = (
    r"api[-_]?keys?|access[-_]?keys?(?:[-_]?id)?|(?:secret|private|signing|encryption|account|auth|subscription|master"
    r"|service|storage|license|wandb|shared|functions|openai|anthropic|azure|gemini|google|mistral|deepseek|groq|tavily"
    r"|serper|nvidia|aws|huggingface)[-_]?keys?|secrets?|passw(?:or)?ds?|passphrase|passcode|passwd|pwd|credentials?"
    r"|(?:db|smtp|redis|mysql|pg|proxy|ssh|admin)[-_]pass|(?:proxy[-_]?)?authorization"
    r"|(?:access|auth|api|refresh|id|session|bearer|security|csrf|xsrf|hf|hub|hugging_?face|github|gitlab|gh|slack|bot|app"
    r"|user|service|personal|private|secret|oauth2?|jwt|wandb|ngc|nvidia|login|client|device|deploy|registry|npm|pypi"
    r"|identity)[-_]?tokens?"
)
# `token` alone may as well be a piece of text with its log probability, and `API key` words of a sentence: there the
# value has to look like a secret.
_UNSURE = r"(?:token|(?:api|access|secret|private) keys?(?: provided)?)"
NAMES = rf"(?:{NAME}|{_UNSURE})"

QUERY_NAMES = r"(?:key|sig|signature|token|x-(?:amz|goog)-(?:signature|credential|security-token))"
_SPACE = r"(?:[ \t\r\n]|\\+[nrt])"
_IS = r"(?::=|=>|[:=])"
_PREFIX = r"[bBrRuUfF]{0,2}"
_VISIBLE = r"(?:[a-z0-9-]+(?: |%20|\+))?[A-Za-z0-9._~+/=:$!@-]{12}"

SUSPECT = "|".join(
    (
        *SUSPECT_SHAPES,
        rf"(?i:{NAME}\\*[\"']?\]?{_SPACE}*[:=])",
        rf"(?i:{_UNSURE}\\*[\"']?\]?{_SPACE}*{_IS}{_SPACE}*(?:\[|{_PREFIX}\\*[\"']{_VISIBLE}|{_VISIBLE}))",
        rf"(?i:(?:{NAMES}|cookie)\\*[\"']{_SPACE}*,{_SPACE}*{_PREFIX}\\*[\"'])",
        rf"(?i:</[a-z0-9_.:-]*{NAMES}[ \t]*>)",
        rf"(?i:{NAMES}(?:</|\\*[\"'][^<>\"']*(?:>|[ \t](?:value|content)=)))",
        r"(?i:form-data;|cookie\\*[\"']?[ \t]*[:=])",
        rf"(?i:--?[a-z0-9_.-]*{NAMES}[ \t])",
        rf"(?i:(?:[?&]|\\u0026|&amp;){QUERY_NAMES}=)",
        r"PRIVATE KEY(?: BLOCK)?-----",
        r"://[^/\s\"'@]+@",
    )
)
"""What a text that may hold a secret matches, in the syntax of Rust's regex engine; all rules below are within it."""

_STEMS = (b"key", b"secret", b"pass", b"pwd", b"credential", b"authorization", b"token")
_STEM = (
    r"(?P<stem>(?:key(?:[-_]?id)?|secret|password|passwd|passwrd|passphrase|passcode|pass|pwd|credential|authorization"
    r"|token)s?)"
)
_NAME_BYTES = 40
_NAME_CHARACTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_NAMED = re.compile(NAMES.encode() + rb"\Z")
_SURE = re.compile(rf"(?:{NAME})\Z".encode())
_KEYED = re.compile(
    (
        rf"{_STEM}(?: provided)?(?:(?P<close>\\*[\"'])\]?(?:{_SPACE}{{0,64}},{_SPACE}{{0,64}}\\*[\"']value\\*[\"'])?"
        rf"{_SPACE}{{0,64}}(?:{_IS}(?!=)|(?P<comma>,)){_SPACE}{{0,64}}"
        rf"|(?:[ \t]{{0,8}}|\](?==))(?P<colon>{_IS})(?!=)[ \t]{{0,64}}"
        rf"(?:[A-Za-z_][\w.\[\]| ]{{0,40}}[ \t]=[ \t]*(?={_PREFIX}[\"']))?"
        rf"|(?P<space>[ \t]{{1,64}}))(?:{_PREFIX}(?P<open>\\*[\"'\[]))?"
    ).encode(),
    re.IGNORECASE,
)
_MARKUP = re.compile(
    (
        _STEM + r"(?:\\*[\"'][^<>\"']{0,64}[ \t](?:value|content)[ \t]?=[ \t]?\\*[\"'](?P<value>[^\"'<>\\]{1,4096}+)"
        r"|\\*[\"'][^<>]{0,128}>(?P<text>[^<]{1,4096}+)<"
        rf"|</key>{_SPACE}{{0,64}}"
        r"<string>(?P<plist>[^<]{1,4096}+)<"
        r"|(?:\s[^<>]{0,256})?>(?:\s{0,64}<!\[CDATA\[(?P<cdata>(?s:.){1,4096}?)\]\]>\s{0,64}|(?P<element>[^<]{1,4096}+))"
        r"</[\w.:-]{0,128}?(?P=stem)\s{0,8}>)"
    ).encode(),
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(rb"[a-z]+(?:[_-][a-z0-9]+)*")  # a name beside a name, as in lists of required fields

_QUERY_MARKS = (b"?", b"&", b"\\u0026")
_QUERY = re.compile(rb"(?:[?&](?:amp;)?|\\u0026)(?i:" + QUERY_NAMES.encode() + rb")=([^&\s\"'\\#<>]+)")
_USERINFO = re.compile(rb"://(?:([^/\s\"'@:\\?#]{0,128}):([^/\s\"'@\\?#]{1,256})|([^/\s\"'@:\\?#]{16,256}))@")

_NEWLINE = rb"(?:\r?\n|(?:\\+r)?\\+n)"
_ENTRY = re.compile(
    _NEWLINE
    + rb"[ \t]{0,64}(?P<dash>-[ \t]{1,8})?(?:\\*[\"'])?(?P<item>[^\s\"'\\]{1,512}+)(?:\\*[\"'])?(?=[\r\n\"'\\]|\Z)"
)
_BLOCK = re.compile(rb"[|>][-+]?[ \t]{0,8}(?=[\r\n\\])")
_PART = re.compile(rb"form-data;[^\r\n]{0,256}?[ ;]name\*?=(?:utf-8'')?\\*\"?([^\"\r\n;\\]{1,128})", re.IGNORECASE)
_PART_BEGIN = re.compile(_NEWLINE + _NEWLINE)
_PART_END = re.compile(_NEWLINE + rb"--|\Z")
_PART_HEADER_BYTES = 1024

_COOKIES = re.compile(
    (
        rf"cookie(?:\\*[\"'](?:{_SPACE}{{0,64}},{_SPACE}{{0,64}}\\*[\"']value\\*[\"'])?{_SPACE}{{0,8}}[:,]{_SPACE}{{0,8}}"
        rf"{_PREFIX}\\*[\"']|[ \t]{{0,8}}[:=][ \t]{{0,8}}[\"']?)"
    ).encode(),
    re.IGNORECASE,
)
_COOKIE_PAIR = re.compile(rb"[ \t]*([^\s=;,\"'\\]{1,128})=([^\s;,\"'\\]{0,8192})(?:;|(?=[\s\"'\\,])|\Z)")
_COOKIE_SECRET = re.compile(rb"(?=\S*[0-9A-Z])\S{8,}")
_COOKIE_ATTRIBUTES = frozenset((b"path", b"domain", b"max-age", b"expires", b"samesite", b"version", b"priority"))

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
# What vLLM's users write for no key at all, others' placeholder, and a template's.
_NO_SECRET = re.compile(rb"EMPTY|\[?REDACTED\]?|\$?\{{1,2}[^{}\"']{1,80}\}{1,2}")
_SECRET_VALUE = re.compile(
    rb"(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])[A-Za-z0-9._~+/=:$!@-]{12,}|(?=[^\s]*[A-Za-z])[A-Za-z0-9._~+/=-]{32,}"
)
_LOGPROB = re.compile(rb"\\*[\"'][ ]?,[ ]?\\*[\"'](?:logprob|bytes)\b")  # what follows a token that was generated
_TOKEN_FIELDS = (b'"token": "', b'"token":"')
_SHORTEST = 12
_AFTER_STRING = re.compile(rb"\s*(?:[,}\]:]|\Z)")


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
    if end > start and (sure or (_SECRET_VALUE.fullmatch(data, start, end) and not _LOGPROB.match(data, end))):
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
    found = _WORD.match(data, start)
    if _TYPES.match(data, start) or (found is None and not sure):
        return
    if sure and match["colon"] == b":" and _LINE_START.search(data, max(0, match.start() - 64), match.start()):
        if found is None:
            yield from _entries(data, start)
        found = None if _BLOCK.match(data, start) else _LINE.match(data, start)
    if found is None or data[found.end() : found.end() + 1] in (b"(", b"["):
        return
    yield from _content(data, start, start + len(found[0].rstrip()), sure=sure)


def _entries(data: bytes, start: int) -> Iterator[Span]:
    """The items of a YAML list below a name, or a block's first line; they may be prose, so not any word is secret."""
    block = _BLOCK.match(data, start)
    match = _ENTRY.match(data, block.end() if block else start)
    while match is not None and (match["dash"] or block):
        yield from _content(data, *match.span("item"), sure=False)
        match = None if block else _ENTRY.match(data, match.end())


def keyed(data: bytes, lower: bytes) -> Iterator[Span]:
    """Values of fields, variables, flags, elements and YAML lines whose name says that they are secret."""
    markup = b"<" in data
    done = 0
    for start in sorted(places(lower, _STEMS)):
        if start < done or _is_short_token(data, lower, start):
            continue
        match = _KEYED.match(data, start)
        if match is not None and (match["space"] is None or _is_flag(data, start)):
            spans = list(_value(data, lower, match))
        else:
            spans = list(_element(data, lower, start)) if markup else []
        yield from spans
        done = max(done, spans[-1].end if spans else 0)


def _is_short_token(data: bytes, lower: bytes, start: int) -> bool:
    """Whether it is a token of a generation, too short for a secret; bodies with log probabilities are full of them."""
    for field in _TOKEN_FIELDS:
        if lower.startswith(field, start - 1):
            begin = start - 1 + len(field)
            return data.find(b'"', begin, begin + _SHORTEST) >= 0
    return False


def _is_flag(data: bytes, start: int) -> bool:
    """Whether the name that ends here began as a flag, as in `--api-key VALUE`."""
    return _IN_NAME.search(data, max(0, start - 64), start) is not None


def _name(lower: bytes, start: int, end: int) -> tuple[bool, bytes] | None:
    """Whether the name whose stem begins here is surely a secret's, and the name; None when it is no such name."""
    begin = _word_start(lower, start)
    if begin == start and lower[start - 1 : start] == b" ":
        begin = _word_start(lower, start - 1)
    return _known(lower[begin:end])


def _word_start(lower: bytes, end: int) -> int:
    for begin in range(end, max(0, end - _NAME_BYTES), -1):
        if lower[begin - 1] not in _NAME_CHARACTERS:
            return begin
    return max(0, end - _NAME_BYTES)


@lru_cache(maxsize=4096)
def _known(words: bytes) -> tuple[bool, bytes] | None:
    name = _NAMED.search(words)
    return None if name is None else (_SURE.search(name[0]) is not None, name[0])


def _value(data: bytes, lower: bytes, match: re.Match[bytes]) -> Iterator[Span]:
    end = match.end("stem") + len(" provided") * lower.startswith(b" provided", match.end("stem"))
    named = _name(lower, match.start(), end)
    if named is None:
        return
    sure, name = named
    opening = match["open"]
    if match["comma"] is not None:
        yield from _pair(data, match, name) if opening and not opening.endswith(b"[") else ()
    elif opening is None:
        number = _NUMBER.match(data, match.end()) if match["close"] is not None else None
        if number is not None and sure and not name.endswith(b"s"):
            yield Span(number.start(), number.end(), match["close"] + b"<redacted>" + match["close"])
        elif match["close"] is None:
            yield from _bare(data, match, sure=sure)
    elif opening.endswith(b"["):
        if match["close"] is not None:
            yield from _array(data, match.end(), sure=sure)
    elif not _is_over(data, match):
        end = _string_end(data, match.end(), opening[-1:], len(opening) - 1)
        yield from _content(data, match.end(), end, sure=sure)


def _is_over(data: bytes, match: re.Match[bytes]) -> bool:
    """Whether the quote that seems to open the value ends the string with the name in it, as in a prompt for it."""
    opening, closing = match["open"], match["close"]
    if closing is not None and len(opening) < len(closing):
        return True
    alike = closing is not None and opening[-1:] == closing[-1:]
    return not alike and _AFTER_STRING.match(data, match.end()) is not None


def _pair(data: bytes, match: re.Match[bytes], name: bytes) -> Iterator[Span]:
    """The second of two strings in brackets, as in lists of header fields; not what is another name."""
    end = _string_end(data, match.end(), match["open"][-1:], len(match["open"]) - 1)
    after = data[end + len(match["open"]) : end + len(match["open"]) + 1]
    scheme = name.endswith(b"authorization") and _SCHEME.match(data, match.end(), end)
    if after in (b")", b"]") and not _IDENTIFIER.fullmatch(data, match.end(), end):
        yield from _content(data, match.end(), end, sure=bool(scheme))


def _element(data: bytes, lower: bytes, start: int) -> Iterator[Span]:
    """What XML's elements and attributes hold."""
    match = _MARKUP.match(data, start)
    named = _name(lower, start, match.end("stem")) if match is not None else None
    if match is None or named is None:
        return
    group = str(match.lastgroup)
    begin, end = match.span(group)
    text = data[begin:end]
    begin += len(text) - len(text.lstrip())
    yield from _content(data, begin, begin + len(text.strip()), sure=named[0] and group not in ("value", "text"))


def parts(data: bytes, lower: bytes) -> Iterator[Span]:
    """Parts of a form (RFC 7578) whose name says that they are secret."""
    done = 0
    for place in places(lower, (b"form-data;",)):
        match = _PART.match(data, place) if place >= done else None
        if match is None:
            continue
        name = match[1].lower().rstrip(b"]")
        named = _name(name, len(name), len(name))
        begin = _PART_BEGIN.search(data, match.end(), match.end() + _PART_HEADER_BYTES)
        if named is None or begin is None:
            continue
        end = _PART_END.search(data, begin.end())
        done = end.start() if end else len(data)
        yield from _content(data, begin.end(), done, sure=named[0])


def userinfo(data: bytes, lower: bytes) -> Iterator[Span]:
    """Passwords, and tokens in a user's place, in URLs anywhere."""
    del lower
    for place in places(data, (b"://",)):
        match = _USERINFO.match(data, place)
        if match is not None:
            yield Span(*match.span(2 if match[2] is not None else 3))


def parameters(data: bytes, lower: bytes) -> Iterator[Span]:
    """Values of query parameters, in URLs anywhere."""
    del lower
    done = 0
    for place in sorted(places(data, _QUERY_MARKS)):
        match = _QUERY.match(data, place) if place >= done else None
        if match is not None:
            yield Span(*match.span(1))
            done = match.end()


def cookies(data: bytes, lower: bytes) -> Iterator[Span]:
    """Cookies in header fields that stand in a body; the payload of a signed session stays readable."""
    done = 0
    for place in places(lower, (b"cookie",)):
        header = _COOKIES.match(data, place) if place >= done else None
        match = _COOKIE_PAIR.match(data, header.end()) if header is not None else None
        while match is not None:
            done = match.end()
            if match[1].lower() not in _COOKIE_ATTRIBUTES and _COOKIE_SECRET.fullmatch(match[2]):
                yield signature(data, *match.span(2)) or Span(*match.span(2))
            match = _COOKIE_PAIR.match(data, done) if match[0].endswith(b";") else None


RULES = (pem, keyed, bearers, parts, parameters, userinfo)
"""All but those about shapes, and about cookies, which a capture that keeps cookies leaves out."""

SHAPE_RULES = (begun, marked)
"""For a text that SHAPED matches."""

COOKIE_RULES = (signatures, cookies)


def value_spans(data: bytes) -> Iterator[Span]:
    """What is secret of a value that is known to be so: all but a scheme's word."""
    return _content(data, 0, len(data), sure=True)


def merge(spans: list[Span]) -> list[Span]:
    """Sorted and disjoint; of those that overlap, the first says the text."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, span.end), last.text or span.text)
        else:
            merged.append(span)
    return merged
