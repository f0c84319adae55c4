"""How the second engine is asked to run. Apart from the engine, since loading mitmproxy takes a second."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CA_FILE = "mitmproxy-ca-cert.pem"


def default_confdir() -> Path:
    """Where mitmproxy keeps its CA: shared with it, so that a client that trusts mitmproxy trusts this."""
    return Path.home() / ".mitmproxy"


@dataclass(frozen=True)
class MitmSettings:
    """`modes` are mitmproxy's own mode strings (`regular@8080`); `upstream_ca` a PEM file to trust upstream.

    A mode that names no host listens on loopback. `expose` allows one that others reach. `proxy_auth` is what clients
    have to give, and `upstream_auth` what an upstream is given, as `user:password`.
    """

    modes: Sequence[str] = ("regular@0",)
    confdir: Path | None = None
    upstream_ca: Path | None = None
    expose: bool = False
    proxy_auth: str = ""
    upstream_auth: str = ""

    @property
    def ca(self) -> Path:
        """The certificate that clients have to trust; there once the engine has started."""
        return (self.confdir or default_confdir()) / CA_FILE
