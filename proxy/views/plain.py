"""Foreign text made safe for a terminal, and cut to a width.

Everything that crossed a wire goes through `printable`, so that an escape sequence in a body is seen and not
obeyed.
"""

import re

ELLIPSIS = "…"

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters, bidirectional overrides and surrogates made visible; CRLF is a new line."""
    shown = _CONTROLS.sub(_picture, text.replace("\r\n", "\n"))
    return _SURROGATES.sub("\ufffd", shown)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return f"<{code:04X}>"


def one_line(text: str) -> str:
    """The text safe for a terminal, with all white space as single spaces."""
    return printable(" ".join(text.split()))


def clipped(text: str, width: int) -> str:
    """At most `width` characters, the last one an ellipsis when something is missing."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + ELLIPSIS
