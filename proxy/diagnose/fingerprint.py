"""A cause's fingerprint: what stays of a message when ids, numbers, paths, times and quoted values are taken away.

Rows that failed for one cause then have one fingerprint. The short form is a hash for keys; the long form is read
by people.
"""

import hashlib
import re

_MAX_CHARS = 400
_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"https?://[^\s'\"<>)\]]+"), "<url>"),
    (
        re.compile(
            r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
        ),
        "<time>",
    ),
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (
        re.compile(r"\b(?:resp|msg|call|chatcmpl|req|rs|fc|run|sk|org|proj|cmpl|toolu)[_-][\w*.-]{4,}", re.IGNORECASE),
        "<id>",
    ),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\b(?:localhost|[\w-]+(?:\.[\w-]+)+):\d+\b"), "<host>"),
    (re.compile(r"(?<![\w<])/(?:[\w.@%+-]+/)+[\w.@%+-]*"), "<path>"),
    (re.compile(r"0x[0-9a-fA-F]+|\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"`[^`\n]{0,200}`|\"[^\"\n]{0,200}\"|(?<!\w)'[^'\n]{0,200}'(?!\w)"), "<value>"),
    (re.compile(r"[-+]?\b\d[\d_,]*(?:\.\d+)?(?:e[+-]?\d+)?\b"), "<n>"),
    (re.compile(r"\s+"), " "),
    (re.compile(r"(<\w+>)(?:[ ,;]*\1)+"), r"\1"),
)


def normalise(message: str) -> str:
    """`message` with everything that differs from row to row replaced by what it is; bounded."""
    text = message[: 4 * _MAX_CHARS]
    for pattern, replacement in _STEPS:
        text = pattern.sub(replacement, text)
    return text.strip().lower()[:_MAX_CHARS]


def fingerprint(*parts: str | None) -> str:
    """Twelve hex digits for a cause, from its parts (rule, boundary, status, message), each normalised."""
    joined = "\x1f".join(normalise(part or "") for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()[:12]
