"""Through which of the tap's own listeners each of its own connections has come, so that a circle is seen.

A listener whose upstream leads back to it, by a name, a forwarded port or another listener, would call itself until no
descriptor is left. The tap's connections are told from others by their own addresses; nothing is added to the traffic.
"""

type Address = tuple[str | int, ...]
"""As a socket says it: host and port, and for IPv6 more."""


class Paths:
    """Shared by the engines of a tap, each on its own thread; a listener is named by where it listens."""

    def __init__(self) -> None:
        self._through: dict[Address, frozenset[str]] = {}

    def through(self, peer: Address | None) -> frozenset[str]:
        """The listeners that what comes from `peer` has passed already; none where it comes from elsewhere."""
        return self._through.get((peer or ())[:2], frozenset())

    def opened(self, local: Address | None, listeners: frozenset[str]) -> None:
        """A connection of the tap's own, from `local`, for what has passed these listeners."""
        if local:
            self._through[local[:2]] = listeners

    def closed(self, local: Address | None) -> None:
        """It has ended. Twice is harmless."""
        self._through.pop((local or ())[:2], None)


def circle(listener: str) -> str:
    """What is said of a listener that is met again."""
    return f"{listener} would call itself over and over: its upstream leads back to it"
