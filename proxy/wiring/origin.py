"""Origins: `scheme://host[:port]` as people and configurations write it."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True)
class Origin:
    """`scheme` is http or https; `host` has no brackets; `port` is never 0 unless given so."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `https://host`, `http://host:port` or `http://[::1]:port`; a path is an error. Raises ValueError."""
        parts = urlsplit(text)
        if parts.scheme not in _DEFAULT_PORTS:
            raise ValueError(f"{text!r} does not begin with http:// or https://")
        if not parts.hostname:
            raise ValueError(f"{text!r} names no host")
        if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError(f"{text!r} is more than scheme://host:port")
        try:
            port = parts.port
        except ValueError:
            raise ValueError(f"{text!r} has no usable port") from None
        return cls(parts.scheme, parts.hostname, _DEFAULT_PORTS[parts.scheme] if port is None else port)

    @property
    def authority(self) -> str:
        """`host`, or `host:port` where the port is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def address(self) -> str:
        """`host:port`, always with its port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """`scheme://host:port`, always with its port, as `Server.listen` and `Server.upstream` have it."""
        return f"{self.scheme}://{self.address}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def reaches(self, other: "Origin") -> bool:
        """Whether a connection to this address arrives at a listener on `other`."""
        if (self.scheme, self.port) != (other.scheme, other.port):
            return False
        return self.host == other.host or (self.loopback and (other.loopback or other.host in _ANY))
