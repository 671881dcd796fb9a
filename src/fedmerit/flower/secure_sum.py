"""The server's part of a masked sum: three exchanges after the facts [Bonawitz 2017, Bell 2020]."""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from flwr.app import RecordDict

from fedmerit.core.collect.masking import MIN_CLIENTS, MIN_UPLOADED, MaskedTotal, Masking
from fedmerit.core.types import ClientId
from fedmerit.flower.grid import Exchange
from fedmerit.flower.masks import MaskError, neighbours, pairs, unmask
from fedmerit.flower.messages import (
    MASKED,
    SHARE,
    UNMASK,
    array,
    pack,
    setting,
)

Ask: TypeAlias = Callable[[Mapping[ClientId, RecordDict], str, Callable[[RecordDict], Any]], Exchange]
SignedKeys: TypeAlias = tuple[bytes, bytes, bytes]
"""A node's public keys for a round, the public key that signs them, and the signature; the last two may be empty."""


def signed_keys(content: RecordDict) -> SignedKeys:
    """Read the keys in a reply to a training message."""
    public, signer, signature = (setting(content, name, bytes) for name in ("public", "signer", "signature"))
    if len(public) != 64:
        raise MaskError(f"its mask keys must have 64 bytes (got {len(public)})")
    return public, signer, signature


def masked_total(
    ask: Ask,
    keys: Mapping[ClientId, SignedKeys],
    index: int,
    units: Mapping[ClientId, int],
    masking: Masking,
    length: int,
) -> MaskedTotal:
    """Return the sum of what the clients uploaded, without masks; if it cannot be unmasked, nobody uploaded.

    ask     sends a message to each client and collects the answers
    keys    of the clients that reported facts
    units   weights of the clients that are asked
    """
    total, sent = np.zeros(length + 1, np.uint32), _Bytes()
    graph = neighbours(sorted(units), secrets.randbits(63), index)
    contents = {}
    for client, around in graph.items():
        publics, signers, signatures = (list(column) for column in zip(*(keys[one] for one in around), strict=True))
        named = {"clients": list(around), "publics": publics, "signers": signers, "signatures": signatures}
        contents[client] = pack(config={"round": index, **named})
    shared, failed = sent.exchange(ask, contents, SHARE, partial(_by_client, name="sealed"))

    for_each: dict[ClientId, dict[ClientId, bytes]] = {client: {} for client in shared}
    for sender, by_holder in shared.items():
        for holder, one in by_holder.items():
            if holder in for_each and (holder == sender or holder in graph[sender]):
                for_each[holder][sender] = one
    scale = masking.scale(units.values())
    contents = {
        client: pack(
            config={"round": index, "units": units[client], "scale": scale}
            | {"clip": float(masking.clip), "unbiased": masking.unbiased}
            | {"clients": list(sealed), "sealed": list(sealed.values())}
        )
        for client, sealed in for_each.items()
    }

    def add(content: RecordDict) -> int:
        np.add(total, array(content, "masked", shape=(length + 1,), dtypes=("u4",)), out=total)
        return total.nbytes

    uploaded, more = sent.exchange(ask, contents, MASKED, add)
    failed |= more
    if len(uploaded) < max(MIN_CLIENTS, MIN_UPLOADED * len(units)):
        return MaskedTotal(np.zeros_like(total), tuple(uploaded), failed, sent.down, sent.up)

    contents = {
        client: pack(
            config={
                "round": index,
                "uploaded": [one for one in for_each[client] if one in uploaded],
                "dropped": [one for one in for_each[client] if one not in uploaded],
            }
        )
        for client in uploaded
    }
    revealed, _ = sent.exchange(ask, contents, UNMASK, partial(_by_client, name="shares"))
    shares: dict[ClientId, dict[ClientId, bytes]] = {}
    for holder, of_clients in revealed.items():
        for client, share in of_clients.items():
            shares.setdefault(client, {})[holder] = share
    try:
        unmask(
            total, tuple(uploaded), {one: graph[one] for one in shared}, {one: keys[one][0] for one in graph}, shares
        )
    except MaskError as error:
        failed |= dict.fromkeys(uploaded, f"the masked sum could not be opened: {error}")
        return MaskedTotal(np.zeros_like(total), (), failed, sent.down, sent.up)
    return MaskedTotal(total, tuple(uploaded), failed, sent.down, sent.up)


class _Bytes:
    """Exchanges that count bytes."""

    def __init__(self) -> None:
        self.down, self.up = 0, 0

    def exchange(
        self, ask: Ask, contents: Mapping[ClientId, RecordDict], kind: str, read: Callable[[RecordDict], Any]
    ) -> tuple[Mapping[ClientId, Any], dict[ClientId, str]]:
        """Read each answer as it arrives; return what was read, and the reasons of failures."""

        def counted(content: RecordDict) -> Any:
            self.up += _size(content)
            return read(content)

        self.down += sum(map(_size, contents.values()))
        result = ask(contents, kind, counted)
        return result.answers, dict(result.failed)


def _size(content: RecordDict) -> int:
    """Bytes of the arrays and settings in a message, numbers as 8 bytes."""
    size = sum(len(one.data) for record in content.array_records.values() for one in record.values())
    for record in content.config_records.values():
        for value in record.values():
            listed = value if isinstance(value, list) else [value]
            size += sum(len(one) if isinstance(one, bytes | str) else 8 for one in listed)
    return size


def _by_client(content: RecordDict, name: str) -> dict[ClientId, bytes]:
    return dict(pairs(setting(content, "clients", list), setting(content, name, list)))
