"""Keys that say what they are by their shape, wherever they stand: by how they begin, or by a mark in their middle."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

MARK = b"<redacted>"


class Span(NamedTuple):
    """A place to replace, and by what."""

    start: int
    end: int
    text: bytes = MARK


# What each begins with, and the whole.
_BEGINNINGS = (
    *((start, r"[A-Za-z0-9_*-]{12,}") for start in ("sk-", "csk-", "nvapi-", "glpat-", "xai-", "pplx-", "pypi-")),
    *((start, r"[A-Za-z0-9_-]{16,}") for start in ("hf_", "gsk_", "r8_", "fw_", "npm_", "whsec_", "tgp_v1_")),
    *((start, r"[A-Za-z0-9_-]{16,}") for start in ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "api_org_")),
    *((start, r"[A-Za-z0-9_-]{16,}") for start in ("GOCSPX-", "1//0", "tvly-", "glptt-", "gldt-", "glrt-", "hvs.")),
    *((start, r"[A-Za-z0-9_-]{16,}") for start in ("dckr_pat_", "dop_v1_", "lin_api_", "pcsk_", "lsv2_", "glsa_")),
    *((start, r"[A-Za-z0-9_-]{16,}") for start in ("sbp_", "wandb_v1_", "e2b_", "rpa_", "ntn_", "shpat_", "figd_")),
    *((start, r"[A-Za-z0-9_]{20,}") for start in ("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_")),
    ("xox", r"[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("xapp-", r"[A-Za-z0-9-]{10,}"),
    ("hooks.slack.com/services/", r"[A-Za-z0-9/]{16,}"),
    *((start, r"[A-Z0-9]{16}") for start in ("AKIA", "ASIA", "ABIA", "ACCA")),
    ("AIza", r"[A-Za-z0-9_-]{30,}"),
    ("ya29.", r"[A-Za-z0-9_-]{20,}"),
    ("SG.", r"[A-Za-z0-9_-]{16,256}\.[A-Za-z0-9_-]{16,}"),
    ("dapi", r"[0-9a-f]{32}"),
)
# The mark in its middle, what stands before it, and what after.
_MIDDLES = (
    ("JQQJ9", r"[A-Za-z0-9+/]{52}", r"[A-Za-z0-9+/]{20,}={0,2}"),  # Azure's annotated keys, Azure OpenAI's among them
    ("AzSe", r"[A-Za-z0-9]{42}", r"[A-D][A-Za-z0-9]{5}"),  # Azure AI Search
    ("Q~", r"[A-Za-z0-9_~.]{3}[0-9]", r"[A-Za-z0-9_~.-]{31,34}"),  # a client secret of Entra ID
    (":AA", r"[0-9]{8,10}", r"[A-Za-z0-9_-]{33}"),  # a bot of Telegram
)
_JWT = r"[A-Za-z0-9_-]{8,}\.(?:eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*|[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+){3})"
_SIGNED = r"[A-Za-z0-9+/_-]{8,}={0,2}\.[A-Za-z0-9_-]{5,8}\.[A-Za-z0-9_-]{16,}"

SHAPED = "|".join(
    (
        *(re.escape(start) + rest for start, rest in _BEGINNINGS),
        *(re.escape(mark) + after for mark, _, after in _MIDDLES),
        rf"eyJ(?:{_JWT}|{_SIGNED})",
    )
)
"""What a text that may hold such a key matches, in the syntax of Rust's regex engine."""

SUSPECT_SHAPES = (
    SHAPED,
    r"(?i:basic(?:[ \t]|%20|\+)+[A-Za-z0-9+/]{12})",
    r"(?i:bearer(?:[ \t]|%20|\+)+[A-Za-z0-9._~+/=-]{6})",
)
"""The same, with what follows a scheme's word."""

# A key begins a word, or follows an escape sequence whose last letters would seem to belong to it.
_ESCAPED = rb"(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2})"


def _key(start: str, rest: str, before: bytes = rb"A-Za-z0-9") -> re.Pattern[bytes]:
    return re.compile(rb"(?:(?<![" + before + rb"])|" + _ESCAPED + rb")" + re.escape(start).encode() + rest.encode())


# The two that begin with eyJ are tried once for each run of their letters, else they were quadratic.
_BEGUN = (
    *((start.encode(), _key(start, rest)) for start, rest in _BEGINNINGS),
    (b"eyJ", _key("eyJ", _JWT, rb"A-Za-z0-9_-")),
)
_COOKIE = _key("eyJ", r"([A-Za-z0-9+/_-]{8,}={0,2}\.[A-Za-z0-9_-]{5,8}\.)[A-Za-z0-9_-]{16,}", rb"A-Za-z0-9+/_-")
_MARKED = tuple(
    (mark.encode(), re.compile(before.encode() + rb"\Z"), re.compile(re.escape(mark).encode() + after.encode()))
    for mark, before, after in _MIDDLES
)
_BEFORE_BYTES = 52

_BEARER = re.compile(
    rb"bearer(?:[ \t]|%20|\+)+(?=[^\s\"']{0,200}[0-9]|[^\s\"']{20})([A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE
)
_BASIC = re.compile(rb"basic(?:[ \t]|%20|\+)+([A-Za-z0-9+/]{12,}={0,2})", re.IGNORECASE)

_PEM = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_REST = re.compile(rb"(?:[A-Za-z0-9+/=\s:,.-]|\\+[nrt])*")
_PEM_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BYTES = 32 * 1024


def places(data: bytes, literals: tuple[bytes, ...]) -> Iterator[int]:
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


def begun(data: bytes, lower: bytes) -> Iterator[Span]:
    """Keys that are known by their beginning."""
    del lower
    for literal, pattern in _BEGUN:
        for match in _matches(data, literal, pattern):
            yield Span(*match.span())


def marked(data: bytes, lower: bytes) -> Iterator[Span]:
    """Keys that are known by their middle."""
    del lower
    for literal, before, pattern in _MARKED:
        for match in _matches(data, literal, pattern):
            start = before.search(data, max(0, match.start() - _BEFORE_BYTES), match.start())
            if start is not None:
                yield Span(start.start(), match.end())


def bearers(data: bytes, lower: bytes) -> Iterator[Span]:
    """What follows the word bearer, where it looks like a token."""
    for match in _matches(lower, b"bearer", _BEARER):
        yield Span(*match.span(1))
    for place in places(lower, (b"basic",)):
        pair = _BASIC.match(data, place)
        if pair is not None and _is_user_and_password(pair[1]):
            yield Span(*pair.span(1))


def _is_user_and_password(text: bytes) -> bool:
    """Whether it is what RFC 7617 makes of a name and a password."""
    try:
        pair = base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return b":" in pair and pair.isascii() and all(32 <= byte < 127 for byte in pair)


def pem(data: bytes, lower: bytes) -> Iterator[Span]:
    """Private keys in PEM's and PGP's armour, also one that is cut off."""
    del lower
    position = 0
    while (match := _PEM.search(data, position)) is not None:
        end = _PEM_END.search(data, match.end(), match.end() + _PEM_BYTES)
        rest = _PEM_REST.match(data, match.end(), match.end() + _PEM_BYTES)
        position = end.end() if end is not None else rest.end() if rest is not None else match.end()
        yield Span(match.start(), position)


def signature(data: bytes, start: int, end: int) -> Span | None:
    """The signature of a session cookie that stands there; None when it is another value."""
    match = _COOKIE.match(data, start, end)
    return None if match is None else Span(match.end(1), match.end())


def signatures(data: bytes, lower: bytes) -> Iterator[Span]:
    """The signatures of session cookies that stand in a body; their payload stays readable."""
    del lower
    for match in _matches(data, b"eyJ", _COOKIE):
        yield Span(match.end(1), match.end())
