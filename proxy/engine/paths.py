"""Through which of the tap's own listeners each of its own connections has come, so that a circle is seen.

A listener whose upstream leads back to it, by a name, a forwarded port or another listener, would call itself until no
descriptor is left. The tap's connections are told from others by both their ends (one end alone may be another
connection's as well: a port is given out anew for each destination); nothing is added to the traffic. Where another
process stands in between, a second tap say, there is nothing to tell them by.
"""

type Address = tuple[str | int, ...]
"""As a socket says it: host and port, and for IPv6 more."""
type Ends = tuple[Address | None, Address | None]
"""Of a connection: the side that called, and the side that was called."""


class Paths:
    """Shared by the engines of a tap, each on its own thread; a listener is named by where it listens."""

    def __init__(self) -> None:
        self._through: dict[tuple[Address, ...], frozenset[str]] = {}

    def through(self, ends: Ends) -> frozenset[str]:
        """The listeners that what comes by a connection has passed already; none where it comes from elsewhere."""
        return self._through.get(_key(ends), frozenset())

    def opened(self, ends: Ends, listeners: frozenset[str]) -> None:
        """A connection of the tap's own, for what has passed these listeners."""
        if all(ends):
            self._through[_key(ends)] = listeners

    def closed(self, ends: Ends) -> None:
        """It has ended. Twice is harmless."""
        self._through.pop(_key(ends), None)


def _key(ends: Ends) -> tuple[Address, ...]:
    return tuple((end or ())[:2] for end in ends)


def circle(listener: str) -> str:
    """What is said of a listener that is met again."""
    return f"{listener} would call itself over and over: its upstream leads back to it"
