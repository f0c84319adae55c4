"""A finding: what a check says about an exchange or a row."""

from enum import StrEnum

from gymtap.schemas._model import Model


class Severity(StrEnum):
    """`error` fails something or makes it worthless; `warning` may; `note` is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(Model):
    """One rule that spoke.

    `pointer` is a JSON pointer into the body (RFC 6901; "" is the whole body, None when it is not about
    a place). `expected` and `found` are bounded and redacted. `fix` is one imperative sentence.
    """

    rule: str
    severity: Severity
    message: str
    pointer: str | None = None
    expected: str | None = None
    found: str | None = None
    fix: str | None = None
    exchange: str | None = None
