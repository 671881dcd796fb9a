"""Random draws: each derived from (run seed, purpose, round, client), never from a shared stream."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def derive(seed: int, purpose: str, *place: int) -> int:
    """A 63-bit seed for one purpose at one place (for example a round and a client)."""
    text = ":".join([str(seed), purpose, *map(str, place)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def generator(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """numpy's generator for one purpose at one place."""
    return np.random.default_rng(derive(seed, purpose, *place))
