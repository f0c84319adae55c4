"""mitmproxy's mode strings: which are taken, and which lead to one upstream."""

from collections.abc import Iterator, Sequence

from mitmproxy.proxy import mode_specs

from gymtap.proxy.core.errors import UsageError

LOOPBACK = "127.0.0.1"
_HTTP_SCHEMES = frozenset({"http", "https", "http3"})

type Address = tuple[str, int]


def parse_mode(text: str) -> mode_specs.ProxyMode:
    """A mode string of mitmproxy's. Raises UsageError, also where nothing that is HTTP would come through it."""
    try:
        mode = mode_specs.ProxyMode.parse(text)
    except ValueError as error:
        raise UsageError(
            f"--mode {text}: {error}", "as in regular@8080, reverse:https://host@8081, socks5@1080"
        ) from None
    reverse = isinstance(mode, mode_specs.ReverseMode) and mode.scheme not in _HTTP_SCHEMES
    if reverse or isinstance(mode, mode_specs.DnsMode):
        raise UsageError(
            f"--mode {text} passes no HTTP, so nothing of it could be captured", "as in reverse:https://host@8081"
        )
    return mode


def fixed_routes(modes: Sequence[str]) -> Iterator[tuple[str, Address, Address]]:
    """Of each mode whose upstream is in its string: the mode, where it listens, and the upstream."""
    for text in modes:
        mode = parse_mode(text)
        port = mode.listen_port()
        if isinstance(mode, mode_specs.ReverseMode | mode_specs.UpstreamMode) and port is not None:
            yield text, (mode.listen_host(LOOPBACK), port), (mode.address[0], mode.address[1])
