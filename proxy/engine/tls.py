"""TLS towards upstreams: whom to trust, and what to say when that fails."""

import ssl
from pathlib import Path

from gymtap.proxy.core.errors import UsageError


def tls_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Trust the system's authorities, and those in `ca_file` (PEM) beside them.

    Raises UsageError when the file cannot be read as certificates.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the default since Python 3.13; refuses most self-made authorities
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:  # ssl.SSLError is one
            reason = "no PEM certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
            raise UsageError(
                f"cannot read the upstream CA file {ca_file}: {reason}",
                "give --upstream-ca a PEM file with the certificate of the authority that signed the upstream's",
            ) from error
    return context


def explain(error: ssl.SSLError, host: str) -> str:
    """Say in one line what failed in the handshake with `host`, and the way out."""
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = error.verify_message.rstrip(".") or "not trusted"
        return f"the certificate of {host} was refused: {problem}; trust its authority with --upstream-ca FILE"
    return f"the TLS handshake with {host} failed: {error.reason or error}"
