"""`--map 'NAME[:KIND]=LISTEN->UPSTREAM'`: a boundary that a person writes by hand."""

from dataclasses import dataclass

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.wiring.origin import Origin
from gymtap.schemas import Server, ServerKind

_FORM = "write 'NAME[:KIND]=LISTEN->UPSTREAM' in quotes, as in 'policy:provider=8001->http://127.0.0.1:8000'"


@dataclass(frozen=True)
class Mapping:
    """Clients use `listen`; the tap calls `upstream`."""

    name: str
    kind: ServerKind
    listen: Origin
    upstream: Origin

    @property
    def server(self) -> Server:
        """The boundary to open."""
        return Server(name=self.name, kind=self.kind, listen=self.listen.url, upstream=self.upstream.url)


def parse_mapping(text: str) -> Mapping:
    """Read one mapping. Raises UsageError, which says which part is wrong."""
    label, equals, route = text.partition("=")
    listen, arrow, upstream = route.partition("->")
    if not equals or not arrow:
        missing = "'='" if not equals else "'->'"
        raise UsageError(f"the mapping {text!r} has no {missing}", _FORM)
    name, _, kind = label.strip().partition(":")
    if not name:
        raise UsageError(f"the mapping {text!r} has no name before '='", _FORM)
    return Mapping(name, _kind(text, kind), _listen(text, listen.strip()), _upstream(text, upstream.strip()))


def _kind(text: str, kind: str) -> ServerKind:
    try:
        return ServerKind(kind.strip().lower() or ServerKind.UNKNOWN)
    except ValueError:
        known = ", ".join(ServerKind)
        raise UsageError(f"the mapping {text!r} has the unknown kind {kind!r}", f"the kinds are {known}") from None


def _listen(text: str, listen: str) -> Origin:
    """`PORT`, `HOST:PORT` or `http://HOST:PORT`; loopback where no host is given."""
    written = f"127.0.0.1:{listen.removeprefix(':')}" if listen.removeprefix(":").isdigit() else listen
    try:
        origin = Origin.parse(written if "://" in written else f"http://{written}")
    except ValueError as error:
        raise UsageError(f"the mapping {text!r} has an unusable LISTEN {listen!r}: {error}", _FORM) from None
    if origin.scheme != "http":
        raise UsageError(f"the mapping {text!r} would listen with TLS, which the tap does not", "listen on http")
    if ":" not in written.rpartition("]")[2].removeprefix("http:"):
        raise UsageError(f"the mapping {text!r} has no port in LISTEN {listen!r}", _FORM)
    return origin


def _upstream(text: str, upstream: str) -> Origin:
    """`PORT`, `HOST:PORT`, or an http or https URL without a path: paths pass through as clients send them."""
    if upstream.isdigit():
        upstream = f"127.0.0.1:{upstream}"
    try:
        return Origin.parse(upstream if "://" in upstream else f"http://{upstream}")
    except ValueError as error:
        raise UsageError(f"the mapping {text!r} has an unusable UPSTREAM {upstream!r}: {error}", _FORM) from None
