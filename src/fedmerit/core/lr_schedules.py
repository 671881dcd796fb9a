"""`train.schedule = "cosine"`: the clients' learning rate over the rounds; the server sends it, and clients obey."""

from __future__ import annotations

import math

from fedmerit.errors import ConfigError


def cosine_factor(index: int, rounds: int | None) -> float:
    """(1 + cos(pi (t - 1) / T)) / 2 in round t of T [Loshchilov 2017]: from 1 down, above 0 in the last round, too.

    >>> [round(cosine_factor(t, rounds=2), 3) for t in (1, 2)]
    [1.0, 0.5]
    """
    if rounds is None:
        raise ConfigError('train.schedule = "cosine" needs the number of rounds, which is not known here')
    return (1 + math.cos(math.pi * (index - 1) / rounds)) / 2
