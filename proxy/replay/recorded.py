"""What replay works on: an exchange together with its bodies, and what its headers say about cookies.

Cookies are read as they were sent, quotes and all, because a server compares bytes and not values.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gymtap.schemas import Exchange, Headers


@dataclass(frozen=True)
class Recorded:
    """An exchange and its bodies: content-decoded and redacted, None where the capture has none."""

    exchange: Exchange
    request_body: bytes | None = None
    response_body: bytes | None = None

    @property
    def path(self) -> str:
        """The request target without its query."""
        return self.exchange.request.target.partition("?")[0]

    @property
    def ended_ns(self) -> int:
        """When it ended; when it started, while it is open."""
        return self.exchange.started_ns + int((self.exchange.duration_ms or 0) * 1e6)


def header(headers: Headers, name: str) -> str | None:
    """The first field of that name, in any case."""
    return next((value for key, value in headers if key.lower() == name), None)


def cookies_sent(headers: Headers) -> dict[str, str]:
    """Name to raw value of every cookie in a request's Cookie fields."""
    pairs = (pair for key, value in headers if key.lower() == "cookie" for pair in value.split(";"))
    return dict(_split(pair) for pair in pairs if pair.strip())


def cookies_set(headers: Headers) -> dict[str, str]:
    """Name to raw value of every cookie that a response sets."""
    return dict(_split(value.partition(";")[0]) for key, value in headers if key.lower() == "set-cookie")


def in_order(exchanges: Iterable[Recorded]) -> list[Recorded]:
    """By the time at which they started; ids settle what started together."""
    return sorted(exchanges, key=lambda one: order(one.exchange))


def order(exchange: Exchange) -> tuple[int, int, str]:
    """A sort key: the recorded order."""
    return exchange.started_ns, len(exchange.id), exchange.id


def _split(pair: str) -> tuple[str, str]:
    name, _, value = pair.strip().partition("=")
    return name.strip(), value.strip()
