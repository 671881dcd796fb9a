"""Groups: clients that are aggregated together: all, or those with similar updates [M2F, Alg. 2]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, TypeAlias

import numpy as np
import scipy
from annotated_types import Interval
from numpy.typing import NDArray

from fedmerit.core.parts import PAIRS, Doc, part
from fedmerit.core.state import PairDistances
from fedmerit.core.types import ClientId, Groups, Matrix, Vector
from fedmerit.core.updates import Updates

Cut: TypeAlias = Literal["gap", "silhouette"]
Over: TypeAlias = Literal["round", "all"]

LEVELS: dict[Cut, float] = {"gap": 0.03, "silhouette": 0.15}
"""The least gap, and the least silhouette; below it all clients are one group."""
FARTHEST = 2.0
"""1 - cos of two opposite updates."""


class Grouping(Protocol):
    """Partition of a round's clients into groups by their updates."""

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """Return the group of each client; `pairs` holds the earlier rounds."""


@part("grouping", "one")
class OneGroup:
    """All clients together: one aggregate."""

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """Return the same group for every client."""
        return Groups(np.zeros(len(updates), dtype=np.intp))


@part("grouping", "cosine")
class ByCosine:
    """Group clients with similar updates by cosine distance: R_ij = 1 - cos(update_i, update_j) in 0..2 [M2F, Alg. 2].

    Agglomerative clustering: the nearest two groups are merged while their distance is below a cut.

    cut         where to stop:
                `gap`: in the middle of the largest jump between merges in the later half of the merges, so that there
                are at most half as many groups as clients; without a jump of at least 0.03 all are one group.
                Two clients only are separated if their distance exceeds 1, when their updates oppose each other.
                `silhouette`: at the largest mean silhouette among the same merges; one group if that is below 0.15.
                Steadier than the gap for clients that keep their training.
                A number: at this distance (the paper)
    over        distances of this `round` (the paper), or the mean over `all` rounds that two clients share: as
                personal models converge their updates become noise, and the mean still separates the groups

    Clients with a zero update have no direction: they form a separate group.

    >>> updates = Updates(np.array([[1, 0], [2, 0], [0, 1], [0, 3]], dtype=np.float32))
    >>> ByCosine()(updates, range(4), PairDistances()).labels.tolist()
    [0, 0, 1, 1]
    """

    cut: Annotated[
        Cut | float, Interval(ge=0, le=2), Doc("stop merging at the largest gap, the best silhouette, or this distance")
    ] = "gap"
    over: Annotated[Over, Doc("distances of this `round`, or the mean of `all` rounds so far")] = "round"

    @property
    def remembers(self) -> tuple[str, ...]:
        """The distances of all rounds, if they count."""
        return (PAIRS,) if self.over == "all" else ()

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """Group the clients of this round; absent clients do not count."""
        norms, distances = updates.norms, updates.cosine_distances()
        used = pairs.after(ids, distances).mean(ids) if self.over == "all" else distances
        moving = np.flatnonzero(norms > 0)
        labels = np.full(len(updates), len(updates), dtype=np.intp)  # a label that no other group has
        cut = None
        if len(moving) > 1:
            inside = used[np.ix_(moving, moving)]
            pairs_inside = np.maximum(inside[np.triu_indices(len(moving), 1)], 0.0)
            tree = np.asarray(scipy.cluster.hierarchy.linkage(pairs_inside, "average"))
            cut = self._cut(tree, inside)
            labels[moving] = _labels(tree, cut)
        elif len(moving):
            labels[moving] = 0
        labels = numbered(labels)
        return Groups(labels, cut, distances)

    def _cut(self, tree: Matrix, distances: Matrix) -> float:
        heights: Vector = tree[:, 2]
        if not isinstance(self.cut, str):
            return self.cut
        if len(heights) == 1:
            return 1.0
        rising = np.maximum.accumulate(heights)[len(heights) // 2 - 1 :]
        jumps, middles = np.diff(rising), rising[:-1] + np.diff(rising) / 2
        good = jumps if self.cut == "gap" else [silhouette(distances, _labels(tree, one)) for one in middles]
        best = int(np.argmax(good))
        return float(middles[best]) if good[best] >= LEVELS[self.cut] else FARTHEST + 1


def silhouette(distances: Matrix, labels: NDArray[np.intp]) -> float:
    """Silhouette: the mean of (b - a) / max(a, b) in -1..1 (Rousseeuw 1987).

    a is a client's mean distance to its own group, b the least of its mean distances to another group. A client that
    is the only one in its group counts 0; so does every client if there is one group.
    """
    _, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        return 0.0
    sums = distances @ (places[:, np.newaxis] == np.arange(len(sizes)))  # of each client to each group
    rows = np.arange(len(places))
    inside = sums[rows, places] / np.maximum(sizes[places] - 1, 1)
    means = sums / sizes
    means[rows, places] = np.inf
    next_one = means.min(axis=1)
    larger = np.maximum(inside, next_one)
    value = np.divide(next_one - inside, larger, out=np.zeros(len(places)), where=(larger > 0) & (sizes[places] > 1))
    return float(value.mean())


def _labels(tree: Matrix, cut: float) -> NDArray[np.intp]:
    """Groups when merging stops below this distance."""
    return np.asarray(scipy.cluster.hierarchy.fcluster(tree, np.nextafter(cut, -1.0), "distance"), dtype=np.intp)


def numbered(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Renumber groups from 0 in the order of their first clients."""
    _, first, places = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[places], dtype=np.intp)
