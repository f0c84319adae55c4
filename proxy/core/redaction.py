"""Taking secrets out of what is recorded: headers, targets, bodies, command lines, messages.

Bodies are not parsed: rules look at bytes, knowing how quotes are escaped at any depth of JSON inside strings
inside Python reprs. So a body that is not whole, or not JSON, is treated like any other, everything but the
secrets stays byte for byte, and JSON stays JSON. A secret becomes the fixed text `<redacted>`; a tag by which
equal secrets could be told would let short ones be guessed. What is escaped, wide or streamed in deltas is looked
at once more as it would be read (`secret_readings`).

One linear-time pattern (Rust's regex engine, by way of jsonschema-rs) first asks whether a text may hold a
secret at all; it takes a few microseconds for a usual body, and only what it flags is looked at more closely.
"""

import gzip
import re
import urllib.parse
from collections.abc import Callable, Sequence
from functools import lru_cache

import jsonschema_rs
import zstandard

from gymtap.proxy.core.content import ContentError, decoder
from gymtap.proxy.core.secret_readings import HIDDEN, may_be_read_otherwise, readings, unfinished
from gymtap.proxy.core.secret_rules import (
    COOKIE_RULES,
    NAME,
    QUERY_NAMES,
    RULES,
    SHAPE_RULES,
    SUSPECT,
    merge,
    value_spans,
)
from gymtap.proxy.core.secret_shapes import MARK, SHAPED, Span
from gymtap.schemas import Headers

PLACEHOLDER = MARK.decode()


_HEADER = re.compile(
    rf"(?:{NAME}|token|signature|x-forwarded-client-cert|auth)\Z|(?:^|-)(?:authorization|credentials?|secret)(?:-|\Z)"
    r"|(?<!idempotency)(?<!websocket)(?<!surrogate)(?<!cache)-key\Z",
    re.IGNORECASE,
)
_COOKIE_VALUE = re.compile(r'"?([^."]+(?:\.[A-Za-z0-9_-]{5,8}))\.[A-Za-z0-9_-]{16,}"?\Z')
_PARAMETER = re.compile(rf"{NAME}\Z|\A(?:token|{QUERY_NAMES})\Z", re.IGNORECASE)
_CARRY_BYTES = 8 * 1024
_HOLD_BYTES = 16 * 1024
_TAKE_BYTES = 128 * 1024  # each time, what was held back and the context before it are looked at once more
_HOLD_LIMIT_BYTES = 2**20
_DEPTH = 4  # of escapes within escapes
_PACKED = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))


class Redactor:
    """Takes secrets out. Each method returns the clean text and how many replacements were made.

    `keep_cookies` leaves cookies as they are, so that a replay can use them. It is idempotent, and linear in the
    size of its input.
    """

    def __init__(self, *, keep_cookies: bool = False) -> None:
        self._keep_cookies = keep_cookies
        self._rules = RULES if keep_cookies else (*RULES, *COOKIE_RULES)
        self._suspects = _matcher(SUSPECT)
        self._is_shaped = _matcher(SHAPED)
        self._is_escaped = _matcher(HIDDEN)
        self._needs_a_look = _matcher(f"{SUSPECT}|{HIDDEN}")

    def body(self, content: bytes) -> tuple[bytes, int]:
        """A body, whole; see `stream` for long ones. One that is packed without a header that says so stays packed."""
        for magic, coding in _PACKED:
            if content.startswith(magic):
                return self._packed(content, coding)
        spans = self.spans(content)
        return _replace(content, spans) if spans else (content, 0)

    def spans(self, content: bytes, depth: int = _DEPTH) -> list[Span]:
        """Where the secrets are, in order and apart, as it is and as it may be read."""
        text = content.decode("latin-1")
        if not self._needs_a_look(text) and not may_be_read_otherwise(content):
            return []
        spans: list[Span] = []
        if self._suspects(text):
            lower = content.lower()
            rules = (*self._rules, *SHAPE_RULES) if self._is_shaped(text) else self._rules
            spans = [span for rule in rules for span in rule(content, lower)]
        for reading in readings(content, escaped=self._is_escaped(text)) if depth else ():
            spans += reading.places(self.spans(reading.data, depth - 1))
        return [span for span in merge(spans) if content[span.start : span.end] != span.text]

    def _packed(self, content: bytes, coding: str) -> tuple[bytes, int]:
        undo = decoder(coding)
        try:
            plain = b"".join(undo.feed(content)) if undo is not None else b""
        except ContentError:
            return content, 0
        clean, replaced = self.body(plain)
        if not replaced:
            return content, 0
        return gzip.compress(clean, mtime=0) if coding == "gzip" else zstandard.compress(clean), replaced

    def text(self, text: str) -> tuple[str, int]:
        """A message, a label, a line."""
        clean, replaced = self.body(text.encode("utf-8", "surrogatepass"))
        return clean.decode("utf-8", "surrogatepass"), replaced

    def headers(self, headers: Headers) -> tuple[Headers, int]:
        """Header fields: secrets by name; cookies' signatures; in all other values what looks like a secret."""
        said = [_said(name) for name, _ in headers]
        others = "\n".join([value for (_, value), about in zip(headers, said, strict=True) if not about])
        suspect = self._suspects(others)
        if not suspect and not any(said):
            return headers, 0
        made = [
            self._value(name, value, about) if about or suspect else (value, 0)
            for (name, value), about in zip(headers, said, strict=True)
        ]
        total = sum([replaced for _, replaced in made])
        return tuple([(name, value) for (name, _), (value, _) in zip(headers, made, strict=True)]), total

    def target(self, target: str) -> tuple[str, int]:
        """A request target: query parameters by name, and userinfo where it is a whole URL."""
        path, mark, query = target.partition("?")
        clean_path, total = self.text(path)
        if not mark:
            return clean_path, total
        parts = []
        for part in query.split("&"):
            name, equals, value = part.partition("=")
            if equals and value not in ("", PLACEHOLDER) and _PARAMETER.search(_plain_name(name)):
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
            secret_next = (
                argument.startswith("-") and "=" not in argument and bool(_PARAMETER.search(argument.lstrip("-")))
            )
        return tuple(clean)

    def stream(self) -> "StreamRedactor":
        """For a body that comes in pieces."""
        return StreamRedactor(self)

    def _value(self, name: str, value: str, said: str) -> tuple[str, int]:
        if said == "cookie":
            return (value, 0) if self._keep_cookies else _cookies(value, one=name.lower() == "set-cookie")
        if said:
            content = value.encode("latin-1", "replace")
            return _latin(_replace(content, list(value_spans(content))))
        return self.text(value)


@lru_cache(maxsize=1000)
def _said(name: str) -> str:
    """What a header's name says of its value: `cookie`, `whole` or nothing."""
    lower = name.lower()
    return "cookie" if lower in ("cookie", "set-cookie") else "whole" if _HEADER.search(lower) else ""


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text matches, asked of Rust's regex engine."""
    return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions()).is_valid


def _plain_name(name: str) -> str:
    """A parameter's name without escapes and brackets, as in `user%5Bpassword%5D`."""
    return urllib.parse.unquote(name).rstrip("]")


def _latin(made: tuple[bytes, int]) -> tuple[str, int]:
    return made[0].decode("latin-1"), made[1]


def _replace(content: bytes, spans: list[Span]) -> tuple[bytes, int]:
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
        if len(self._held) < _TAKE_BYTES:
            return b""
        return self._take(len(self._held) - _HOLD_BYTES)

    def settle(self) -> bytes:
        """What is clean up to the end of the last line, for a body that comes slowly; maybe nothing.

        A line that ends as if the value of its last name came on the next one is held back, and of an event stream
        the last word, which may be the beginning of a key.
        """
        cut = min(self._held.rfind(b"\n") + 1, unfinished(self._held))
        if self._held[:cut].rstrip()[-1:] in (b"", b":", b"=", b"[", b","):
            return b""
        return self._take(cut)

    def end(self) -> bytes:
        """The rest."""
        return self._take(len(self._held))

    def _take(self, wanted: int) -> bytes:
        data, begin = self._context + self._held, len(self._context)
        cut = begin + wanted
        spans = [span for span in self._redactor.spans(data) if span.start >= begin]
        if cut < len(data):
            cut = self._whole(spans, cut)
        clean, replaced = _replace(data[begin:cut], [_shift(span, begin) for span in spans if span.end <= cut])
        self.replaced += replaced
        self._context, self._held = data[max(0, cut - _CARRY_BYTES) : cut], data[cut:]
        return clean

    def _whole(self, spans: list[Span], cut: int) -> int:
        """The cut, moved so that no secret lies across it; one in several parts is held from its first on."""
        if len(self._held) >= _HOLD_LIMIT_BYTES:
            return max([cut, *(span.end for span in spans if span.start < cut <= span.end)])
        start = None
        for span in spans:
            if span.text:
                start = span.start
            if start is not None and start < cut <= span.end:
                return start
        return cut


def _shift(span: Span, by: int) -> Span:
    return Span(span.start - by, span.end - by, span.text)
