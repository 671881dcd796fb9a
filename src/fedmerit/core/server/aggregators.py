"""Robust aggregators: combine a round's updates by the earned weights, with a bound on what a few clients can do.

`server.Mean` is what every recipe of the four papers uses. Each aggregator here is the published rule if all weights
are 1/n, and counts weight instead of clients otherwise. NNM mixes the updates first and then calls another
aggregator. All work on blocks of columns or on the (n, n) inner products, so no second matrix of updates is allocated.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from fedmerit.core.parts import Doc, part
from fedmerit.core.server.server import SERVER_MODEL, Aggregator, Batch
from fedmerit.core.types import Matrix, Rows, Vector
from fedmerit.core.updates import Updates

ROUNDING = 1e-9
"""Weights below this are rounding and count as 0: a trimmed value must not return as 1e-17 of 1e18."""
NOT_ACCOUNTED: Mapping[str, str] = {
    "accounted": "[privacy] accounts for a weighted sum; remove the aggregator, clip and scales bound every client",
}
SORTED = 1 << 11  # columns sorted at a time: with their weights they fit the cache


@part("aggregator", "median")
class CoordinateMedian:
    """Coordinate-wise weighted median; the mean of two values if both halve the weight [Yin 2018].

    >>> updates = Updates(np.array([[1.0], [2.0], [90.0]], dtype=np.float32))
    >>> CoordinateMedian()(Batch(updates), np.array([0.2, 0.2, 0.6])).tolist()
    [90.0]
    """

    needs = SERVER_MODEL
    why = NOT_ACCOUNTED

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Sort each coordinate once for all weightings."""
        return _by_sorted(batch.updates, weights, self._middle)

    @staticmethod
    def _middle(values: NDArray[np.float32], shares: Matrix) -> Matrix:
        below = np.cumsum(shares, axis=1)
        low, high = (below < 0.5 - ROUNDING).sum(axis=1), (below <= 0.5 + ROUNDING).sum(axis=1)
        places = np.broadcast_to(np.stack([low, high], axis=1), (len(values), 2))
        return np.asarray(np.take_along_axis(values, places, axis=1).mean(axis=1))


MEDIAN = CoordinateMedian()


@part("aggregator", "trimmed-mean")
class TrimmedMean:
    """Coordinate-wise mean after `share` of the weight is trimmed at each end [Yin 2018].

    A value on the border counts with the part of its weight that remains. With equal weights and share = f / n that is
    the mean without the f largest and the f smallest.

    >>> updates = Updates(np.array([[1.0], [2.0], [3.0], [4.0], [90.0]], dtype=np.float32))
    >>> TrimmedMean(0.2)(Batch(updates), np.full(5, 0.2)).tolist()
    [3.0]
    """

    share: Annotated[float, Interval(ge=0, lt=0.5), Doc("share of the weight that is cut at each end")] = 0.2

    needs = SERVER_MODEL
    why = NOT_ACCOUNTED

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Sort each coordinate once for all weightings."""
        return _by_sorted(batch.updates, weights, self._inner)

    def _inner(self, values: NDArray[np.float32], shares: Matrix) -> Matrix:
        left = _within(shares, self.share, 1 - self.share)
        if len(left) == 1:  # equal weights: the same in every coordinate
            return np.asarray(values @ (left[0] / left[0].sum()).astype(np.float32))
        return np.asarray((values * left).sum(axis=1) / left.sum(axis=1))


@part("aggregator", "geometric-median")
class GeometricMedian:
    """Geometric median: the point of least weighted distance to all updates, by smoothed Weiszfeld iterations [RFA].

    z starts at 0, then z = sum_k b_k update_k / sum_k b_k with b_k = w_k / max(smoothing, ||update_k - z||). Every z is
    a weighted sum of updates, so distances follow from the inner products and an iteration costs O(n^2), not O(n d).

    >>> updates = Updates(np.array([[1.0, 0.0], [1.1, 0.0], [0.0, 90.0]], dtype=np.float32))
    >>> [round(value, 2) for value in GeometricMedian()(Batch(updates), np.full(3, 1 / 3)).tolist()]
    [1.05, 0.03]
    """

    needs = SERVER_MODEL
    why = NOT_ACCOUNTED

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Use one pass for the inner products and one for the sums."""
        updates = batch.updates
        return updates.combine(_each(weights, lambda shares: weiszfeld(updates.products, shares), len(updates)))


def weiszfeld(products: Matrix, shares: Vector, smoothing: float = 1e-6, iterations: int = 32) -> Vector:
    """Coefficient of each update in z, see `GeometricMedian`; distances below `smoothing` count as this."""
    parts = np.zeros(len(shares))
    for _ in range(iterations):
        along = products @ parts
        apart = np.sqrt(np.maximum(np.diag(products) - 2 * along + parts @ along, 0.0))
        pull = shares / np.maximum(apart, smoothing)
        parts = pull / pull.sum()
    return parts


@part("aggregator", "multi-krum")
class MultiKrum:
    """Multi-Krum: the mean of the updates nearest to their neighbours [Krum].

    An update's score is its mean squared distance to its n - f - 2 nearest neighbours, with f = share * n. The n - f
    updates with the lowest scores are averaged; with `average` = 1 the best one is the aggregate, which is Krum. With
    unequal weights neighbours and averaged updates are counted by weight, and the mean is weighted.

    share     share of the clients that may attack
    average   how many updates are averaged; None: all but `share`

    >>> updates = Updates(np.array([[1.0], [2.0], [2.5], [90.0]], dtype=np.float32))
    >>> [MultiKrum(0.25, average)(Batch(updates), np.full(4, 0.25)).tolist() for average in (1, 2)]
    [[2.0], [2.25]]
    """

    share: Annotated[float, Interval(ge=0, lt=0.5), Doc("share of the clients that may attack")] = 0.2
    average: Annotated[int | None, Interval(ge=1), Doc("updates averaged; 1: Krum; default: all but `share`")] = None

    needs = SERVER_MODEL
    why = NOT_ACCOUNTED

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Use one pass for the distances and one for the sums."""
        updates, apart = batch.updates, batch.updates.squared_distances
        return updates.combine(_each(weights, lambda shares: self._parts(apart, shares), len(updates)))

    def _parts(self, apart: Matrix, shares: Vector) -> Vector:
        scores = np.where(shares > 0, krum_scores(apart, shares, self.share), np.inf)
        order = np.argsort(scores, kind="stable")
        selected = np.zeros(len(shares))
        if self.average is None:
            selected[order] = _within(shares[order], 0.0, 1 - self.share)
        else:
            selected[order[: self.average]] = shares[order[: self.average]]
        return np.asarray(selected / selected.sum())


@part("aggregator", "nnm")
class NNM:
    """Nearest-neighbour mixing: replace each update by the weighted mean of its nearest, then aggregate [NNM].

    The nearest, the update included, hold 1 - share of the weight. With equal weights and share = f / n each is the
    mean of its n - f nearest.

    >>> updates = Updates(np.array([[1.0], [2.0], [3.0], [90.0]], dtype=np.float32))
    >>> NNM(CoordinateMedian(), 0.25)(Batch(updates), np.full(4, 0.25)).tolist()
    [2.0]
    """

    of: Annotated[Aggregator, Doc("what aggregates the mixed updates")] = MEDIAN
    share: Annotated[float, Interval(ge=0, lt=0.5), Doc("share of the weight that is not trusted")] = 0.2

    needs = SERVER_MODEL
    why = NOT_ACCOUNTED

    def __call__(self, batch: Batch, weights: Vector | Matrix) -> Rows:
        """Use one pass for the distances; the mixed updates are computed block by block."""
        updates, apart = batch.updates, batch.updates.squared_distances

        def mixed(shares: Vector) -> NDArray[np.float32]:
            near = nearest(apart, shares, self.share)
            return self.of(replace(batch, updates=updates.mix(near / near.sum(axis=1, keepdims=True))), shares)

        return _each(weights, mixed, updates.length, np.float32)


def nearest(apart: Matrix, shares: Vector, share: float) -> Matrix:
    """For each row the weight of its nearest, itself first, up to 1 - share of the total weight; by distance."""
    ranked = apart.copy()
    np.fill_diagonal(ranked, -1.0)  # below every distance: an update is its own nearest, also among duplicates
    order = np.argsort(ranked, axis=1, kind="stable")
    near = np.zeros_like(apart)
    np.put_along_axis(near, order, _within(shares[order], 0.0, 1 - share), axis=1)
    return near


def krum_scores(apart: Matrix, shares: Vector, share: float) -> Vector:
    """Each row's mean squared distance to its nearest neighbours, see `MultiKrum`; 0 if it has none."""
    # The row itself and n - f - 2 neighbours hold n - f - 1 of n equal shares.
    near = nearest(apart, shares, min(share + 1 / np.count_nonzero(shares), 1.0))
    np.fill_diagonal(near, 0.0)
    held = near.sum(axis=1)
    return np.asarray(np.divide((near * apart).sum(axis=1), held, out=np.zeros(len(held)), where=held > 0))


def _within(shares: Matrix | Vector, low: float, high: float) -> NDArray[np.float64]:
    """Part of each share that lies between two marks in 0..1 when the shares are laid end to end."""
    ends = np.cumsum(shares, axis=-1)
    inside = np.minimum(ends, high) - np.maximum(ends - shares, low)
    return np.asarray(np.where(inside > ROUNDING, inside, 0.0))


def _each(
    weights: Vector | Matrix, rule: Callable[[Vector], NDArray[Any]], length: int, kind: type = np.float64
) -> NDArray[Any]:
    """Apply rule(shares) to each weighting, giving `length` numbers each; zeros if all its weights are 0."""
    rows = [rule(one / one.sum()) if one.any() else np.zeros(length) for one in np.atleast_2d(weights)]
    return np.asarray(rows, dtype=kind).reshape(*weights.shape[:-1], length)


def _by_sorted(
    updates: Updates, weights: Vector | Matrix, rule: Callable[[NDArray[np.float32], Matrix], Matrix]
) -> NDArray[np.float32]:
    """Apply rule(values, shares) to every coordinate: its sorted values (columns, n), and the shares in that order.

    If all weights are equal there is one row of shares for all coordinates.
    """
    alike = bool((np.ptp(weights, axis=-1) == 0).all())
    equal = np.full((1, len(updates)), 1 / len(updates))

    def few(block: NDArray[np.float32]) -> NDArray[Any]:
        columns = np.ascontiguousarray(block.T)
        order = None if alike else np.argsort(columns, axis=1)
        values = np.sort(columns, axis=1) if order is None else np.take_along_axis(columns, order, axis=1)
        return _each(
            weights,
            lambda shares: rule(values, equal if order is None else np.take(shares, order)),
            len(columns),
            np.float32,
        )

    def work(block: NDArray[np.float32]) -> NDArray[Any]:
        starts = range(0, block.shape[1], SORTED)
        return np.concatenate([few(block[:, start : start + SORTED]) for start in starts], axis=-1)

    return updates.by_columns(work, weights.shape[:-1])
