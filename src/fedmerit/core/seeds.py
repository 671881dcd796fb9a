"""Random draws: each derived from (run seed, purpose, round, client), never from a shared stream."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def derive(seed: int, purpose: str, *place: int) -> int:
    """A 63-bit seed for one purpose at one place (for example a round and a client)."""
    text = ":".join([str(seed), purpose, *map(str, place)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def train_seed(seed: int, index: int, client: int) -> int:
    """What a client is sent to train with: it tells nothing of the run's seed, nor of others' draws."""
    return derive(seed, "train", index, client)


def attack_seed(seed: int, index: int, client: int) -> int:
    """What a client that is set to attack draws from."""
    return derive(seed, "attack", index, client)


def generator(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """numpy's generator for one purpose at one place."""
    return np.random.default_rng(derive(seed, purpose, *place))
