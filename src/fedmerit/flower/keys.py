"""Keys and certificates for a federation on one machine: an authority, a server that it vouches for, keys of nodes.

Good for a first secure deployment and for tests. For real machines, take certificates from your own authority.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAYS = 30
"""How long the certificates hold."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the files lie that a SuperLink is started with; clients need the authority's alone."""

    authority: Path
    server: Path
    server_key: Path


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A SuperNode's private key, and the public one that is registered with the SuperLink."""

    private: Path
    public: Path


def make_certificates(folder: Path, host: str = "127.0.0.1") -> Certificates:
    """An authority of our own and a certificate of it for the server at `host`; the authority's key is not kept."""
    folder.mkdir(parents=True, exist_ok=True)
    certificates = Certificates(folder / "ca.crt", folder / "server.pem", folder / "server.key")
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = _name("fedmerit loopback authority")
    authority = (
        _certificate(issuer, issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA384())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address(host))]
    server = (
        _certificate(_name(host), issuer, server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    certificates.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    certificates.server.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_private(certificates.server_key, server_key, serialization.PrivateFormat.PKCS8)
    return certificates


def make_node_key(folder: Path, name: str) -> NodeKey:
    """A key on the curve P-384 in OpenSSH's format, as flower-supernode takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    pair, key = NodeKey(folder / name, folder / f"{name}.pub"), ec.generate_private_key(ec.SECP384R1())
    _write_private(pair.private, key, serialization.PrivateFormat.OpenSSH)
    pair.public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return pair


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    """Readable by its owner alone, from the first byte on."""
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ a little
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
