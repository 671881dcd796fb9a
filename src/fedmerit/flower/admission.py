"""Admission: which node is which client, and the nodes that are refused or not waited for.

An enrolment is a file that people read and sign off: it binds the key of a node to a client, with the operator's
limits on its claims. The SuperLink reports which key each node proved to have, so a node is the client that its key is
enrolled for, whatever it claims; a node with an unknown or revoked key is not asked for anything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from pydantic import Field

from fedmerit.config.reading import MOST_TEXT_BYTES, read_file
from fedmerit.config.schema import read_toml
from fedmerit.config.sections import Count, Section, validate
from fedmerit.core.facts import find_fact
from fedmerit.core.host import Limits
from fedmerit.core.types import EMPTY, ClientId
from fedmerit.errors import ConfigError
from fedmerit.store.files import write_new_file

log = logging.getLogger("flwr")
BACKOFF = 4
"""Each further missed timeout keeps a node away for this many times as many rounds."""


class EnrolledClient(Section):
    """[[client]]: the SHA-256 of a node's public key, and the limits on what the client may claim."""

    client: Annotated[int, Field(ge=0)]
    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    name: str = ""
    samples: Count | None = None
    labels: Count | None = None
    revoked: bool = False

    @property
    def limits(self) -> Limits:
        """The largest values that the client may claim, by fact; none once its key is revoked."""
        values = {} if self.revoked else {"samples": self.samples, "labels": self.labels}
        return {name: float(value) for name, value in values.items() if value is not None}


class Enrolment(Section):
    """The enrolled clients, in the order of the file."""

    client: tuple[EnrolledClient, ...] = ()

    @property
    def active(self) -> dict[ClientId, EnrolledClient]:
        """The clients whose key is not revoked."""
        return {one.client: one for one in self.client if not one.revoked}

    def client_of(self, key: str) -> ClientId | None:
        """The client that a key is enrolled for; None for an unknown or revoked key."""
        return next((client for client, one in self.active.items() if one.key == key), None)

    def with_client(self, new: EnrolledClient) -> Enrolment:
        """Add a client; a client has one key, and a key belongs to one client."""
        for one in self.client:
            if one.key == new.key:
                state = "was revoked" if one.revoked else f"is client {one.client}'s"
                raise ConfigError(f"this key {state}; a new client needs a new key")
        if new.client in self.active and not new.revoked:
            raise ConfigError(f"client {new.client} is enrolled with another key; revoke that first")
        return Enrolment(client=(*self.client, new))

    def without(self, client: ClientId) -> Enrolment:
        """Revoke a client's key; it stays in the file, so that it is never accepted again."""
        if client not in self.active:
            raise ConfigError(f"client {client} is not enrolled; there is nothing to revoke")
        return Enrolment(
            client=tuple(
                one.model_copy(update={"revoked": True}) if one.client == client else one for one in self.client
            )
        )


def read_enrolment(path: Path) -> Enrolment:
    """The enrolment in a TOML file; a client or key that appears twice is an error."""
    enrolment = Enrolment()
    for one in validate(Enrolment, read_toml(path)).client:
        enrolment = enrolment.with_client(one)
    return enrolment


def write_enrolment(path: Path, enrolment: Enrolment) -> None:
    """Write the file, whole or not at all."""
    write_new_file(path, tomli_w.dumps(enrolment.model_dump(mode="json", exclude_none=True)))


def read_fingerprint(path: Path) -> str:
    """The fingerprint of a public key in a file, in the format of ssh-keygen or PEM."""
    try:
        key = fingerprint(read_file(path, MOST_TEXT_BYTES, ConfigError))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if not key:
        raise ConfigError(f"{path} holds no public key; give the file that ends in .pub")
    return key


def fingerprint(key: bytes) -> str:
    """SHA-256 of a public key, the same for every format; empty for other bytes."""
    try:
        load = serialization.load_pem_public_key if key.startswith(b"-----") else serialization.load_ssh_public_key
        public = load(key)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return sha256(public.public_bytes(*form)).hexdigest()


@dataclass
class Admission:
    """The nodes that are refused or mute; `index` counts how often the fleet looked for nodes.

    A mute node missed a timeout. The fleet greets it without waiting, and it is back when it answers: after the first
    time at once, then not before 4, 16, ... further looks.
    """

    enrolment: Enrolment | None = None
    """Without an enrolment a node is the client that it claims to be."""
    index: int = 0
    mute: dict[int, int] = field(default_factory=dict)
    """Mute nodes, and the look from which each is greeted."""
    strikes: dict[int, int] = field(default_factory=dict)
    greeted: dict[str, int] = field(default_factory=dict)
    """The nodes of greetings without an answer yet, by message id."""
    refused: dict[int, str] = field(default_factory=dict)

    def mark_mute(self, nodes: Iterable[int]) -> None:
        """These nodes missed a timeout."""
        for node in nodes:
            strikes = self.strikes[node] = self.strikes.get(node, 0) + 1
            self.mute[node] = self.index if strikes == 1 else self.index + BACKOFF ** (strikes - 1)

    def due(self) -> list[int]:
        """The mute nodes to greet now."""
        waiting = set(self.greeted.values())
        return sorted(node for node, since in self.mute.items() if since <= self.index and node not in waiting)

    def look(self, connected: Collection[int]) -> None:
        """Count a look, and forget nodes that are gone: they come back with other ids."""
        self.index += 1
        for by_node in (self.mute, self.strikes, self.refused):
            for node in set(by_node) - set(connected):
                del by_node[node]
        self.greeted = {message_id: node for message_id, node in self.greeted.items() if node in connected}

    def admit(self, claims: Mapping[int, ClientId], keys: Mapping[int, bytes]) -> list[tuple[int, ClientId]]:
        """The nodes that may be the client that they claim to be; the rest are refused."""
        admitted = []
        for node, claimed in sorted(claims.items()):
            enrolment = self.enrolment
            client = claimed if enrolment is None else enrolment.client_of(fingerprint(keys.get(node, b"")))
            if client is None:
                self.refuse(node, "its key is not enrolled, or was revoked")
            elif client != claimed:
                self.refuse(node, f"it says that it is client {claimed}, its key is enrolled for client {client}")
            else:
                admitted.append((node, client))
        return admitted

    def excessive_claim(self, client: ClientId, facts: Mapping[str, Any]) -> str | None:
        """Why a client's facts exceed what it is enrolled with; None where they do not."""
        enrolled = None if self.enrolment is None else self.enrolment.active.get(client)
        limits: Limits = EMPTY if enrolled is None else enrolled.limits
        reasons = (find_fact(name).wrong(facts[name], most) for name, most in limits.items() if name in facts)
        return next(filter(None, reasons), None)

    def refuse(self, node: int, reason: str) -> None:
        """Refuse a node; the log says so once per reason."""
        if self.refused.get(node) != reason:
            log.warning("fedmerit: node %d is refused: %s", node, reason)
        self.refused[node] = reason
