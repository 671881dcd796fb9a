"""Attention: a separate aggregate for each client, in which similar clients count more [FedAMP]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from annotated_types import Interval

from fedmerit.core.models.grouping import Over
from fedmerit.core.parts import PAIRS, Doc, part
from fedmerit.core.state import PairDistances
from fedmerit.core.types import ClientId, Groups
from fedmerit.core.updates import Updates


@part("grouping", "attention")
class ByAttention:
    """Weigh client j in client i's aggregate by a_ij = exp(sharpness cos(update_i, update_j)) [FedAMP, eq. 8].

    Client i gets sum_j a_ij w_j update_j / sum_j a_ij w_j, where w_j is the earned weight of j. With `sharpness` 0 all
    clients get the same aggregate; a large value approaches local training. `over`: cosines of this `round`, or the
    mean over `all` rounds that two clients share. The paper compares models; here it is updates, which the server sees.

    >>> updates = Updates(np.array([[1, 0], [2, 0], [0, 1]], dtype=np.float32))
    >>> groups = ByAttention(sharpness=20)(updates, range(3), PairDistances())
    >>> groups.spread(np.array([0.25, 0.25, 0.5])).round(3).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """

    sharpness: Annotated[float, Interval(ge=0), Doc("0: all get the same; larger: nearer to local training")] = 10.0
    over: Annotated[Over, Doc("cosines of this `round`, or the mean of `all` rounds so far")] = "all"

    @property
    def remembers(self) -> tuple[str, ...]:
        """The distances of all rounds, if they count."""
        return (PAIRS,) if self.over == "all" else ()

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """Return one group with an attention matrix."""
        distances = updates.cosine_distances()
        labels = np.zeros(len(updates), dtype=np.intp)
        used = pairs.after(ids, distances).mean(ids) if self.over == "all" else distances
        return Groups(labels, distances=distances, attention=np.exp(-self.sharpness * used))
