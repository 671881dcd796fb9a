"""Mods: what a Flower client does to its own reply before it leaves; the clip of private runs."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedmerit.core.stages.clip import clip_factors
from fedmerit.errors import ConfigError
from fedmerit.flower.arrays import flat, unflat


def clip_mod(clip: float) -> Mod:
    """A mod that cuts what a client learned to the length `clip` before it is sent: ClientApp(mods=[clip_mod(1.0)]).

    The server sees no more than that, and its own clip of the same length changes nothing. It is for a fixed clip: an
    adaptive one needs the lengths as they were.
    """
    if not 0 < clip < np.inf:
        raise ConfigError(f"a clip is the most that an update may be long, above 0; got {clip}")

    def clipped(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """The reply to a training message with its update cut; any other as it is."""
        sent = list(message.content.array_records.values())
        start = unflat(flat(sent[0]), sent[0]) if len(sent) == 1 else None  # a copy: apps may train in place
        reply = call_next(message, context)
        if message.metadata.message_type != MessageType.TRAIN or reply.has_error():
            return reply
        trained = list(reply.content.array_records.items())
        if start is None or len(trained) != 1:
            raise ValueError(f"the clip needs one ArrayRecord each way; got {len(sent)} and {len(trained)}")
        reply.content[trained[0][0]] = shortened(start, trained[0][1], clip)
        return reply

    return clipped


def shortened(start: ArrayRecord, trained: ArrayRecord, clip: float) -> ArrayRecord:
    """start + update * min(1, clip / |update|), update = trained - start, over all arrays together."""
    before = flat(start)
    update = flat(trained, start) - before
    factor = clip_factors(np.array([np.linalg.norm(update.astype(np.float64))]), clip)[0]
    return trained if factor == 1 else unflat(before + np.float32(factor) * update, start)
