"""Members of an enumeration by the names that people write: an error says which there are."""

from enum import StrEnum

from gymtap.proxy.core.errors import UsageError


def one_of[T: StrEnum](kinds: type[T], text: str | None) -> T | None:
    """The one that is so called; None where nothing is asked. Raises UsageError, with those that there are."""
    if text is None:
        return None
    try:
        return kinds(text)
    except ValueError:
        raise UsageError(f"there is no {text!r}", f"there are: {', '.join(kinds)}") from None
