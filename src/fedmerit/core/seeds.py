"""Random draws: each derived from (run seed, purpose, round, client), never from a shared stream.

The purpose is hashed, so results depend on it: a renamed class keeps its old purpose.
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np


def derive(seed: int, purpose: str, *place: int) -> int:
    """Derive a 63-bit seed for a purpose at a place (for example a round and a client)."""
    text = ":".join([str(seed), purpose, *map(str, place)])
    # hash() of Python is salted per process; blake2b gives the same seeds on every machine and version.
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def train_seed(seed: int, index: int, client: int) -> int:
    """Seed that a client receives for training: it reveals neither the run's seed nor other clients' draws."""
    return derive(seed, "train", index, client)


def attack_seed(seed: int, index: int, client: int) -> int:
    """Seed of a client that simulates an attack."""
    return derive(seed, "attack", index, client)


def generator(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """numpy generator for a purpose at a place."""
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
        """Seed for a purpose in this round."""
        return derive(self.run_seed, purpose, self.index)

    def generator(self, purpose: str) -> np.random.Generator:
        """numpy generator for a purpose in this round."""
        return generator(self.run_seed, purpose, self.index)
