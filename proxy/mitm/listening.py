"""What listens in this network namespace, as Linux says in /proc. Standard library only, for the guard process."""

from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp (Linux, include/net/tcp_states.h)
_MAPPED = "0000000000000000FFFF0000"  # ::ffff:0.0.0.0/96, which is IPv4, as four numbers in the machine's own order
_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))


def is_listening(port: int) -> bool:
    """Whether a socket listens at that TCP port."""
    return any(found == port for table in _TABLES for _, found in _listeners(table))


def listening6(low: int, high: int) -> set[int]:
    """The ports from `low` to `high` at which something listens over IPv6."""
    found = _listeners(_TABLES[1])
    return {port for address, port in found if low <= port <= high and not address.startswith(_MAPPED)}


def _listeners(table: Path) -> Iterator[tuple[str, int]]:
    """Addresses, as the table writes them, and ports; none where the kernel has no such table."""
    for line in table.read_text().splitlines()[1:] if table.exists() else ():
        _, local, _, state, *_ = line.split()
        address, _, port = local.rpartition(":")
        if state == _LISTENING:
            yield address, int(port, 16)
