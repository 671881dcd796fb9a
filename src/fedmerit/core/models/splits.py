"""Splits: groups that part in two, for good, once their clients pull against each other [CFL]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmerit.core.models.grouping import Groups, Linkage, PairDistances, numbered
from fedmerit.core.types import ClientId, Matrix
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, UnknownName


@dataclass(frozen=True, slots=True)
class Splits:
    """All begin together; a group is split in two by cosine when its mean update is short beside theirs [CFL, Alg. 1].

    Short is norm(mean of updates) < at * (the longest update): the group has come to rest, and its clients have not.
    The paper bounds the two norms by numbers of their own, 0.4 and 1.6 in the authors' code; `at` is their ratio.
    `linkage` makes the two halves: `complete` as in the authors' code, `single` is the largest gap between halves, the
    paper's formula. Who was parted stays so; a client that missed a split goes to the first half that it may.
    Groups of two or fewer stay, and so does one in which all point the same way.

    >>> updates = Updates(np.array([[1, 0], [1, 0.1], [-1, 0], [-1, 0.1]], dtype=np.float32))
    >>> Splits()(updates, range(4), PairDistances()).labels.tolist()
    [0, 0, 1, 1]
    """

    at: float = 0.25
    linkage: Linkage = "complete"

    def __post_init__(self) -> None:
        if not 0 <= self.at <= 1:
            raise ConfigError(
                f"a group is split where its mean update is below `at` of the longest, 0..1; got {self.at}"
            )
        if self.linkage not in get_args(Linkage) or self.linkage == "centroid":
            raise UnknownName("linkage of splits", str(self.linkage), ("complete", "single", "average"))

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """The groups so far, each split once where its time has come."""
        distances = updates.cosine_distances()
        labels = pairs.together(ids)
        for group in range(int(labels.max(initial=-1)) + 1):
            places = np.flatnonzero(labels == group)
            if len(places) > 2 and self._rests(updates, places):
                labels[places[self._second_half(distances[np.ix_(places, places)])]] = len(ids) + group
        labels = numbered(labels)
        return Groups(labels, distances=distances, pairs=pairs.after(ids, distances, labels))

    def _rests(self, updates: Updates, places: NDArray[np.intp]) -> bool:
        weights = np.zeros(len(updates))
        weights[places] = 1 / len(places)
        return bool(np.linalg.norm(updates.combine(weights)) < self.at * updates.norms[places].max())

    def _second_half(self, distances: Matrix) -> NDArray[np.intp]:
        near = np.maximum(distances[np.triu_indices(len(distances), 1)], 0.0)
        tree = scipy.cluster.hierarchy.linkage(near, self.linkage)
        halves = scipy.cluster.hierarchy.fcluster(tree, 2, "maxclust")
        return np.flatnonzero(halves != halves[0])
