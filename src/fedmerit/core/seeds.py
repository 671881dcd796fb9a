"""Random draws: each derived from (run seed, purpose, round, client), never from a shared stream.

A purpose is part of the bits: renaming a class does not rename its purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np


def derive(seed: int, purpose: str, *place: int) -> int:
    """A 63-bit seed for one purpose at one place (for example a round and a client)."""
    text = ":".join([str(seed), purpose, *map(str, place)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def train_seed(seed: int, index: int, client: int) -> int:
    """The seed that a client is sent to train with: it reveals neither the run's seed nor other clients' draws."""
    return derive(seed, "train", index, client)


def attack_seed(seed: int, index: int, client: int) -> int:
    """The seed of a client that simulates an attack."""
    return derive(seed, "attack", index, client)


def generator(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """numpy's generator for one purpose at one place."""
    return np.random.default_rng(derive(seed, purpose, *place))


@dataclass(frozen=True, slots=True)
class Draws:
    """The draws of one round.

    >>> Draws(run_seed=7, index=2).seed("aggregate") == derive(7, "aggregate", 2)
    True
    """

    run_seed: int
    index: int

    def seed(self, purpose: str) -> int:
        """A seed for one purpose in this round."""
        return derive(self.run_seed, purpose, self.index)

    def generator(self, purpose: str) -> np.random.Generator:
        """numpy's generator for one purpose in this round."""
        return generator(self.run_seed, purpose, self.index)
