"""TLS upstreams: trusted when an authority vouches for the name, and a plain word when none does."""

import asyncio
import datetime as dt
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.engine import tls_context
from gymtap.schemas import TransportErrorKind

NOW = dt.datetime.now(dt.UTC)
PEM = serialization.Encoding.PEM


def certificate(name, key, issuer, issuer_key, *, ca, names=()):
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - dt.timedelta(days=1))
        .not_valid_after(NOW + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """The authority's file, and server contexts for a good name and for another's."""
    folder = tmp_path_factory.mktemp("ca")
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_file = folder / "ca.pem"
    ca_file.write_bytes(certificate("Lab", ca_key, "Lab", ca_key, ca=True).public_bytes(PEM))

    def context(*names):
        key = ec.generate_private_key(ec.SECP256R1())
        chain = folder / "server.pem"
        chain.write_bytes(
            certificate("server", key, "Lab", ca_key, ca=False, names=names).public_bytes(PEM)
            + key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(chain)
        return server

    good = context(x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    return ca_file, good, context(x509.DNSName("elsewhere.example"))


async def answer(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
    await reader.read()


async def failure(tap):
    reader, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    error = (await tap.tape.ended()).error
    assert error.kind is TransportErrorKind.TLS
    return error.message


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_an_upstream_that_a_given_authority_vouches_for_is_called(lab, authority, host):
    ca_file, good, _ = authority
    port = await lab.serve(answer, tls=good)
    tap = await lab.tap(f"https://{host}:{port}", tls=tls_context(ca_file))
    reader, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200 OK")
    assert (await tap.tape.ended()).error is None


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", TransportErrorKind.CLOSED),
        (b"HTTP/1.1 200 OK\r\n\r\nhalf", None),
    ],
)
async def test_an_upstream_that_closes_over_tls_closes(lab, authority, head, kind):
    async def close_early(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)

    ca_file, good, _ = authority
    tap = await lab.tap(f"https://localhost:{await lab.serve(close_early, tls=good)}", tls=tls_context(ca_file))
    reader, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert await reader.read() == head
    error = (await tap.tape.ended()).error
    assert (error and error.kind) == kind


async def test_a_client_that_goes_is_gone_over_tls_too(lab, authority):
    asked, gone = asyncio.Event(), asyncio.Event()

    async def wait(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        try:
            await reader.read()
        finally:
            gone.set()

    ca_file, good, _ = authority
    tap = await lab.tap(f"https://localhost:{await lab.serve(wait, tls=good)}", tls=tls_context(ca_file))
    _, writer = await tap.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    await asked.wait()
    writer.close()
    await gone.wait()
    assert (await tap.tape.ended()).error.kind is TransportErrorKind.CLIENT_GONE


async def test_an_unknown_authority_is_refused_with_the_way_out(lab, authority):
    tap = await lab.tap(f"https://localhost:{await lab.serve(answer, tls=authority[1])}")
    message = await failure(tap)
    assert "the certificate of localhost was refused" in message
    assert "local issuer certificate" in message
    assert "--upstream-ca" in message


async def test_a_certificate_for_another_name_is_refused(lab, authority):
    ca_file, _, bad = authority
    tap = await lab.tap(f"https://localhost:{await lab.serve(answer, tls=bad)}", tls=tls_context(ca_file))
    assert "Hostname mismatch" in await failure(tap)


async def test_plain_http_where_tls_was_expected_is_said(lab):
    async def plain(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    tap = await lab.tap(f"https://localhost:{await lab.serve(plain)}")
    assert "the TLS handshake with localhost failed" in await failure(tap)


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_a_ca_file_that_cannot_be_read_is_said(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GymtapError, match="cannot read the upstream CA file") as caught:
        tls_context(path)
    assert "--upstream-ca" in caught.value.hint


async def test_an_answer_before_the_end_of_a_request_is_not_lost_to_a_reset(lab, authority):
    """The upstream refuses and is gone; whoever still sends reads the answer when they are done."""
    ca_file, good, _ = authority
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno\n"

    async def upstream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal)

    tap = await lab.tap(f"https://localhost:{await lab.serve(upstream, tls=good)}", tls=tls_context(ca_file))
    reader, writer = await tap.connect()
    writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n")
    assert (await tap.tape.ended()).error is None
    writer.write(b"x" * 3_000_000)
    await writer.drain()
    assert await reader.read() == refusal
    writer.close()
    await writer.wait_closed()
