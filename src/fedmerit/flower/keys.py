"""Keys and certificates of a federation: a certificate authority, the server, nodes and the operator.

They suffice for a first secure deployment and for tests. In production, use certificates of your own authority.
"""

import os
import secrets
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from fedmerit.errors import FolderError

AUTHORITY, AUTHORITY_KEY = "ca.crt", "ca.key"
"""The files of an authority. With its key anybody can make certificates that nodes trust."""
SERVER, SERVER_KEY = "server.pem", "server.key"
"""The certificate and the key of a SuperLink; nodes need only the authority's certificate."""
SERVER_DAYS, AUTHORITY_DAYS = 90, 1825
"""Validity in days. Nodes store the authority's certificate, so a renewal replaces only the server's."""


def make_authority(folder: Path) -> None:
    """Make a certificate authority: ca.key and ca.crt; existing files are never overwritten."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key, issuer = ec.generate_private_key(ec.SECP384R1()), _name("fedmerit authority")
    certificate = _certificate(issuer, issuer, key, key.public_key(), AUTHORITY_DAYS, is_authority=True)
    _write_new(folder / AUTHORITY_KEY, _private_bytes(key), 0o600)
    _write_new(folder / AUTHORITY, certificate.public_bytes(Encoding.PEM))


def sign_server(authority: Path, folder: Path, host: str = "127.0.0.1") -> datetime:
    """Make a new key and certificate of the server at `host`, signed by the authority; return its expiry date.

    Nodes need no change. The SuperLink reads the new files when it restarts.
    """
    try:
        key = load_pem_private_key((authority / AUTHORITY_KEY).read_bytes(), None)
        issuer = x509.load_pem_x509_certificate((authority / AUTHORITY).read_bytes())
    except (OSError, ValueError) as error:
        raise FolderError(
            f"cannot sign a certificate: {AUTHORITY_KEY} or {AUTHORITY} in {authority} cannot be read ({error}); "
            "restore both files"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != issuer.public_key():
        raise FolderError(f"{AUTHORITY_KEY} does not belong to {AUTHORITY} in {authority}; restore both files")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        name: x509.GeneralName = x509.IPAddress(ip_address(host))
    except ValueError:
        name = x509.DNSName(host)
    server_key, names = ec.generate_private_key(ec.SECP384R1()), [x509.DNSName("localhost"), name]
    certificate = _certificate(_name(host), issuer.subject, key, server_key.public_key(), SERVER_DAYS, names)
    contents = {SERVER_KEY: _private_bytes(server_key), SERVER: certificate.public_bytes(Encoding.PEM)}
    for file, content in contents.items():
        part = folder / f"{file}.new"
        part.unlink(missing_ok=True)  # of an interrupted renewal
        _write_new(part, content, 0o600 if file == SERVER_KEY else 0o644)
        part.replace(folder / file)
    return certificate.not_valid_after_utc


def valid_until(certificate: Path) -> datetime:
    """Read the expiry date of a certificate."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def is_key_of(key: Path, certificate: Path) -> bool:
    """Whether a private key belongs to a certificate."""
    private = load_pem_private_key(key.read_bytes(), None)
    return private.public_key() == x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()


def make_node_key(folder: Path, name: str) -> Path:
    """Make a key for `flower-supernode`, on the curve P-384 in OpenSSH format, and NAME.pub for the SuperLink.

    Returns the path of the private key. Existing files are not overwritten.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path, key = folder / name, ec.generate_private_key(ec.SECP384R1())
    _write_new(path, _private_bytes(key, PrivateFormat.OpenSSH), 0o600)
    _write_new(path.with_name(f"{name}.pub"), key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return path


def make_operator_key(path: Path) -> None:
    """Make an operator key, 256 bits as letters and digits; an existing file is not overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_new(path, secrets.token_hex(32).encode(), 0o600)


def _private_bytes(key: ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _write_new(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a new file; a key is never overwritten, and never written through a symbolic link."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise FolderError(f"{path} exists, and keys are never overwritten; remove it, or choose another path") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePublicKey,
    days: int,
    hosts: list[x509.GeneralName] | None = None,
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    """Sign a certificate for a public key; `hosts` are the names of a server."""
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ a little
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
    )
    if hosts is not None:
        issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        names = x509.SubjectAlternativeName(hosts)
        builder = builder.add_extension(names, critical=False).add_extension(issued_by, critical=False)
    return builder.sign(issuer_key, hashes.SHA384())
