"""Groups: which clients are aggregated together: all, or those whose updates point the same way [M2F, Alg. 2]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Protocol, TypeAlias

import numpy as np
import scipy
from annotated_types import Interval
from numpy.typing import NDArray

from fedmerit.core.parts import PAIRS, Doc, part
from fedmerit.core.state import PairDistances
from fedmerit.core.types import ClientId, Groups, Matrix, Vector
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

Linkage: TypeAlias = Literal["average", "complete", "single"]
Cut: TypeAlias = Literal["gap", "silhouette", "constant"]
Over: TypeAlias = Literal["round", "all"]

LEVELS: Mapping[Cut, float] = {"gap": 0.03, "silhouette": 0.15, "constant": 1.0}
"""Where each cut is made unless told."""
FARTHEST = 2.0
"""1 - cos of two opposite updates."""


class Grouping(Protocol):
    """Which clients are aggregated together, by the updates of a round."""

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """A group for each client; `pairs` are the earlier rounds."""


@part("grouping", "one")
class OneGroup:
    """All clients together: one aggregate."""

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """The same group for everybody."""
        return Groups(np.zeros(len(updates), dtype=np.intp))


@part("grouping", "cosine")
class ByCosine:
    """Groups of clients whose updates point the same way: R_ij = 1 - cos(update_i, update_j) in 0..2 [M2F, Alg. 2].

    Agglomerative: the nearest two groups are merged while they are nearer than a cut.

    `linkage` is the distance of two groups: the average, largest or smallest of their pairs. `cut` says where to stop
    and `threshold` is its level:
    - `gap`: in the middle of the largest jump from one merge to the next among the later half of the merges, so that
      there are at most half as many groups as clients; with no jump of at least `threshold` all are one group. Only
      two clients are separated if they are farther than 1: they pull against each other.
    - `silhouette`: where the groups have the largest mean silhouette, among the same merges; all are one group where
      that is below `threshold`. Steadier than the gap for clients that keep their training (docs/results/groups.md).
    - `constant`: at that distance.

    `over`: distances of this `round` alone (the paper), or the mean of `all` rounds in which two clients met. As
    clients with personal models learn, their updates become noise, and the mean still knows who is like whom.

    Clients whose update is zero point nowhere: they form a group of their own.

    >>> updates = Updates(np.array([[1, 0], [2, 0], [0, 1], [0, 3]], dtype=np.float32))
    >>> ByCosine()(updates, range(4), PairDistances()).labels.tolist()
    [0, 0, 1, 1]
    """

    linkage: Annotated[Linkage, Doc("the distance of two groups, by that of their pairs")] = "average"
    cut: Annotated[Cut, Doc("stop merging at the largest gap, the best silhouette or a constant distance")] = "gap"
    threshold: Annotated[
        float | None,
        Interval(ge=0, le=2),
        Doc("least gap (default 0.03), least silhouette (0.15) or distance (1.0): as `cut` is"),
    ] = None
    over: Annotated[Over, Doc("distances of this `round`, or the mean of `all` rounds so far")] = "round"

    def __post_init__(self) -> None:
        top = 1.0 if self.cut == "silhouette" else FARTHEST
        if not 0 <= self.level <= top:
            raise ConfigError(f"`threshold` of a {self.cut} must be in 0..{top:g} (got {self.threshold})")

    @property
    def remembers(self) -> tuple[str, ...]:
        """The distances of all rounds, where they count."""
        return (PAIRS,) if self.over == "all" else ()

    @property
    def level(self) -> float:
        """The level of the cut."""
        return LEVELS[self.cut] if self.threshold is None else self.threshold

    def __call__(self, updates: Updates, ids: Sequence[ClientId], pairs: PairDistances) -> Groups:
        """Groups of the clients of this round; who is absent is not asked."""
        norms, distances = updates.norms, updates.cosine_distances()
        used = pairs.after(ids, distances).mean(ids) if self.over == "all" else distances
        moving = np.flatnonzero(norms > 0)
        labels = np.full(len(updates), len(updates), dtype=np.intp)  # a number that no group of the others has
        cut = None
        if len(moving) > 1:
            inside = used[np.ix_(moving, moving)]
            pairs_inside = np.maximum(inside[np.triu_indices(len(moving), 1)], 0.0)
            tree = np.asarray(scipy.cluster.hierarchy.linkage(pairs_inside, self.linkage))
            cut = self._cut(tree, inside)
            labels[moving] = _labels(tree, cut)
        elif len(moving):
            labels[moving] = 0
        labels = numbered(labels)
        return Groups(labels, cut, distances)

    def _cut(self, tree: Matrix, distances: Matrix) -> float:
        heights: Vector = tree[:, 2]
        if self.cut == "constant":
            return self.level
        if len(heights) == 1:
            return 1.0
        rising = np.maximum.accumulate(heights)[len(heights) // 2 - 1 :]
        jumps, middles = np.diff(rising), rising[:-1] + np.diff(rising) / 2
        good = jumps if self.cut == "gap" else [silhouette(distances, _labels(tree, one)) for one in middles]
        best = int(np.argmax(good))
        return float(middles[best]) if good[best] >= self.level else FARTHEST + 1


def silhouette(distances: Matrix, labels: NDArray[np.intp]) -> float:
    """How much nearer clients are to their own group than to the next one: the mean of (b - a) / max(a, b) in -1..1.

    a is a client's mean distance to the others of its group, b the least of its mean distances to another group
    (Rousseeuw 1987). A client alone in its group counts 0; so does everybody where there is one group.
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
    """The groups that are left when merging stops before this distance."""
    return np.asarray(scipy.cluster.hierarchy.fcluster(tree, np.nextafter(cut, -1.0), "distance"), dtype=np.intp)


def numbered(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """The same groups, numbered from 0 in the order of their first clients."""
    _, first, places = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[places], dtype=np.intp)
