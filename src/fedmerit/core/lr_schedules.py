"""`train.schedule = "cosine"`: the clients' learning rate over the rounds, set by the server."""

import math

from fedmerit.errors import ConfigError


def cosine_factor(index: int, rounds: int | None) -> float:
    """Cosine factor (1 + cos(pi (t - 1) / T)) / 2 in round t of T [Loshchilov 2017]; above 0 in the last round.

    >>> [round(cosine_factor(t, rounds=2), 3) for t in (1, 2)]
    [1.0, 0.5]
    """
    if rounds is None:
        raise ConfigError('train.schedule = "cosine" needs the number of rounds, which is unknown here; remove it')
    return (1 + math.cos(math.pi * (index - 1) / rounds)) / 2
