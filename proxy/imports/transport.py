"""How a recording's words for a broken connection become a transport error.

A caller's own time limit is what a tap sees as the caller having gone.
"""

from typing import Any

from gymtap.proxy.diagnose.sources import transport_kind
from gymtap.schemas import TransportError, TransportErrorKind

STILL_OPEN = TransportError(kind=TransportErrorKind.TAP_STOPPED, message="the recording ended while this was open")


def transport_error(said: Any) -> TransportError | None:
    """`said` is the words, or an object with `type` or `kind` and `message`; None where nothing was said."""
    if not said:
        return None
    fields = said if isinstance(said, dict) else {"message": said}
    text = ": ".join(str(fields[key]) for key in ("type", "kind", "message") if fields.get(key))
    text = text.encode("utf-8", "backslashreplace").decode()  # halves of characters are no text that can be kept
    kind, timeout = transport_kind(text)
    if timeout or kind is None:
        kind = TransportErrorKind.CLIENT_GONE
    return TransportError(kind=kind, message=" ".join(text.split()))
