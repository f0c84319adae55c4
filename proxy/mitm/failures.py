"""mitmproxy's words for a broken exchange as transport errors.

It says who broke it only in words: `Client disconnected`, `server closed connection`, `Cannot connect`. (12.3)
"""

import re

from gymtap.schemas import TransportError, TransportErrorKind

_KINDS: tuple[tuple[str, TransportErrorKind], ...] = (
    (r"client (?:disconnected|closed)|by client|stream reset by client", TransportErrorKind.CLIENT_GONE),
    (r"reset by server", TransportErrorKind.RESET),  # before the words of its reason
    (r"tls|certificate|handshake|ssl", TransportErrorKind.TLS),
    (r"refused|connect call failed|connection killed", TransportErrorKind.REFUSED),
    (r"name or service|getaddrinfo|unreachable|no route|nodename|resolution", TransportErrorKind.UNREACHABLE),
    (r"reset", TransportErrorKind.RESET),
    (r"disconnected|closed|eof|incomplete", TransportErrorKind.CLOSED),
    (r"malformed|invalid|protocol|parse|violat|expected http|bad http", TransportErrorKind.MALFORMED),
)


def transport_error(message: str, *, answered: bool) -> TransportError:
    """What ended an exchange; where its words say nothing, the upstream closed, or could not be reached."""
    words = message.lower()
    fallback = TransportErrorKind.CLOSED if answered else TransportErrorKind.UNREACHABLE
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, words)), fallback)
    return TransportError(kind=kind, message=" ".join(message.split()))
