"""Masks that cancel in a sum: the nodes' and the server's half of SecAgg+ [SecAgg, SecAgg+].

    y_u = v_u + PRG(b_u) + sum over neighbours v of sign(v - u) * PRG(s_uv)    modulo 2^32

s_uv is agreed between u and v by Diffie-Hellman, and appears in y_u and y_v with opposite signs. b_u is u's own seed.
Both secrets of u are shared among u and its neighbours: of a node that uploaded, the server asks for the shares of b_u;
of one that dropped out, for those of its key. A node never reveals both of one client.

Key agreement is X25519 with HKDF, shares travel under ChaCha20-Poly1305, PRG is AES-256 in counter mode
(`cryptography`), secret sharing is Flower's. Flower's `pseudo_rand_gen` is not used: it folds every seed to 32 bits,
which a server can try out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, comb

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares

from fedmerit.core.collect.masking import Words32
from fedmerit.core.seeds import generator
from fedmerit.core.types import ClientId

COMPLETE = 64
"""Up to this many clients all are neighbours: any third may drop out, and less than half may collude."""
COLLUDING, DROPPING = 0.1, 0.1
"""Shares of the clients that may collude with the server, and that may drop out of a round, if there are more."""
FAILS = 2.0**-40, 2.0**-20
"""Largest probabilities that colluding clients learn a secret, and that too many neighbours of one client drop out."""
BLOCK = 1 << 20
"""Bytes of the pseudo-random stream that are made at once."""
SEED, KEY, NONCE = 16, 32, 12
"""Lengths in bytes."""


class MaskError(Exception):
    """A message of the protocol that a node or the server refuses; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """A node's secrets of one round: seeds of its mask key and of its own mask, and the key that protects shares.

    >>> len(Secrets.draw().public)
    64
    """

    mask: bytes
    own: bytes
    transport: bytes

    @classmethod
    def draw(cls) -> Secrets:
        """Draw new secrets from the operating system."""
        return cls(os.urandom(SEED), os.urandom(SEED), os.urandom(KEY))

    @property
    def public(self) -> bytes:
        """The public halves of both keys: for masks, then for shares."""
        return mask_key(self.mask).public_key().public_bytes_raw() + self._transport.public_key().public_bytes_raw()

    @property
    def _transport(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.transport)

    def cipher(self, public: bytes, sender: ClientId, receiver: ClientId) -> ChaCha20Poly1305:
        """Return the cipher for shares between this node and the node with these public keys."""
        return ChaCha20Poly1305(agree(self._transport, public[KEY:], f"share {sender} {receiver}"))


def mask_key(seed: bytes) -> X25519PrivateKey:
    """Return the private key that a seed stands for: the seed is what is shared, because it is half as long."""
    return X25519PrivateKey.from_private_bytes(derive_key(seed, "mask key"))


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Derive a key for one purpose."""
    return HKDF(hashes.SHA256(), KEY, None, f"fedmerit {purpose}".encode()).derive(secret)


def agree(private: X25519PrivateKey, public: bytes, purpose: str) -> bytes:
    """Return the key that two nodes share."""
    return derive_key(private.exchange(X25519PublicKey.from_public_bytes(public)), purpose)


def add_stream(total: Words32, key: bytes, sign: int = 1) -> None:
    """Add or subtract the pseudo-random stream of a key, in place and modulo 2^32.

    >>> total = np.zeros(3, np.uint32)
    >>> add_stream(total, bytes(32)), add_stream(total, bytes(32), -1), total.tolist()
    (None, None, [0, 0, 0])
    """
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    for start in range(0, len(total), BLOCK // 4):
        part = total[start : start + BLOCK // 4]
        words = np.frombuffer(stream.update(bytes(part.nbytes)), np.uint32)
        np.add(part, words, out=part) if sign > 0 else np.subtract(part, words, out=part)


def add_pair_masks(total: Words32, seed: bytes, client: ClientId, partners: Mapping[ClientId, bytes]) -> None:
    """Add the masks that a client shares with its partners, given their public keys."""
    key = mask_key(seed)
    for partner, public in partners.items():
        add_stream(total, agree(key, public[:KEY], "pair"), 1 if partner > client else -1)


def neighbours(clients: Sequence[ClientId], seed: int, index: int) -> dict[ClientId, tuple[ClientId, ...]]:
    """Return a random graph in which every client has the same number of neighbours; complete for few clients.

    >>> neighbours([3, 5, 9], seed=0, index=1)[5]
    (3, 9)
    """
    number, half = len(clients), degree(len(clients)) // 2
    if degree(number) >= number - 1:
        return {client: tuple(one for one in clients if one != client) for client in clients}
    order = [clients[place] for place in generator(seed, "mask graph", index).permutation(number)]
    steps = [step for step in range(-half, half + 1) if step]
    return {
        client: tuple(sorted(order[(place + step) % number] for step in steps)) for place, client in enumerate(order)
    }


def threshold(holders: int) -> int:
    """Return how many of the holders of shares are needed: more than half, so that no two groups can both answer."""
    return holders // 2 + 1


@cache
def degree(clients: int) -> int:
    """Return the number of neighbours: all, or for many clients the least even one that keeps `FAILS`.

    Both probabilities are tails of a hypergeometric distribution, for all clients together [SecAgg+].

    >>> degree(10), degree(1000)
    (9, 58)
    """
    for number in range(2, clients - 1, 2) if clients > COMPLETE else ():
        needed = threshold(number + 1)
        learned = _tail(clients, ceil(COLLUDING * clients), number, needed - 1)  # the client itself does not collude
        lost = _tail(clients, ceil(DROPPING * clients), number, number + 2 - needed)
        if clients * learned <= FAILS[0] and clients * lost <= FAILS[1]:
            return number
    return clients - 1


def _tail(clients: int, marked: int, drawn: int, least: int) -> float:
    """Probability that of so many drawn clients at least `least` are marked."""
    ways = sum(comb(marked, some) * comb(clients - marked, drawn - some) for some in range(least, drawn + 1))
    return ways / comb(clients, drawn)


def seal_shares(secrets: Secrets, client: ClientId, partners: Mapping[ClientId, bytes]) -> dict[ClientId, bytes]:
    """Share both secrets among the client and its partners; return a ciphertext for each of them."""
    holders = sorted({client, *partners})
    needed = threshold(len(holders))
    both = [create_shares(secret, needed, len(holders)) for secret in (secrets.own, secrets.mask)]
    publics = {**partners, client: secrets.public}
    sealed = {}
    for place, holder in enumerate(holders):
        nonce, shares = os.urandom(NONCE), both[0][place] + both[1][place]
        sealed[holder] = nonce + secrets.cipher(publics[holder], client, holder).encrypt(nonce, shares, None)
    return sealed


def open_shares(secrets: Secrets, public: bytes, sender: ClientId, receiver: ClientId, sealed: bytes) -> list[bytes]:
    """Return the shares of the sender's own seed and of its mask seed."""
    try:
        plain = secrets.cipher(public, sender, receiver).decrypt(sealed[:NONCE], sealed[NONCE:], None)
    except InvalidTag:
        raise MaskError(f"the share that client {sender} sent cannot be opened: it was changed on the way") from None
    return [plain[: len(plain) // 2], plain[len(plain) // 2 :]]


def restore(shares: Sequence[bytes], holders: int) -> bytes:
    """Restore a secret from enough shares."""
    if len(shares) < threshold(holders):
        raise MaskError(f"only {len(shares)} of {holders} shares came back; {threshold(holders)} are needed")
    try:
        return combine_shares(list(shares[: threshold(holders)]))
    except (ValueError, IndexError):
        raise MaskError("shares do not fit together") from None


def statement(run: int, index: int, client: ClientId, public: bytes) -> bytes:
    """Return what a node signs: these keys are its own, in this round of this run."""
    return b"fedmerit mask keys" + b"".join(number.to_bytes(8, "big") for number in (run, index, client)) + public


def check_signature(ssh_public: bytes, signature: bytes, content: bytes) -> bool:
    """Whether a statement is signed by this node key."""
    try:
        key = load_ssh_public_key(ssh_public)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        key.verify(signature, content, ec.ECDSA(hashes.SHA384()))
    except (InvalidSignature, ValueError):
        return False
    return True


def unmask(
    total: Words32,
    uploaded: Sequence[ClientId],
    graph: Mapping[ClientId, Sequence[ClientId]],
    publics: Mapping[ClientId, bytes],
    shares: Mapping[ClientId, Mapping[ClientId, bytes]],
) -> None:
    """Remove all masks from the sum of what clients uploaded, in place.

    graph    the neighbours of each client that took part, also of those that did not upload
    shares   shares of each client's secret by the client that holds them: of its own seed if it uploaded, else of its
             mask seed
    """
    for client, around in graph.items():
        present = [one for one in around if one in uploaded]
        if client not in uploaded and not present:
            continue
        secret = restore(list(shares.get(client, {}).values()), len(around) + 1)
        if client in uploaded:
            add_stream(total, derive_key(secret, "own mask"), -1)
            continue
        if mask_key(secret).public_key().public_bytes_raw() != publics[client][:KEY]:
            raise MaskError(f"the restored key of client {client} is not the one that it announced")
        # Its partners added the opposite masks: these cancel what is still in the sum.
        add_pair_masks(total, secret, client, {one: publics[one] for one in present})


def pairs(ids: Sequence[int], values: Sequence[bytes]) -> Iterator[tuple[ClientId, bytes]]:
    """Pair client ids with values that were sent in parallel lists."""
    if len(ids) != len(values):
        raise MaskError(f"{len(ids)} clients have {len(values)} values")
    return zip(ids, values, strict=True)
