"""Enrolment: which key is which client, and what the operator knows of it; a file that people read and sign off.

The SuperLink tells which key each node proved to have. With an enrolment a node is the client that its key is enrolled
for, whatever it says; who has no enrolled key, or one that was revoked, is not asked for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import tomli_w
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from fedmerit.config.reading import MOST_TEXT_BYTES, read_file
from fedmerit.config.schema import read_toml
from fedmerit.config.sections import Count, Section, validate
from fedmerit.core.host import Limits
from fedmerit.core.types import ClientId
from fedmerit.errors import ConfigError
from fedmerit.store.files import write_new_file


class EnrolledClient(Section):
    """[[client]]: a key's SHA-256 and what is known of whoever has it."""

    client: int
    key: str
    name: str = ""
    samples: Count | None = None
    labels: Count | None = None
    revoked: bool = False


class EnrolmentFile(Section):
    """The whole file."""

    client: tuple[EnrolledClient, ...] = ()


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The clients that were enrolled, in the order of the file."""

    clients: tuple[EnrolledClient, ...] = ()

    def client_of(self, fingerprint: str) -> ClientId | None:
        """Which client a key is enrolled for; None where it is not, or was revoked."""
        found = (one for one in self.clients if one.key == fingerprint and not one.revoked)
        return next((one.client for one in found), None)

    def limits_of(self, client: ClientId) -> Limits:
        """The most that a client may claim: what the operator knows that it has."""
        mine = next((one for one in self.clients if one.client == client and not one.revoked), None)
        known = {} if mine is None else {"samples": mine.samples, "labels": mine.labels}
        return {name: float(value) for name, value in known.items() if value is not None}

    def with_client(self, new: EnrolledClient) -> Enrolment:
        """One client more; a client has one key and a key is of one client."""
        for one in self.clients:
            if one.client == new.client and not one.revoked:
                raise ConfigError(f"client {new.client} is enrolled with another key; revoke that first")
            if one.key == new.key:
                state = "was revoked" if one.revoked else f"is client {one.client}'s"
                raise ConfigError(f"this key {state}; a new client needs a new key")
        return Enrolment((*self.clients, new))

    def without(self, client: ClientId) -> Enrolment:
        """The client's key revoked; it stays in the file, so that it is never taken again."""
        if not any(one.client == client and not one.revoked for one in self.clients):
            raise ConfigError(f"client {client} is not enrolled; there is nothing to revoke")
        return Enrolment(
            tuple(one.model_copy(update={"revoked": True}) if one.client == client else one for one in self.clients)
        )


def read_enrolment(path: Path) -> Enrolment:
    """The enrolment in a TOML file, checked: a client and a key count once."""
    clients = validate(EnrolmentFile, read_toml(path)).client
    enrolment = Enrolment()
    for one in clients:
        if one.client < 0 or len(one.key) != 64:
            raise ConfigError(f"{path}: a client has a number >= 0 and a key's SHA-256 of 64 digits; got {one!r:.200}")
        enrolment = Enrolment((*enrolment.clients, one)) if one.revoked else enrolment.with_client(one)
    return enrolment


def write_enrolment(path: Path, enrolment: Enrolment) -> None:
    """Written beside and moved into place."""
    clients = [one.model_dump(mode="json", exclude_none=True) for one in enrolment.clients]
    write_new_file(path, tomli_w.dumps({"client": clients}))


def read_fingerprint(path: Path) -> str:
    """The fingerprint of a public key in a file, as ssh-keygen writes it, or in PEM."""
    try:
        found = fingerprint(read_file(path, MOST_TEXT_BYTES, ConfigError))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if not found:
        raise ConfigError(f"{path} holds no public key; give the file that ends in .pub")
    return found


def fingerprint(key: bytes) -> str:
    """SHA-256 of a public key, the same for every way to write it down; empty where it is none."""
    try:
        load = serialization.load_pem_public_key if key.startswith(b"-----") else serialization.load_ssh_public_key
        public = load(key)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return sha256(public.public_bytes(*form)).hexdigest()


def admitted(
    claims: Mapping[int, ClientId], keys: Mapping[int, str], enrolment: Enrolment
) -> tuple[dict[int, ClientId], dict[int, str]]:
    """Of nodes that say who they are, those whose keys say so, too; why others are refused."""
    good: dict[int, ClientId] = {}
    refused: dict[int, str] = {}
    for node, claimed in claims.items():
        client = enrolment.client_of(keys.get(node, ""))
        if client is None:
            refused[node] = "its key is not enrolled, or was revoked"
        elif client != claimed:
            refused[node] = f"it says that it is client {claimed}, its key is enrolled for client {client}"
        else:
            good[node] = client
    return good, refused
