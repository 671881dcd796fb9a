"""Splits: groups that part in two, for good, once their clients pull against each other [CFL]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy
from annotated_types import Interval
from numpy.typing import NDArray

from fedmerit.core.history import PairDistances
from fedmerit.core.models.grouping import Groups, numbered
from fedmerit.core.parts import PAIRS, Doc, part
from fedmerit.core.types import ClientId, Matrix
from fedmerit.core.updates import Updates


@part("grouping", "splits")
class Splits:
    """All begin together; a group is split in two by cosine when its mean update is short [CFL, Alg. 1].

    Short is norm(mean of updates) < threshold * (the longest update): the group has converged, its clients have not.
    The paper bounds the two norms separately, by 0.4 and 1.6 in the authors' code; `threshold` is their ratio.
    `linkage` makes the two halves: `complete` as in the authors' code, `single` is the largest gap between halves, the
    paper's formula. A split is permanent; a client that missed one joins the first half that it may.
    Groups of two or fewer stay, and so does one in which all point the same way.

    >>> updates = Updates(np.array([[1, 0], [1, 0.1], [-1, 0], [-1, 0.1]], dtype=np.float32))
    >>> Splits()(updates, range(4), PairDistances()).labels.tolist()
    [0, 0, 1, 1]
    """

    threshold: Annotated[
        float, Interval(ge=0, le=1), Doc("split where the mean update is shorter than this part of the longest")
    ] = 0.25
    linkage: Annotated[Literal["average", "complete", "single"], Doc("how the two halves are made")] = "complete"

    remembers: ClassVar[tuple[str, ...]] = (PAIRS,)

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """The groups so far, each split once where its time has come."""
        distances = updates.cosine_distances()
        labels = pairs.compatible_groups(ids)
        for group in range(int(labels.max(initial=-1)) + 1):
            places = np.flatnonzero(labels == group)
            if len(places) > 2 and self._rests(updates, places):
                labels[places[self._second_half(distances[np.ix_(places, places)])]] = len(ids) + group
        labels = numbered(labels)
        return Groups(labels, distances=distances)

    def _rests(self, updates: Updates, places: NDArray[np.intp]) -> bool:
        weights = np.zeros(len(updates))
        weights[places] = 1 / len(places)
        return bool(np.linalg.norm(updates.combine(weights)) < self.threshold * updates.norms[places].max())

    def _second_half(self, distances: Matrix) -> NDArray[np.intp]:
        near = np.maximum(distances[np.triu_indices(len(distances), 1)], 0.0)
        tree = scipy.cluster.hierarchy.linkage(near, self.linkage)
        halves = scipy.cluster.hierarchy.fcluster(tree, 2, "maxclust")
        return np.flatnonzero(halves != halves[0])
