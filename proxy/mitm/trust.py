"""What a child needs to use the proxy and to trust it: variables, and the files that they name.

Where a variable replaces the trust that a program has (Python, curl), its file holds the system's certificates too;
where it adds to it (Node), the CA alone.
"""

import ssl
import warnings
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.utils import CryptographyDeprecationWarning

BUNDLE = "trusted.pem"
JAVA_STORE = "trusted.p12"
_JAVA_PASSWORD = b"changeit"  # Java's own default; the store holds no secret
_DIRECT = ("localhost", "127.0.0.1", "::1")
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")


def write_trust(folder: Path, ca: Path, environ: Mapping[str, str]) -> None:
    """Write the bundle and Java's store: the system's certificates, those that `environ` names, and the CA."""
    named = sorted({environ[name] for name in _BUNDLES if environ.get(name)})
    trusted = [*_system(), ca.read_text(), *(Path(file).read_text() for file in named if Path(file).is_file())]
    (folder / BUNDLE).write_text("\n".join(trusted))
    (folder / JAVA_STORE).write_bytes(_java_store("\n".join(trusted).encode()))


def write_bundle(file: Path, extra: Path) -> None:
    """Write the system's certificates and those in `extra`, which is PEM. Raises OSError."""
    file.write_text("\n".join([*_system(), extra.read_text()]))


def _system() -> list[str]:
    """What this Python trusts, as PEM."""
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    return [ssl.DER_cert_to_PEM_cert(certificate) for certificate in trusted]


def _java_store(pem: bytes) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # of CAs that are older than its rules
        found = dict.fromkeys(x509.load_pem_x509_certificates(pem))
    entries = [pkcs12.PKCS12Certificate(certificate, None) for certificate in found]
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(_JAVA_PASSWORD))


def proxy_variables(host: str, port: int, folder: Path, ca: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that Python, curl, Node and Java read; what `environ` has is kept where it can be.

    Loopback goes direct: what Gym's servers say to each other is captured by the first engine.
    """
    url = f"http://{host}:{port}"
    named = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    direct = ",".join(dict.fromkeys([*(part.strip() for part in named.split(",") if part.strip()), *_DIRECT]))
    said = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), url)
    said |= {"NO_PROXY": direct, "no_proxy": direct, "NODE_USE_ENV_PROXY": "1", "NODE_EXTRA_CA_CERTS": str(ca)}
    said |= {name: str(folder / BUNDLE) for name in _BUNDLES}
    return said | {"JAVA_TOOL_OPTIONS": _java(host, port, folder, environ.get("JAVA_TOOL_OPTIONS", ""))}


def _java(host: str, port: int, folder: Path, given: str) -> str:
    said = {
        **{f"{scheme}.{name}": value for scheme in ("http", "https") for name, value in _java_proxy(host, port)},
        "http.nonProxyHosts": "localhost|127.*|[::1]",
        "javax.net.ssl.trustStore": str(folder / JAVA_STORE),
        "javax.net.ssl.trustStoreType": "PKCS12",
        "javax.net.ssl.trustStorePassword": _JAVA_PASSWORD.decode(),
    }
    return " ".join([*([given] if given else []), *(f"-D{name}={value}" for name, value in said.items())])


def _java_proxy(host: str, port: int) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("proxyHost", host), ("proxyPort", str(port))
