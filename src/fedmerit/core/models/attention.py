"""Attention: each client has an aggregate of its own, to which those like it add more [FedAMP]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from fedmerit.core.models.grouping import Groups, Over, PairDistances
from fedmerit.core.types import ClientId
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, UnknownName


@dataclass(frozen=True, slots=True)
class ByAttention:
    """No borders: client i listens to client j by a_ij = exp(sharpness cos(update_i, update_j)) [FedAMP, eq. 8].

    Client i gets sum_j a_ij w_j update_j / sum_j a_ij w_j, where w_j is what j earned. With a `sharpness` of 0 that is
    the same for all; the larger it is, the nearer is everybody to being alone. `over`: cosines of this `round`, or the
    mean of `all` rounds in which two clients met. The paper compares models; here it is updates, which the server sees.

    >>> updates = Updates(np.array([[1, 0], [2, 0], [0, 1]], dtype=np.float32))
    >>> groups = ByAttention(sharpness=20)(updates, range(3), PairDistances())
    >>> groups.spread(np.array([0.25, 0.25, 0.5])).round(3).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """

    sharpness: float = 10.0
    over: Over = "all"

    def __post_init__(self) -> None:
        if not 0 <= self.sharpness < math.inf:
            raise ConfigError(f"sharpness is 0, all listen to all alike, or more, and finite; got {self.sharpness}")
        if self.over not in get_args(Over):
            raise UnknownName("over", str(self.over), get_args(Over))

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """One group, in which everybody listens to some more than to others."""
        distances = updates.cosine_distances()
        labels = np.zeros(len(updates), dtype=np.intp)
        met = pairs.after(ids, distances, labels) if self.over == "all" else pairs
        used = met.mean(ids) if self.over == "all" else distances
        return Groups(labels, distances=distances, pairs=met, attention=np.exp(-self.sharpness * used))
