"""Admission of nodes: map each Flower node to a client, refuse unknown keys, skip nodes that do not respond.

An enrolment is a TOML file that people review. It binds the public key of a node to a client and limits the facts that
the client may report. The SuperLink authenticates each node by its key, so a node can only be the client that its key
is enrolled for. The server sends nothing to a node with an unknown or revoked key.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Self

import tomli_w
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from pydantic import Field

from fedmerit.config.reading import MOST_TEXT_BYTES, read_file
from fedmerit.config.schema import read_toml
from fedmerit.config.sections import Count, Section, validate
from fedmerit.core.facts import find_fact
from fedmerit.core.host import Limits
from fedmerit.core.reasons import called
from fedmerit.core.showing import printable
from fedmerit.core.types import EMPTY, ClientId
from fedmerit.errors import ConfigError
from fedmerit.store.files import write_new_file

log = logging.getLogger("flwr")
BACKOFF = 4
"""Exponential backoff: with each further missed timeout, the server skips a node this many times longer."""


class EnrolledClient(Section):
    """One [[client]] of an enrolment: the SHA-256 of its node's public key, and limits on the facts it may report."""

    client: Annotated[int, Field(ge=0)]
    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    name: str = ""
    samples: Count | None = None
    labels: Count | None = None
    revoked: bool = False

    @property
    def limits(self) -> Limits:
        """The largest value that the client may report for each fact; empty for a revoked key."""
        values = {} if self.revoked else {"samples": self.samples, "labels": self.labels}
        return {name: float(value) for name, value in values.items() if value is not None}


class Enrolment(Section):
    """The enrolled clients, in the order of the file."""

    client: tuple[EnrolledClient, ...] = ()

    @property
    def active(self) -> dict[ClientId, EnrolledClient]:
        """The clients whose key is not revoked."""
        return {entry.client: entry for entry in self.client if not entry.revoked}

    def client_of(self, key: str) -> ClientId | None:
        """The client that a key is enrolled for; None for an unknown or revoked key."""
        return next((client for client, entry in self.active.items() if entry.key == key), None)

    def with_client(self, new: EnrolledClient) -> Self:
        """Add a client. A client has one key, and a key belongs to one client."""
        for entry in self.client:
            if entry.key == new.key:
                state = "was revoked" if entry.revoked else f"is enrolled for client {entry.client}"
                raise ConfigError(f"this key {state}; make a new key for client {new.client}")
        if new.client in self.active and not new.revoked:
            raise ConfigError(f"client {new.client} is already enrolled with another key; revoke that key first")
        return self.model_copy(update={"client": (*self.client, new)})

    def without(self, client: ClientId) -> Self:
        """Revoke a client's key. The key stays in the file, so that it is never accepted again."""
        if client not in self.active:
            raise ConfigError(f"client {client} is not enrolled; there is nothing to revoke")
        entries = (one.model_copy(update={"revoked": True}) if one.client == client else one for one in self.client)
        return self.model_copy(update={"client": tuple(entries)})


def read_enrolment(path: Path) -> Enrolment:
    """Read an enrolment from a TOML file; a client or key that appears twice is an error."""
    enrolment = Enrolment()
    for entry in validate(Enrolment, read_toml(path)).client:
        enrolment = enrolment.with_client(entry)
    return enrolment


def write_enrolment(path: Path, enrolment: Enrolment) -> None:
    """Write an enrolment to a TOML file, atomically."""
    write_new_file(path, tomli_w.dumps(enrolment.model_dump(mode="json", exclude_none=True)))


def read_fingerprint(path: Path) -> str:
    """Compute the fingerprint of a public key file, in the format of ssh-keygen or PEM."""
    try:
        key = fingerprint(read_file(path, MOST_TEXT_BYTES, ConfigError))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if not key:
        raise ConfigError(f"{path} is not a public key; give the file that ends in .pub")
    return key


def fingerprint(key: bytes) -> str:
    """Compute the SHA-256 of a public key, independent of its file format; "" if the bytes are not a public key."""
    try:
        load = serialization.load_pem_public_key if key.startswith(b"-----") else serialization.load_ssh_public_key
        public = load(key)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return sha256(public.public_bytes(*form)).hexdigest()


@dataclass
class Admission:
    """The nodes that the server refuses or skips; `index` counts the scans for connected nodes.

    A mute node missed a timeout. The server sends it a hello message without waiting for the answer, and admits it
    again when it answers. The first hello follows at the next scan, later ones after 4, 16, ... scans.
    """

    enrolment: Enrolment | None = None
    """Without an enrolment, a node is the client that it claims to be."""
    index: int = 0
    mute: dict[int, int] = field(default_factory=dict)
    """Mute nodes, and the scan from which each gets a hello message."""
    strikes: dict[int, int] = field(default_factory=dict)
    """The number of timeouts that each node has missed."""
    greeted: dict[str, int] = field(default_factory=dict)
    """The nodes of unanswered hello messages, by message id."""
    refused: dict[int, str] = field(default_factory=dict)
    """Refused nodes, and the reason."""

    def mark_mute(self, nodes: Iterable[int]) -> None:
        """Record that these nodes missed a timeout."""
        for node in nodes:
            strikes = self.strikes[node] = self.strikes.get(node, 0) + 1
            self.mute[node] = self.index if strikes == 1 else self.index + BACKOFF ** (strikes - 1)

    def due(self) -> list[int]:
        """The mute nodes that get a hello message now."""
        waiting = set(self.greeted.values())
        return sorted(node for node, since in self.mute.items() if since <= self.index and node not in waiting)

    def look(self, connected: Collection[int]) -> None:
        """Count a scan, and forget disconnected nodes: a node that reconnects has a new id."""
        self.index += 1
        for by_node in (self.mute, self.strikes, self.refused):
            for node in set(by_node) - set(connected):
                del by_node[node]
        self.greeted = {message_id: node for message_id, node in self.greeted.items() if node in connected}

    def admit(self, claims: Mapping[int, ClientId], keys: Mapping[int, bytes]) -> list[tuple[int, ClientId]]:
        """Return the (node, client) pairs whose claim is accepted, and refuse the remaining nodes."""
        admitted = []
        for node, claimed in sorted(claims.items()):
            enrolment = self.enrolment
            client = claimed if enrolment is None else enrolment.client_of(fingerprint(keys.get(node, b"")))
            if client is None:
                self.refuse(node, "its key is not enrolled, or was revoked")
            elif client != claimed:
                known = enrolment.active if enrolment is not None else {}
                names = [known[one].name if one in known else "" for one in (claimed, client)]
                claim, owner = (called(name or str(one)) for name, one in zip(names, (claimed, client), strict=True))
                self.refuse(node, f"it claims to be {claim}, but its key is enrolled for {owner}")
            else:
                admitted.append((node, client))
        return admitted

    def excessive_claim(self, client: ClientId, facts: Mapping[str, Any]) -> str | None:
        """Return which enrolled limit a client's facts exceed; None if they exceed none."""
        enrolled = None if self.enrolment is None else self.enrolment.active.get(client)
        limits: Limits = EMPTY if enrolled is None else enrolled.limits
        reasons = (find_fact(name).wrong(facts[name], most) for name, most in limits.items() if name in facts)
        return next(filter(None, reasons), None)

    def refuse(self, node: int, reason: str) -> None:
        """Refuse a node, and log each reason once, without control characters that a claim may contain."""
        reason = printable(reason)
        if self.refused.get(node) != reason:
            log.warning("fedmerit: node %d is refused: %s", node, reason)
        self.refused[node] = reason
