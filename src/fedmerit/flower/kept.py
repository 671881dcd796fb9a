"""A node's part after it reported facts: it keeps its update, then uploads it, in the clear or under masks.

What it keeps is in the state of its context, for one round. Each step is accepted once and in order, so a server cannot
ask twice and compare. With a roster (`--node-config 'roster="enrolled.toml" key="node.key"'`) a node signs its keys
with its enrolled key, and accepts only partners whose keys are signed with theirs: a server cannot put its own keys in
their place.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict

from fedmerit.core.collect.masking import MIN_CLIENTS, Masking, as_integers, rounding
from fedmerit.core.types import ClientId, Model
from fedmerit.errors import ConfigError
from fedmerit.flower.admission import fingerprint, read_enrolment
from fedmerit.flower.masks import (
    MaskError,
    Secrets,
    add_pair_masks,
    add_stream,
    check_signature,
    derive_key,
    open_shares,
    pairs,
    seal_shares,
    statement,
    threshold,
)
from fedmerit.flower.messages import ARRAYS, pack, setting
from fedmerit.tasks.registry import ClientHalf

UPDATE, KEPT = "kept update", "kept"
"""Keys of the context's state: the update, and the secrets and the step of the round."""
ROSTER, KEY_FILE = "roster", "key"
"""Keys of a node's configuration: the enrolment that it trusts, and its own private key."""
TRAINED, SHARED, UPLOADED = "trained", "shared", "uploaded"


def keep_update(half: ClientHalf, context: Context, index: int, update: Model, *, masked: bool) -> dict[str, Any]:
    """Keep an update until the server asks for it; return what the reply needs: with masks, the node's signed keys."""
    context.state[UPDATE] = pack({"update": update})[ARRAYS]
    kept: dict[str, Any] = {"round": index, "step": TRAINED}
    reply: dict[str, Any] = {}
    if masked:
        drawn = Secrets.draw()
        kept |= {"mask": drawn.mask, "own": drawn.own, "transport": drawn.transport}
        signer, signature = _sign(context, statement(context.run_id, index, half.data.id, drawn.public))
        reply = {"public": drawn.public, "signer": signer, "signature": signature}
    context.state[KEPT] = ConfigRecord(kept)
    return reply


def upload_update(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Reply with the update of this round, and forget it."""
    return pack({"update": _take_update(content, context, TRAINED)})


def share_secrets(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Check the partners' keys, and reply with shares of the node's secrets, sealed for each partner."""
    kept, client = _kept(content, context, TRAINED), half.data.id
    clients, publics, signers, signatures = (
        setting(content, name, list) for name in ("clients", "publics", "signers", "signatures")
    )
    partners = dict(pairs(clients, publics))
    if client in partners or len(partners) < MIN_CLIENTS - 1:
        raise MaskError(f"a masked sum needs at least {MIN_CLIENTS - 1} partners (got {len(partners)})")
    path = context.node_config.get(ROSTER)
    roster = _read_roster(Path(str(path))) if path else None  # without a roster it believes the server
    for partner, signer, signature in zip(clients, signers, signatures, strict=True):
        content_signed = statement(context.run_id, int(kept["round"]), partner, partners[partner])
        enrolled = roster is None or roster.get(partner) == fingerprint(signer)
        if not enrolled or (roster is not None and not check_signature(signer, signature, content_signed)):
            raise MaskError(f"the keys of client {partner} are not signed by its enrolled node key")
    sealed = seal_shares(_secrets(kept), client, partners)
    kept |= {"step": SHARED, "partners": list(partners), "publics": list(partners.values())}
    context.state[KEPT] = ConfigRecord(kept)
    return pack(config={"clients": list(sealed), "sealed": list(sealed.values())})


def upload_masked(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Reply with the update as integers, under the masks of all partners that shared their secrets."""
    kept, client = _kept(content, context, SHARED), half.data.id
    secrets, partners = _secrets(kept), dict(pairs(kept["partners"], kept["publics"]))
    senders = dict(pairs(setting(content, "clients", list), setting(content, "sealed", list)))
    if not set(senders) <= {client, *partners} or len(senders) < threshold(len(partners) + 1) or client not in senders:
        raise MaskError(f"{len(senders)} of {len(partners) + 1} clients have shared their secrets; too few to hide in")
    update = _take_update(content, context, SHARED)
    masking = Masking(setting(content, "clip", float), setting(content, "unbiased", bool))
    units, scale = setting(content, "units", int), setting(content, "scale", float)
    total = as_integers(update, units, scale, masking.clip, rounding(masking, int(kept["round"]), client))
    add_stream(total, derive_key(secrets.own, "own mask"))
    add_pair_masks(total, secrets.mask, client, {one: partners[one] for one in senders if one != client})
    kept |= {"step": UPLOADED, "senders": list(senders), "sealed": list(senders.values())}
    context.state[KEPT] = ConfigRecord(kept)
    return pack({"masked": total})


def reveal_shares(half: ClientHalf, content: RecordDict, context: Context) -> RecordDict:
    """Reply with one share of each partner: of its own seed if it uploaded, of its mask seed if it dropped out."""
    kept, client = _kept(content, context, UPLOADED), half.data.id
    secrets, partners = _secrets(kept), dict(pairs(kept["partners"], kept["publics"]))
    sealed = dict(pairs(kept["senders"], kept["sealed"]))
    uploaded, dropped = (setting(content, name, list) for name in ("uploaded", "dropped"))
    if set(uploaded) & set(dropped) or not {*uploaded, *dropped} <= set(sealed):
        raise MaskError("the server asks for both secrets of a client, or for those of a stranger")
    if client in dropped or len(uploaded) < threshold(len(partners) + 1):
        raise MaskError(f"only {len(uploaded)} of {len(partners) + 1} clients have uploaded; too few to hide in")
    del context.state[KEPT]  # before anything is revealed: nobody gets a second answer
    publics = {**partners, client: secrets.public}
    shares = {one: open_shares(secrets, publics[one], one, client, sealed[one]) for one in (*uploaded, *dropped)}
    revealed = [shares[one][one in dropped] for one in shares]
    return pack(config={"clients": list(shares), "shares": revealed})


def _kept(content: RecordDict, context: Context, step: str) -> dict[str, Any]:
    """What the node keeps, if the message is about its round and the next step."""
    record = context.state.get(KEPT)
    kept: dict[str, Any] = dict(record) if isinstance(record, ConfigRecord) else {}
    index = setting(content, "round", int)
    if kept.get("round") != index or kept.get("step") != step:
        raise MaskError(f"the node keeps no update of round {index} at this step")
    return kept


def _take_update(content: RecordDict, context: Context, step: str) -> Model:
    """Remove the update from the state, and return it."""
    _kept(content, context, step)
    record = cast(ArrayRecord, context.state[UPDATE])
    update = record["update"].numpy()
    del context.state[UPDATE]
    return cast(Model, update)


def _secrets(kept: dict[str, Any]) -> Secrets:
    return Secrets(kept["mask"], kept["own"], kept["transport"])


def _sign(context: Context, content: bytes) -> tuple[bytes, bytes]:
    """The node's public key and its signature; empty without a key."""
    path = context.node_config.get(KEY_FILE)
    if not path:
        return b"", b""
    key = load_ssh_private_key(Path(str(path)).read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} must be a key of `flower-supernode` on an elliptic curve; give the node's own key")
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return public, key.sign(content, ec.ECDSA(hashes.SHA384()))


@lru_cache(maxsize=1)
def _read_roster(path: Path) -> dict[ClientId, str]:
    """The fingerprints of the clients' keys that this node trusts."""
    return {client: entry.key for client, entry in read_enrolment(path).active.items()}
