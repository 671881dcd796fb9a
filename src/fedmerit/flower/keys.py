"""Keys and certificates for a federation on one machine: an authority, a server that it vouches for, keys of nodes and
of the operator.

Good for a first secure deployment and for tests. For real machines, take certificates from your own authority.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedmerit.errors import FolderError

DAYS, AUTHORITY_DAYS = 90, 1825
"""How long the server's certificate holds, and the authority's, which nodes keep: a renewal changes only the first."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the files lie that a SuperLink is started with; nodes need the authority's alone.

    `authority_key` makes certificates that nodes trust: keep it where the SuperLink does not run, or renew elsewhere.
    """

    authority: Path
    server: Path
    server_key: Path
    authority_key: Path

    @classmethod
    def within(cls, folder: Path) -> Certificates:
        """By their names in a folder."""
        return cls(folder / "ca.crt", folder / "server.pem", folder / "server.key", folder / "ca.key")


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A SuperNode's private key, and the public one that is registered with the SuperLink."""

    private: Path
    public: Path


def make_certificates(folder: Path, host: str = "127.0.0.1") -> Certificates:
    """An authority of our own and a certificate of it for the server at `host`; nothing that exists is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    certificates, key = Certificates.within(folder), ec.generate_private_key(ec.SECP384R1())
    issuer = _name("fedmerit loopback authority")
    authority = (
        _certificate(issuer, issuer, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA384())
    )
    _write_private(certificates.authority_key, key, serialization.PrivateFormat.PKCS8)
    _write_new(certificates.authority, authority.public_bytes(serialization.Encoding.PEM))
    _sign_server(certificates, key, issuer, host)
    return certificates


def renew_certificates(folder: Path, host: str = "127.0.0.1") -> datetime:
    """A new key and certificate for the server, by the same authority: nodes go on as they are; until when it holds.

    A SuperLink reads it when it is started again.
    """
    certificates = Certificates.within(folder)
    try:
        key = serialization.load_pem_private_key(certificates.authority_key.read_bytes(), None)
        authority = x509.load_pem_x509_certificate(certificates.authority.read_bytes())
    except (OSError, ValueError) as error:
        raise FolderError(f"no authority in {folder}: it needs ca.key and ca.crt ({error})") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        raise FolderError(f"{certificates.authority_key} is not the key of {certificates.authority}")
    renewed = Certificates(
        *(certificates.authority, folder / "server.pem.new", folder / "server.key.new", certificates.authority_key)
    )
    for path in (renewed.server, renewed.server_key):
        path.unlink(missing_ok=True)  # of a renewal that was interrupted
    until = _sign_server(renewed, key, authority.subject, host)
    renewed.server_key.replace(certificates.server_key)
    renewed.server.replace(certificates.server)
    return until


def valid_until(certificate: Path) -> datetime:
    """When a certificate ends."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def is_key_of(key: Path, certificate: Path) -> bool:
    """Whether a private key is the one that a certificate vouches for."""
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    known = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    return private.public_key().public_bytes(*form) == known.public_bytes(*form)


def _sign_server(
    certificates: Certificates, authority_key: ec.EllipticCurvePrivateKey, issuer: x509.Name, host: str
) -> datetime:
    """Write a key of the server's and the authority's certificate for it."""
    server_key = ec.generate_private_key(ec.SECP384R1())
    names = [x509.DNSName("localhost"), _host_name(host)]
    server = (
        _certificate(_name(host), issuer, server_key.public_key(), DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    _write_private(certificates.server_key, server_key, serialization.PrivateFormat.PKCS8)
    _write_new(certificates.server, server.public_bytes(serialization.Encoding.PEM))
    return server.not_valid_after_utc


def make_node_key(folder: Path, name: str) -> NodeKey:
    """A key on the curve P-384 in OpenSSH's format, as flower-supernode takes it; one that exists is not replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    pair, key = NodeKey(folder / name, folder / f"{name}.pub"), ec.generate_private_key(ec.SECP384R1())
    _write_private(pair.private, key, serialization.PrivateFormat.OpenSSH)
    _write_new(
        pair.public, key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return pair


def make_operator_key(path: Path) -> None:
    """A new key of the operator's, 256 bits as letters and digits; one that exists is not replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_new(path, secrets.token_hex(32).encode(), 0o600)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    """Readable by its owner alone, from the first byte on."""
    _write_new(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()), 0o600)


def _write_new(path: Path, content: bytes, mode: int = 0o644) -> None:
    """A file that was not there before: a key is never written over, nor through a link that somebody laid."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise FolderError(f"{path} exists, and keys are not written over; remove it first, or choose another") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _host_name(host: str) -> x509.GeneralName:
    """An address, or a name that nodes look up."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ a little
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
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
